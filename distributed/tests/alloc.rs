//! Allocations of a decision, counted by the global allocator for each thread.

#![cfg(not(loom))]

use std::hint::black_box;

use allocation_counter::measure;
use tollgate::{Clock, Quota};
use tollgate_distributed::{DistributedLimiter, MemoryStore, Source};

/// The server's time, which stands still.
const NOW_US: u64 = 1 << 50;

fn allocates_nothing(what: &str, work: impl FnOnce()) {
    let counted = measure(work);
    assert_eq!((counted.count_total, counted.bytes_current), (0, 0), "{what} allocates");
}

#[test]
fn the_allocator_counts() {
    let counted = measure(|| drop(black_box(Vec::<u8>::with_capacity(100))));
    assert_eq!((counted.count_total, counted.bytes_max), (1, 100));
}

#[tokio::test]
async fn decisions_by_what_is_at_hand_allocate_nothing() {
    let (clock, _mock) = Clock::mock();
    let store = MemoryStore::new(|| NOW_US);
    let builder = DistributedLimiter::<String, _>::builder(Quota::per_hour(1_000), store).clock(clock);
    let limiter = builder.name("alloc").build().unwrap();
    limiter.key("leased").n(900).ask().await.unwrap();
    limiter.refund("leased", 900);
    allocates_nothing("a grant from a lease", || {
        for _ in 0..400 {
            assert_eq!(limiter.try_acquire_local("leased").unwrap().source(), Source::Lease);
        }
    });
    limiter.key("spent").n(1_000).ask().await.unwrap();
    assert!(limiter.ask("spent").await.is_err());
    allocates_nothing("a refusal", || {
        for n in (0..400).map(|number| number % 2 + 1) {
            assert_eq!(limiter.key("spent").n(n).try_acquire_local().unwrap_err().source(), Source::Shadow);
        }
    });
}

/// The store of the test keeps its buckets in the same memory.
#[test]
fn a_key_takes_2_400_bytes_at_most() {
    const KEYS: u64 = 10_000;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = MemoryStore::new(|| NOW_US);
    // The clock stands: on a busy machine the first keys would be forgotten before the last one.
    let builder = DistributedLimiter::<u64, _>::builder(Quota::per_hour(1_000), store).clock(Clock::mock().0);
    let limiter = runtime.block_on(async { builder.name("alloc").build() }).unwrap();
    let counted = measure(|| {
        runtime.block_on(async {
            for key in 0..KEYS {
                limiter.ask(&key).await.unwrap();
            }
        });
    });
    let bytes = counted.bytes_current as u64 / KEYS;
    assert!((512..=2_400).contains(&bytes), "{bytes} bytes a key");
}

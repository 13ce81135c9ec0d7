// promise: bounded
//! Ten million keys that come once each need the memory of the keys with room, and no more.
//!
//! The memory is the allocator's count and the process's resident size, so this is a program of its
//! own.

#[path = "common/resident.rs"]
mod resident;

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use allocation_counter::measure;
use tollgate::{Clock, Quota, RateLimiter, WhenFull};
use tollgate_verify::watchdog::Watchdog;

use resident::resident;

const KEYS: u64 = 10_000_000;
const ROOM: u64 = 100_000;
/// Keys of the first part. The map is largest just after it has grown, while the smaller one is
/// still there.
const FIRST: u64 = 10 * ROOM;

/// The resident size is that of the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn ten_million_keys_stay_within_the_memory_of_those_that_have_room() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let _watchdog = Watchdog::of("ten million keys", 1_800);
    // While the clock stands no key is evicted. Once it moves every key is, whatever the policy.
    for (policy, step) in
        [(WhenFull::Share, 0), (WhenFull::Deny, 0), (WhenFull::Allow, 0), (WhenFull::Share, 100_000)]
    {
        let (clock, mock) = Clock::mock();
        let limiter = RateLimiter::<u64>::builder(Quota::per_second(1)).clock(clock);
        let limiter = limiter.max_keys(ROOM as usize).when_full(policy).build();
        let flood = |keys: Range<u64>| {
            measure(|| {
                for key in keys {
                    let _ = limiter.try_acquire(&key);
                    mock.advance(Duration::from_nanos(step));
                }
            })
        };
        let bytes = |n: u64| i64::try_from(n).expect("bytes");
        let empty = resident();
        let first = flood(0..FIRST);
        let early = resident();
        let rest = flood(FIRST..KEYS);
        let late = resident();
        let most = [bytes(first.bytes_max), first.bytes_current + bytes(rest.bytes_max)];
        let grown = early.zip(empty).map(|(early, empty)| early - empty);
        let more = late.zip(early).map(|(late, early)| late - early);
        println!(
            "{policy:?}, {step} ns a key: {most:?} bytes allocated at most, {grown:?} in memory, then {more:?} more; {:?}",
            limiter.stats()
        );
        assert!(limiter.len() as u64 <= ROOM);
        assert_eq!(limiter.stats().evicted > KEYS / 2, step > 0);
        assert!(most[1] * 10 <= most[0] * 11, "{policy:?}, {step}: {most:?}");
        assert!(most[1] <= 200 * bytes(ROOM), "{policy:?}, {step}: {most:?} bytes for {ROOM} keys");
        // The allocator's reserve is not counted above.
        assert!(more.is_none_or(|more| more <= 50 * bytes(ROOM)), "{policy:?}, {step}: {more:?} more");
    }
}

//! Scenarios with threads, for `tests/stress.rs` and for the package `verify`: what is run, in which size.

pub mod conservation;
pub mod drain;
pub mod random;
pub mod skewed;
mod target;
pub mod verbs;
pub mod watchdog;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use tollgate::{Builder, RateLimiter};

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For `cargo test`, and for an interpreter of machine code, some fifty times slower.
    Small,
    /// Seconds.
    Quick,
    /// A minute or two.
    Full,
}

impl Size {
    fn choose(self, small: u64, quick: u64, full: u64) -> u64 {
        match self {
            Size::Small => small,
            Size::Quick => quick,
            Size::Full => full,
        }
    }
}

/// Where a limiter has its buckets, and whether it spreads those that are contended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Map,
    Table,
    MapSpread,
    TableSpread,
}

impl Store {
    pub(crate) const ALL: [Store; 4] = [Store::Map, Store::Table, Store::MapSpread, Store::TableSpread];

    /// With room for so many keys; a table has some more.
    pub(crate) fn room<K, S>(self, builder: Builder<K, S>, keys: usize) -> Builder<K, S> {
        match self {
            Store::Map => builder.max_keys(keys),
            Store::Table => builder.inline(keys),
            Store::MapSpread => builder.max_keys(keys).spread_hot(),
            Store::TableSpread => builder.inline(keys).spread_hot(),
        }
    }

    /// Keys that are held then, at most.
    pub(crate) fn places(self, keys: usize) -> usize {
        match self {
            Store::Map | Store::MapSpread => keys,
            Store::Table | Store::TableSpread => keys.div_ceil(6) * 8,
        }
    }
}

/// Runs `work` on so many threads, and sums what they return.
fn together(threads: usize, work: impl Fn(usize) -> u64 + Sync) -> u64 {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|index| scope.spawn(move || work(index))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).sum()
    })
}

/// Says that it is over, even if what it stands beside panics.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Makes what a limiter makes once, by a key that is used for nothing else. ThreadSanitizer does not see into std, and would
/// call a race what a `OnceLock` has ordered.
fn warm(limiter: &RateLimiter<u64>) {
    assert!(limiter.try_acquire(&u64::MAX).is_ok());
}

pub(crate) fn counters(len: usize) -> Vec<AtomicU64> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

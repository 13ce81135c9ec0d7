//! Scenarios with threads, in several sizes, for `tests/stress.rs` and for the package `verify`.

pub mod conservation;
pub mod drain;
pub mod skewed;
pub mod verbs;
pub mod watchdog;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use tollgate::{Builder, Quota, RateLimiter};

/// The length of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For `cargo test`, and for an interpreter of machine code, some fifty times slower.
    Small,
    /// A run of seconds.
    Quick,
    /// A run of a minute or two.
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

/// The store of a limiter's buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Map,
    Table,
}

impl Store {
    pub(crate) const ALL: [Store; 2] = [Store::Map, Store::Table];

    /// Gives the builder room for `keys` keys. A table has room for some more.
    pub(crate) fn room<K, S>(self, builder: Builder<K, Quota, S>, keys: usize) -> Builder<K, Quota, S> {
        match self {
            Store::Map => builder.max_keys(keys),
            Store::Table => builder.max_keys(keys).inline().unwrap(),
        }
    }

    /// Returns the most keys that are held then.
    pub(crate) fn places(self, keys: usize) -> usize {
        match self {
            Store::Map => keys,
            Store::Table => keys.div_ceil(6) * 8,
        }
    }
}

/// Runs `work` on `threads` threads, and sums their results.
fn together(threads: usize, work: impl Fn(usize) -> u64 + Sync) -> u64 {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|index| scope.spawn(move || work(index))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).sum()
    })
}

/// Sets a flag when it is dropped, also by a panic.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Makes a limiter's lazy parts by a key that is used for nothing else. ThreadSanitizer does not
/// see into std, and would report a race on memory that a `OnceLock` has ordered.
fn warm(limiter: &RateLimiter<u64>) {
    assert!(limiter.try_acquire(&u64::MAX).is_ok());
}

pub(crate) fn counters(len: usize) -> Vec<AtomicU64> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

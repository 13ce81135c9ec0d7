//! What is run, in which size, and what all scenarios need.

pub mod conservation;
pub mod drain;
mod target;
pub mod verbs;

use std::sync::atomic::AtomicU64;
use std::thread;

use tollgate::RateLimiter;

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For an interpreter of machine code, some fifty times slower.
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

/// Runs `work` on so many threads, and sums what they return.
fn together(threads: usize, work: impl Fn(usize) -> u64 + Sync) -> u64 {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|index| scope.spawn(move || work(index))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).sum()
    })
}

/// Makes what a limiter makes once, by a key that is used for nothing else. ThreadSanitizer does not see into std, and would
/// call a race what a `OnceLock` has ordered.
fn warm(limiter: &RateLimiter<u64>) {
    assert!(limiter.try_acquire(&u64::MAX).is_ok());
}

fn counters(len: usize) -> Vec<AtomicU64> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

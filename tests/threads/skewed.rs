//! A clock that threads move and disagree about, and that lets other threads go first.
//!
//! Each thread reads one shared time with a skew of its own, as cores with unsynchronised counters
//! do. The reading falls between the load of a bucket's word and its compare-and-swap. So this is
//! also where a thread stumbles: it yields before its reading, or after, when the reading is about
//! to become old.
//!
//! Readings are counted for each thread. A decision on a known bucket reads the clock once, and
//! once more for each race it loses. So readings less decisions are lost races, without a counter
//! in the crate.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use tollgate::Clock;

use tollgate_testing::Random;

/// Readings for each yield of a thread.
const STUMBLES: u64 = 32;

thread_local! {
    static SKEW: Cell<i64> = const { Cell::new(0) };
    static READINGS: Cell<u64> = const { Cell::new(0) };
    static STUMBLE: RefCell<Random> = const { RefCell::new(Random(0)) };
}

/// One time for all threads.
#[derive(Clone, Debug)]
pub struct Skewed(Arc<AtomicU64>);

impl Skewed {
    /// Returns a clock at some reading, which should be above every skew.
    #[must_use]
    pub fn at(nanos: u64) -> Skewed {
        Skewed(Arc::new(AtomicU64::new(nanos)))
    }

    /// Returns the clock as limiters read it.
    #[must_use]
    pub fn clock(&self) -> Clock {
        let shared = Arc::clone(&self.0);
        Clock::from_fn(move || {
            READINGS.set(READINGS.get() + 1);
            let stumble = STUMBLE.with_borrow_mut(|random| random.below(STUMBLES));
            if stumble == 0 {
                thread::yield_now();
            }
            let reading = shared.load(SeqCst).checked_add_signed(SKEW.get());
            if stumble == 1 {
                thread::yield_now();
            }
            Duration::from_nanos(reading.expect("a clock is above every skew"))
        })
    }

    /// Returns the time without any skew.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.0.load(SeqCst)
    }

    /// Moves the time forward.
    pub fn advance(&self, nanos: u64) {
        self.0.fetch_add(nanos, SeqCst);
    }
}

/// Sets the skew of this thread from here on, in nanoseconds, and the pattern of its stumbles.
pub fn set_skew(skew: i64) {
    SKEW.set(skew);
    STUMBLE.set(Random(skew as u64));
}

/// Returns the skew of one of `threads`: evenly spread over `width`, half of them behind and half
/// ahead.
#[must_use]
pub fn spread(width: u64, index: usize, threads: usize) -> i64 {
    let (width, index, last) = (width as i64, index as i64, threads as i64 - 1);
    width * index / last - width / 2
}

/// Returns the number of readings that this thread has taken.
#[must_use]
pub fn readings() -> u64 {
    READINGS.get()
}

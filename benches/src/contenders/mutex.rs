//! The mutex design: a bucket is a level and its time, behind a lock.

use std::ops::Sub;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tollgate::Quota;

use super::bucket::bucket;

bucket! {
    /// One bucket behind `std`'s mutex, on `std`'s clock.
    MutexBucket((Terms, Mutex<Level>)),
    |setup| {
        let terms = Terms::new(setup.quota);
        (terms, Mutex::new(terms.full(Instant::now())))
    },
    |bucket| bucket.0.lock_and_take(&bucket.1)
}

/// The tokens at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level<T = Instant> {
    tokens: f64,
    stamp: T,
}

/// A quota in floating point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    tokens_per_second: f64,
    burst: f64,
}

/// A reading of `std`'s clock or of quanta's.
pub(crate) trait Time: Copy + PartialOrd + Sub<Output = Duration> {}

impl<T: Copy + PartialOrd + Sub<Output = Duration>> Time for T {}

impl Terms {
    pub(crate) fn new(quota: Quota) -> Terms {
        Terms {
            tokens_per_second: quota.tokens() as f64 / quota.period().as_secs_f64(),
            burst: quota.capacity() as f64,
        }
    }

    pub(crate) fn full<T>(&self, now: T) -> Level<T> {
        Level { tokens: self.burst, stamp: now }
    }

    /// Takes a token of a level that the caller has locked.
    pub(crate) fn take<T: Time>(&self, level: &mut Level<T>, now: T) -> bool {
        if now > level.stamp {
            let earned = (now - level.stamp).as_secs_f64() * self.tokens_per_second;
            level.tokens = (level.tokens + earned).min(self.burst);
            level.stamp = now;
        }
        let granted = level.tokens >= 1.0;
        if granted {
            level.tokens -= 1.0;
        }
        granted
    }

    /// Returns whether a new bucket in its place would hold the same tokens.
    pub(crate) fn is_full<T: Time>(&self, level: &Level<T>, now: T) -> bool {
        now >= level.stamp
            && level.tokens + (now - level.stamp).as_secs_f64() * self.tokens_per_second >= self.burst
    }

    pub(crate) fn lock_and_take(&self, bucket: &Mutex<Level>) -> bool {
        // Ahead of the lock, as golang.org/x/time/rate does: 1.1 to 1.3 times as fast as under it.
        // A faster thread may have stamped a later time by then, which must not move back
        // (golang/go#71360).
        let now = Instant::now();
        self.take(&mut bucket.lock().expect("no holder of the lock panics"), now)
    }
}

//! What every contender implements.

use std::hint::black_box;

use tollgate::Quota;

/// One bucket, shared by threads.
pub trait Limiter: Sync {
    /// Its name in reports.
    const NAME: &'static str;

    /// A full bucket.
    fn new(quota: Quota) -> Self;

    /// Takes a token, if there is one.
    fn try_acquire(&self) -> bool;
}

/// One bucket for each key, all of one quota, shared by threads.
pub trait KeyedLimiter: Sync {
    /// Its name in reports.
    const NAME: &'static str;

    /// No keys, but room for `keys` of them.
    fn new(quota: Quota, keys: usize) -> Self;

    /// Takes a token of `key`'s bucket, if there is one. A key's bucket starts full.
    fn try_acquire(&self, key: u64) -> bool;

    /// Takes a token for each of `keys` in turn; how many there were.
    ///
    /// This is the loop that is timed. A contender that can do something once for many decisions overrides it.
    fn count_granted(&self, keys: impl Iterator<Item = u64>) -> u64 {
        // The black box keeps what the limiter holds from being loaded once for all decisions.
        keys.map(|key| u64::from(black_box(self).try_acquire(key))).sum()
    }
}

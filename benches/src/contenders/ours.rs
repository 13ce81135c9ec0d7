//! This crate.

use std::hash::BuildHasher;
use std::hint::black_box;

use tollgate::{Quota, RateLimiter, TokenBucket};

use crate::{KeyedLimiter, Limiter};

impl Limiter for TokenBucket {
    const NAME: &'static str = "tollgate";

    fn new(quota: Quota) -> Self {
        TokenBucket::new(quota)
    }

    fn try_acquire(&self) -> bool {
        self.try_acquire().is_ok()
    }
}

impl<S: BuildHasher + Default + Send + Sync> KeyedLimiter for RateLimiter<u64, S> {
    const NAME: &'static str = "tollgate";

    fn new(quota: Quota, keys: usize) -> Self {
        RateLimiter::<u64, S>::builder(quota).presize(keys).build()
    }

    fn try_acquire(&self, key: u64) -> bool {
        self.try_acquire(&key).is_ok()
    }
}

/// The keyed limiter through a handle that each thread pins once.
pub struct Pinned<S>(RateLimiter<u64, S>);

impl<S: BuildHasher + Default + Send + Sync> KeyedLimiter for Pinned<S> {
    const NAME: &'static str = "tollgate, pinned";

    fn new(quota: Quota, keys: usize) -> Self {
        Pinned(KeyedLimiter::new(quota, keys))
    }

    fn try_acquire(&self, key: u64) -> bool {
        self.0.try_acquire(&key).is_ok()
    }

    fn count_granted(&self, keys: impl Iterator<Item = u64>) -> u64 {
        let pinned = self.0.pin();
        keys.map(|key| u64::from(black_box(&pinned).try_acquire(&key).is_ok())).sum()
    }
}

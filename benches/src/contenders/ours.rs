//! This crate.

use std::hash::{BuildHasher, Hash};
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Duration;

use tollgate::{Clock, RateLimiter, TokenBucket};

use crate::{Limiter, Setup};

impl Limiter<()> for TokenBucket {
    fn new(setup: Setup) -> Self {
        TokenBucket::new(setup.quota)
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        self.try_acquire().is_ok()
    }
}

/// On a clock that a thread keeps, to the millisecond.
pub(crate) struct Coarse(TokenBucket);

impl Limiter<()> for Coarse {
    fn new(setup: Setup) -> Self {
        Coarse(TokenBucket::with_clock(setup.quota, coarse_clock()))
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        self.0.try_acquire().is_ok()
    }
}

/// One for the process.
fn coarse_clock() -> Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(|| Clock::coarse(Duration::from_millis(1))).clone()
}

/// With a reading at hand: one for a batch of decisions.
pub(crate) struct AtReading(TokenBucket);

impl Limiter<()> for AtReading {
    fn new(setup: Setup) -> Self {
        AtReading(TokenBucket::new(setup.quota))
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        self.0.try_acquire_at(self.0.now(), 1).is_ok()
    }

    fn count_granted(&self, keys: &[()]) -> u64 {
        let now = self.0.now();
        keys.iter().map(|()| u64::from(black_box(&self.0).try_acquire_at(now, 1).is_ok())).sum()
    }
}

fn keyed<K: Hash + Eq, S: BuildHasher + Default>(setup: Setup) -> RateLimiter<K, S> {
    let builder = RateLimiter::builder(setup.quota).presize(setup.keys);
    builder.max_keys(setup.keys).build()
}

impl<K, S> Limiter<K> for RateLimiter<K, S>
where
    K: Hash + Eq + Clone + Send + Sync,
    S: BuildHasher + Default + Send + Sync,
{
    fn new(setup: Setup) -> Self {
        keyed(setup)
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        self.try_acquire(key).is_ok()
    }

    fn evict_idle(&self) -> bool {
        self.evict_idle();
        true
    }

    fn keys_held(&self) -> usize {
        self.len()
    }

    fn is_bounded(&self) -> bool {
        true
    }
}

/// The keyed limiter through a handle that each thread pins once for a batch.
pub(crate) struct Pinned<K, S>(RateLimiter<K, S>);

impl<K, S> Limiter<K> for Pinned<K, S>
where
    K: Hash + Eq + Clone + Send + Sync,
    S: BuildHasher + Default + Send + Sync,
{
    fn new(setup: Setup) -> Self {
        Pinned(keyed(setup))
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        self.0.try_acquire(key).is_ok()
    }

    fn count_granted(&self, keys: &[K]) -> u64 {
        let pinned = self.0.pin();
        keys.iter().map(|key| u64::from(black_box(&pinned).try_acquire(key).is_ok())).sum()
    }

    fn evict_idle(&self) -> bool {
        self.0.evict_idle();
        true
    }

    fn keys_held(&self) -> usize {
        self.0.len()
    }

    fn is_bounded(&self) -> bool {
        true
    }
}

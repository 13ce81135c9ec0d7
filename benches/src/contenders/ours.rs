//! This crate.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::time::Duration;

use tollgate::{Clock, RateLimiter, TokenBucket};

use super::Key;
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

/// Spread over the cores, each of which has tokens at hand: a reading of the clock is for a batch of those.
pub(crate) struct Spread(TokenBucket);

impl Limiter<()> for Spread {
    fn new(setup: Setup) -> Self {
        Spread(TokenBucket::new(setup.quota).spread())
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        self.0.try_acquire().is_ok()
    }
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

impl<K, S> Limiter<K> for RateLimiter<K, S>
where
    K: Key,
    S: BuildHasher + Default + Send + Sync,
{
    fn new(setup: Setup) -> Self {
        RateLimiter::builder(setup.quota).presize(setup.keys).max_keys(setup.keys).build()
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

/// The keyed limiter, in another of its stores or asked in another way.
pub(crate) struct Keyed<K, S, W> {
    limiter: RateLimiter<K, S>,
    way: PhantomData<W>,
}

/// One of its stores, and a way to ask.
pub(crate) trait Way<K, S>: Send + Sync {
    fn build(setup: Setup) -> RateLimiter<K, S>;

    fn count_granted(limiter: &RateLimiter<K, S>, keys: &[K]) -> u64;
}

impl<K, S, W> Limiter<K> for Keyed<K, S, W>
where
    K: Key,
    S: BuildHasher + Default + Send + Sync,
    W: Way<K, S>,
{
    fn new(setup: Setup) -> Self {
        Keyed { limiter: W::build(setup), way: PhantomData }
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        self.limiter.try_acquire(key).is_ok()
    }

    fn count_granted(&self, keys: &[K]) -> u64 {
        W::count_granted(&self.limiter, keys)
    }

    fn evict_idle(&self) -> bool {
        self.limiter.evict_idle();
        true
    }

    fn keys_held(&self) -> usize {
        self.limiter.len()
    }

    fn is_bounded(&self) -> bool {
        true
    }
}

/// Through a handle that each thread pins once for a batch.
pub(crate) struct Pinned;

impl<K: Key, S: BuildHasher + Default + Send + Sync> Way<K, S> for Pinned {
    fn build(setup: Setup) -> RateLimiter<K, S> {
        Limiter::new(setup)
    }

    #[inline(always)]
    fn count_granted(limiter: &RateLimiter<K, S>, keys: &[K]) -> u64 {
        let pinned = limiter.pin();
        keys.iter().map(|key| u64::from(black_box(&pinned).try_acquire(key).is_ok())).sum()
    }
}

/// Its buckets in a fixed table.
pub(crate) struct Inline;

impl<K: Key, S: BuildHasher + Default> Way<K, S> for Inline {
    fn build(setup: Setup) -> RateLimiter<K, S> {
        RateLimiter::builder(setup.quota).inline(setup.keys).build()
    }

    #[inline(always)]
    fn count_granted(limiter: &RateLimiter<K, S>, keys: &[K]) -> u64 {
        keys.iter().map(|key| u64::from(black_box(limiter).try_acquire(key).is_ok())).sum()
    }
}

/// Those of its keys that are contended spread over the cores.
pub(crate) struct HotSpread;

impl<K: Key, S: BuildHasher + Default> Way<K, S> for HotSpread {
    fn build(setup: Setup) -> RateLimiter<K, S> {
        RateLimiter::builder(setup.quota).presize(setup.keys).max_keys(setup.keys).spread_hot().build()
    }

    #[inline(always)]
    fn count_granted(limiter: &RateLimiter<K, S>, keys: &[K]) -> u64 {
        <Inline as Way<K, S>>::count_granted(limiter, keys)
    }
}

/// The table, asked for 16 keys at a time: what is asked is put together for each batch, and that is timed.
pub(crate) struct Batches;

/// What a server has at hand after one turn of its loop.
const BATCH: usize = 16;

impl<K: Key, S: BuildHasher + Default> Way<K, S> for Batches {
    fn build(setup: Setup) -> RateLimiter<K, S> {
        <Inline as Way<K, S>>::build(setup)
    }

    #[inline(always)]
    fn count_granted(limiter: &RateLimiter<K, S>, keys: &[K]) -> u64 {
        let granted = |keys: &[K]| {
            let Some(first) = keys.first() else { return 0 };
            let mut asks = [(first, 1); BATCH];
            for (ask, key) in asks.iter_mut().zip(keys) {
                ask.0 = key;
            }
            let decisions = black_box(limiter).try_acquire_batch(&asks[..keys.len()]);
            decisions.map(|decision| u64::from(decision.is_ok())).sum()
        };
        keys.chunks(BATCH).map(granted).sum()
    }
}

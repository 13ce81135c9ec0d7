//! tollgate's forms.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::time::Duration;

use tollgate::{Clock, Quota, RateLimiter, TokenBucket};

use super::bucket::bucket;
use super::key::Key;
use crate::{Limiter, Setup};

/// Name of tollgate in its default form.
pub const OURS: &str = "tollgate";

bucket! {
    /// A bucket in its default form.
    Plain(TokenBucket), |setup| TokenBucket::new(setup.quota), |bucket| bucket.try_acquire().is_ok()
}

bucket! {
    /// A bucket on a clock that a thread keeps, to the millisecond.
    Coarse(TokenBucket),
    |setup| TokenBucket::builder(setup.quota).clock(coarse_clock()).build(), |bucket| bucket.try_acquire().is_ok()
}

/// Returns the one such clock of the process.
fn coarse_clock() -> Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(|| Clock::coarse(Duration::from_millis(1))).clone()
}

bucket! {
    /// A bucket spread over the cores, each of which has tokens at hand. A batch of those takes one
    /// reading of the clock.
    Spread(TokenBucket),
    |setup| TokenBucket::builder(setup.quota).spread().build(), |bucket| bucket.try_acquire().is_ok()
}

/// A bucket with a reading at hand: one for a batch of decisions.
pub(crate) struct AtReading(TokenBucket);

impl Limiter<()> for AtReading {
    fn new(setup: Setup) -> Self {
        AtReading(TokenBucket::new(setup.quota))
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        self.0.ask().at(self.0.now()).try_acquire().is_ok()
    }

    fn count_granted(&self, keys: &[()]) -> u64 {
        let now = self.0.now();
        keys.iter().map(|()| u64::from(black_box(&self.0).ask().at(now).try_acquire().is_ok())).sum()
    }
}

/// The keyed limiter, in one of its stores and asked in one of its ways.
pub(crate) struct Keyed<K, S, W> {
    limiter: RateLimiter<K, Quota, S>,
    way: PhantomData<W>,
}

/// A store and a way to ask. By default that is the map, asked for one key at a time.
pub(crate) trait Way<K: Key, S: BuildHasher + Default + Send + Sync>: Send + Sync {
    fn build(setup: Setup) -> RateLimiter<K, Quota, S> {
        RateLimiter::builder(setup.quota)
            .hasher(S::default())
            .presize(setup.keys)
            .unwrap()
            .max_keys(setup.keys)
            .build()
    }

    #[inline(always)]
    fn count_granted(limiter: &RateLimiter<K, Quota, S>, keys: &[K]) -> u64 {
        keys.iter().map(|key| u64::from(black_box(limiter).try_acquire(key).is_ok())).sum()
    }
}

impl<K: Key, S: BuildHasher + Default + Send + Sync, W: Way<K, S>> Limiter<K> for Keyed<K, S, W> {
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

/// The map.
pub(crate) struct Map;

impl<K: Key, S: BuildHasher + Default + Send + Sync> Way<K, S> for Map {}

/// The map, through a handle that a thread pins once for a batch.
pub(crate) struct Pinned;

impl<K: Key, S: BuildHasher + Default + Send + Sync> Way<K, S> for Pinned {
    #[inline(always)]
    fn count_granted(limiter: &RateLimiter<K, Quota, S>, keys: &[K]) -> u64 {
        let pinned = limiter.pin();
        keys.iter().map(|key| u64::from(black_box(&pinned).try_acquire(key).is_ok())).sum()
    }
}

/// The fixed table.
pub(crate) struct Inline;

impl<K: Key, S: BuildHasher + Default + Send + Sync> Way<K, S> for Inline {
    fn build(setup: Setup) -> RateLimiter<K, Quota, S> {
        RateLimiter::builder(setup.quota).hasher(S::default()).max_keys(setup.keys).inline().unwrap().build()
    }
}

/// The table, asked for 16 keys at a time. The time to put a batch together is timed too.
pub(crate) struct Batches;

/// Keys that a server has at hand after one turn of its loop.
const BATCH: usize = 16;

impl<K: Key, S: BuildHasher + Default + Send + Sync> Way<K, S> for Batches {
    fn build(setup: Setup) -> RateLimiter<K, Quota, S> {
        <Inline as Way<K, S>>::build(setup)
    }

    #[inline(always)]
    fn count_granted(limiter: &RateLimiter<K, Quota, S>, keys: &[K]) -> u64 {
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

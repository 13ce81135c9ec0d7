//! governor: GCRA in one atomic word, keyed ones in a `DashMap`.

use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::time::Duration;

use dashmap::DashMap;
use governor::clock::{DefaultClock, QuantaUpkeepClock};
use governor::state::keyed::DashMapStateStore;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter, middleware, state};

use super::{Key, narrow};
use crate::{Limiter, Setup};

fn quota(setup: Setup) -> Quota {
    // In whole nanoseconds, as its `per_second` has it.
    let token = setup.quota.period() / narrow(setup.quota.tokens());
    let burst = NonZeroU32::new(narrow(setup.quota.capacity())).expect("a burst is not 0");
    Quota::with_period(token).expect("a token takes a nanosecond at least").allow_burst(burst)
}

/// One bucket on its default clock, quanta's.
pub(crate) struct Direct(DefaultDirectRateLimiter);

impl Limiter<()> for Direct {
    fn new(setup: Setup) -> Self {
        Direct(RateLimiter::direct(quota(setup)))
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        self.0.check().is_ok()
    }
}

/// On a clock that a thread keeps, to the millisecond.
pub(crate) struct Upkeep(
    RateLimiter<
        state::NotKeyed,
        state::InMemoryState,
        QuantaUpkeepClock,
        middleware::NoOpMiddleware<<QuantaUpkeepClock as governor::clock::Clock>::Instant>,
    >,
);

impl Limiter<()> for Upkeep {
    fn new(setup: Setup) -> Self {
        Upkeep(RateLimiter::direct_with_clock(quota(setup), upkeep_clock()))
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        self.0.check().is_ok()
    }
}

/// One for the process: quanta refuses a second.
fn upkeep_clock() -> QuantaUpkeepClock {
    static CLOCK: OnceLock<QuantaUpkeepClock> = OnceLock::new();
    let start = || QuantaUpkeepClock::from_interval(Duration::from_millis(1)).expect("a thread can be had");
    CLOCK.get_or_init(start).clone()
}

/// A bucket for each key, in a map that has room for them.
pub(crate) struct Keyed<K: Key, S: BuildHasher + Clone>(
    RateLimiter<K, DashMapStateStore<K, S>, DefaultClock>,
);

impl<K: Key, S: BuildHasher + Default + Clone + Send + Sync> Limiter<K> for Keyed<K, S> {
    fn new(setup: Setup) -> Self {
        let states = DashMap::with_capacity_and_hasher(setup.keys, S::default());
        Keyed(RateLimiter::new(quota(setup), states, DefaultClock::default()))
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        self.0.check_key(key).is_ok()
    }

    fn evict_idle(&self) -> bool {
        self.0.retain_recent();
        // As its guide has it.
        self.0.shrink_to_fit();
        true
    }

    fn keys_held(&self) -> usize {
        self.0.len()
    }
}

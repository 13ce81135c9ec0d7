//! rate-net: better-bucket's buckets, keyed ones in shards behind read-write locks.

use std::sync::OnceLock;
use std::time::Duration;

use rate_net::{Builder, CoarseClock, DEFAULT_MAX_KEYS, DirectLimiter, Eviction, RateLimiter};

use super::{Key, narrow};
use crate::{Limiter, Setup};

fn builder(setup: Setup) -> Builder {
    let quota = setup.quota;
    Builder::new().quota(narrow(quota.tokens()), quota.period()).burst(narrow(quota.capacity()))
}

/// One bucket on its default clock, `std`'s.
pub(crate) struct Direct(DirectLimiter);

impl Limiter<()> for Direct {
    fn new(setup: Setup) -> Self {
        Direct(builder(setup).try_build_direct().expect("nothing of a quota is 0"))
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        self.0.check().is_allow()
    }
}

/// On a clock that a thread keeps, to the millisecond.
pub(crate) struct Coarse(DirectLimiter<CoarseClock>);

impl Limiter<()> for Coarse {
    fn new(setup: Setup) -> Self {
        Coarse(builder(setup).clock(coarse_clock()).try_build_direct().expect("nothing of a quota is 0"))
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        self.0.check().is_allow()
    }
}

/// One for the process, as its documentation has it.
fn coarse_clock() -> CoarseClock {
    static CLOCK: OnceLock<CoarseClock> = OnceLock::new();
    CLOCK.get_or_init(|| CoarseClock::spawn(Duration::from_millis(1)).expect("a thread can be had")).clone()
}

/// A bucket for each key, of which it has the bytes. Its hasher is ahash, and it cannot be told to make room.
pub(crate) struct Keyed(RateLimiter);

fn keyed(setup: Setup, most: usize) -> RateLimiter {
    let builder = builder(setup).eviction(Eviction::capacity(most));
    builder.try_build().expect("nothing of a quota is 0")
}

impl<K: Key> Limiter<K> for Keyed {
    fn new(setup: Setup) -> Self {
        // Keys are spread among shards at random: one is full some time before all are.
        Keyed(keyed(setup, DEFAULT_MAX_KEYS.max(2 * setup.keys)))
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        // `check` would copy the key.
        self.0.check_bytes(key.bytes()).is_allow()
    }

    fn evict_idle(&self) -> bool {
        self.0.retain_recent();
        self.0.shrink_to_fit();
        true
    }

    fn keys_held(&self) -> usize {
        self.0.tracked_keys()
    }
}

/// With a cap that is the number of keys: those that come later evict others, whose debts it keeps elsewhere.
pub(crate) struct Bounded(RateLimiter);

impl Limiter<u64> for Bounded {
    fn new(setup: Setup) -> Self {
        Bounded(keyed(setup, setup.keys))
    }

    #[inline(always)]
    fn try_acquire(&self, key: &u64) -> bool {
        self.0.check_bytes(key.bytes()).is_allow()
    }

    fn keys_held(&self) -> usize {
        self.0.tracked_keys()
    }

    fn is_bounded(&self) -> bool {
        true
    }
}

//! governor: GCRA in one atomic word, keyed ones in a `DashMap`.

use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::time::Duration;

use dashmap::DashMap;
use governor::clock::{Clock, DefaultClock, QuantaUpkeepClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use super::bucket::{bucket, narrow, times};
use super::key::Key;
use crate::{Limiter, Setup};

fn quota(setup: Setup) -> Quota {
    // Whole nanoseconds, as in its `per_second`: it has no faster rate than a token each.
    let token = (setup.quota.period() / narrow(setup.quota.tokens())).max(Duration::from_nanos(1));
    let burst = NonZeroU32::new(narrow(setup.quota.capacity())).expect("a burst is not 0");
    Quota::with_period(token).expect("a token takes a nanosecond at least").allow_burst(burst)
}

type UpkeepMiddleware = NoOpMiddleware<<QuantaUpkeepClock as Clock>::Instant>;
type UpkeepLimiter = RateLimiter<NotKeyed, InMemoryState, QuantaUpkeepClock, UpkeepMiddleware>;

bucket! {
    /// A bucket on its default clock, the one of quanta.
    Direct(DefaultDirectRateLimiter),
    |setup| RateLimiter::direct(quota(setup)), |bucket| bucket.check().is_ok()
}

bucket! {
    /// A bucket on a clock that a thread keeps, to the millisecond.
    Upkeep(UpkeepLimiter),
    |setup| RateLimiter::direct_with_clock(quota(setup), upkeep_clock()), |bucket| bucket.check().is_ok()
}

/// Returns the one such clock of the process: quanta refuses a second.
fn upkeep_clock() -> QuantaUpkeepClock {
    static CLOCK: OnceLock<QuantaUpkeepClock> = OnceLock::new();
    let start = || QuantaUpkeepClock::from_interval(Duration::from_millis(1)).expect("a thread can be had");
    CLOCK.get_or_init(start).clone()
}

/// A bucket for each key, in a map that has room for them, asked for `N` tokens at a time.
pub(crate) struct GovernorKeyed<K: Key, S: BuildHasher + Clone, const N: u32 = 1>(
    RateLimiter<K, DashMapStateStore<K, S>, DefaultClock>,
);

impl<K: Key, S: BuildHasher + Default + Clone + Send + Sync, const N: u32> Limiter<K>
    for GovernorKeyed<K, S, N>
{
    fn new(setup: Setup) -> Self {
        let setup = Setup { quota: times(setup.quota, N.into()), ..setup };
        let states = DashMap::with_capacity_and_hasher(setup.keys, S::default());
        GovernorKeyed(RateLimiter::new(quota(setup), states, DefaultClock::default()))
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        match NonZeroU32::new(N) {
            Some(n) if N > 1 => matches!(self.0.check_key_n(key, n), Ok(Ok(()))),
            _ => self.0.check_key(key).is_ok(),
        }
    }

    fn evict_idle(&self) -> bool {
        self.0.retain_recent();
        // The guide of governor does the same.
        self.0.shrink_to_fit();
        true
    }

    fn keys_held(&self) -> usize {
        self.0.len()
    }
}

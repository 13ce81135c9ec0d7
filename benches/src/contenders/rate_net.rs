//! rate-net: better-bucket's buckets, keyed ones in shards behind read-write locks.

use std::sync::OnceLock;
use std::time::Duration;

use rate_net::{Algorithm, Builder, CoarseClock, DEFAULT_MAX_KEYS, DirectLimiter, Eviction, RateLimiter};

use tollgate::Quota;

use super::bucket::{bucket, narrow};
use super::key::Key;
use crate::{Limiter, Setup};

fn builder(setup: Setup) -> Builder {
    let quota = setup.quota;
    Builder::new().quota(narrow(quota.tokens()), quota.period()).burst(narrow(quota.capacity()))
}

bucket! {
    /// A bucket on its default clock, the one of `std`.
    Direct(DirectLimiter),
    |setup| builder(setup).try_build_direct().expect("nothing of a quota is 0"),
    |bucket| bucket.check().is_allow()
}

bucket! {
    /// A bucket on a clock that a thread keeps, to the millisecond.
    Coarse(DirectLimiter<CoarseClock>),
    |setup| builder(setup).clock(coarse_clock()).try_build_direct().expect("nothing of a quota is 0"),
    |bucket| bucket.check().is_allow()
}

bucket! {
    /// Its counter of this window and the one before, behind a mutex.
    Counter(DirectLimiter),
    |setup| direct(setup, Algorithm::SlidingWindowCounter), |window| window.check().is_allow()
}

bucket! {
    /// Its log of stamps, behind a mutex. It holds 2^16 of them at most: a larger window is a 16th
    /// of the limit in a 16th of the period.
    Log(DirectLimiter),
    |setup| {
        let Setup { quota, keys } = setup;
        let quota = match quota.capacity() {
            0..65_536 => quota,
            limit => Quota::per(limit / 16, quota.period() / 16).burst(limit / 16),
        };
        direct(Setup { quota, keys }, Algorithm::SlidingWindowLog)
    },
    |window| window.check().is_allow()
}

fn direct(setup: Setup, algorithm: Algorithm) -> DirectLimiter {
    builder(setup).algorithm(algorithm).try_build_direct().expect("nothing of a quota is 0")
}

/// Returns the one such clock of the process, as in its documentation.
fn coarse_clock() -> CoarseClock {
    static CLOCK: OnceLock<CoarseClock> = OnceLock::new();
    CLOCK.get_or_init(|| CoarseClock::spawn(Duration::from_millis(1)).expect("a thread can be had")).clone()
}

/// A bucket for the bytes of each key, with ahash as the hasher. It cannot be told to make room.
///
/// If it is bounded, its cap is the number of keys: later keys evict others, whose debts it keeps
/// in other tables.
pub(crate) struct RateNetKeyed<const BOUNDED: bool>(RateLimiter);

impl<K: Key, const BOUNDED: bool> Limiter<K> for RateNetKeyed<BOUNDED> {
    fn new(setup: Setup) -> Self {
        // Keys are spread among shards at random: one is full some time before all are.
        let most = if BOUNDED { setup.keys } else { DEFAULT_MAX_KEYS.max(2 * setup.keys) };
        let builder = builder(setup).eviction(Eviction::capacity(most));
        RateNetKeyed(builder.try_build().expect("nothing of a quota is 0"))
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

    fn is_bounded(&self) -> bool {
        BOUNDED
    }
}

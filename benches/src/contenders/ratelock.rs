//! ratelock: tokens and the time of the last refill, an atomic each.

use ratelock::{Clock, RateLimiter, StdClock};

use super::bucket::{a_second, bucket};
use crate::Setup;

fn bucket<C: Clock>(setup: Setup, clock: C) -> RateLimiter<C> {
    // A rate of 0 would read no clock.
    RateLimiter::with_clock(setup.quota.capacity(), a_second(setup.quota), clock)
}

bucket! {
    /// A bucket on its default clock, the one of `std`.
    OnStd(RateLimiter<StdClock>), |setup| bucket(setup, StdClock), |bucket| bucket.allow()
}

bucket! {
    /// A bucket on tollgate's clock.
    OnQuanta(RateLimiter<RawClock>),
    |setup| bucket(setup, RawClock(quanta::Clock::new())), |bucket| bucket.allow()
}

struct RawClock(quanta::Clock);

impl Clock for RawClock {
    fn now_ns(&self) -> u64 {
        self.0.delta_as_nanos(0, self.0.raw())
    }
}

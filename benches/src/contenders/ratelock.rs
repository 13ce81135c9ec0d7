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
    OnQuanta(RateLimiter<QuantaClock>),
    |setup| bucket(setup, QuantaClock(quanta::Clock::new())), |bucket| bucket.allow()
}

struct QuantaClock(quanta::Clock);

impl Clock for QuantaClock {
    fn now_ns(&self) -> u64 {
        self.0.delta_as_nanos(0, self.0.raw())
    }
}

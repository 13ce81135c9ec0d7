//! ratelimit: tokens and the time of the last refill, an atomic each.

use ratelimit::{Builder, Clock, Ratelimiter, StdClock};

use super::bucket::bucket;
use crate::Setup;

fn bucket<C: Clock>(setup: Setup, clock: C) -> Ratelimiter<C> {
    let (quota, burst) = (setup.quota, setup.quota.capacity());
    let builder = Builder::with_clock(quota.tokens(), clock).period(quota.period());
    builder.max_tokens(burst).initial_available(burst).build().expect("it starts full, not fuller")
}

bucket! {
    /// A bucket on its default clock, the one of `std`.
    OnStd(Ratelimiter), |setup| bucket(setup, StdClock::new()), |bucket| bucket.try_wait().is_ok()
}

bucket! {
    /// A bucket on tollgate's clock.
    OnQuanta(Ratelimiter<QuantaClock>),
    |setup| bucket(setup, QuantaClock::new()), |bucket| bucket.try_wait().is_ok()
}

struct QuantaClock {
    clock: quanta::Clock,
    start: quanta::Instant,
}

impl QuantaClock {
    fn new() -> QuantaClock {
        let clock = quanta::Clock::new();
        QuantaClock { start: clock.now(), clock }
    }
}

impl Clock for QuantaClock {
    fn elapsed(&self) -> std::time::Duration {
        self.clock.now() - self.start
    }
}

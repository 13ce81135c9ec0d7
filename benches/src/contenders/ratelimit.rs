//! ratelimit: tokens and the time of the last refill, an atomic each.

use ratelimit::{Builder, Clock, Ratelimiter, StdClock};

use crate::{Limiter, Setup};

fn bucket<C: Clock>(setup: Setup, clock: C) -> Ratelimiter<C> {
    let (quota, burst) = (setup.quota, setup.quota.capacity());
    let builder = Builder::with_clock(quota.tokens(), clock).period(quota.period());
    builder.max_tokens(burst).initial_available(burst).build().expect("it starts full, not fuller")
}

/// On its default clock, `std`'s.
pub(crate) struct OnStd(Ratelimiter);

impl Limiter<()> for OnStd {
    fn new(setup: Setup) -> Self {
        OnStd(bucket(setup, StdClock::new()))
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        self.0.try_wait().is_ok()
    }
}

/// On the clock that ours has.
pub(crate) struct OnQuanta(Ratelimiter<QuantaClock>);

impl Limiter<()> for OnQuanta {
    fn new(setup: Setup) -> Self {
        OnQuanta(bucket(setup, QuantaClock::new()))
    }

    #[inline(always)]
    fn try_acquire(&self, (): &()) -> bool {
        self.0.try_wait().is_ok()
    }
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

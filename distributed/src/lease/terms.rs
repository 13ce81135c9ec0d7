//! A quota in the forms that a limiter uses.

use std::time::Duration;

use tollgate::Quota;

use super::lease_time::nanos;
use crate::law::spec::{InvalidSpec, Spec};

/// A quota in credits and in floating point, and the bounds of its leases.
#[derive(Debug, PartialEq)]
pub(crate) struct Terms {
    pub(crate) spec: Spec,
    /// Whether they are of a plan.
    pub(crate) is_planned: bool,
    /// The same for a call that takes no debt.
    pub(crate) without_debt: Spec,
    /// The quota of a lease's bucket: the same rate, and room for the burst and the debt.
    pub(crate) lease: Quota,
    /// The time that a lease is for; zero in the exact mode.
    pub(crate) horizon: Duration,
    /// Tokens a nanosecond.
    pub(crate) rate: f64,
    pub(crate) nanos_per_token: f64,
}

impl Terms {
    /// Returns the terms of a quota. The debt is the tokens of one horizon, at most half of the
    /// burst. The horizon is cut to the time that earns the debt. A burst of one token leaves no
    /// horizon: that is the exact mode.
    pub(crate) fn new(quota: Quota, horizon: Duration) -> Result<Terms, InvalidSpec> {
        let rate = quota.tokens() as f64 / quota.period().as_nanos() as f64;
        let debt = ((rate * nanos(horizon) as f64).ceil() as u64).min(quota.capacity() / 2);
        let spec = Spec::new(quota, debt)?;
        let room = quota.capacity() + debt;
        // A burst beyond the bound of the core leaves no room for debt.
        let lease = Quota::try_per(quota.tokens(), quota.period(), room).unwrap_or(quota);
        let horizon = horizon.min(Duration::from_nanos((debt as f64 / rate) as u64));
        Ok(Terms {
            spec,
            is_planned: false,
            without_debt: spec.without_debt(),
            lease,
            horizon,
            rate,
            nanos_per_token: 1.0 / rate,
        })
    }

    pub(crate) fn quota(&self) -> Quota {
        self.spec.quota()
    }

    pub(crate) fn is_leased(&self) -> bool {
        !self.horizon.is_zero()
    }

    /// Returns the nanoseconds that earn `tokens`, rounded up.
    pub(crate) fn time_of(&self, tokens: u64) -> u64 {
        let (of, period) = (u128::from(self.quota().tokens()), self.quota().period().as_nanos());
        u64::try_from((u128::from(tokens) * period).div_ceil(of)).unwrap_or(u64::MAX)
    }

    /// Returns the time that earns `tokens`, by one multiplication: to about one part in 2^52. It
    /// is zero below 0.
    #[inline]
    pub(crate) fn earning(&self, tokens: f64) -> Duration {
        Duration::from_nanos((tokens * self.nanos_per_token) as u64)
    }

    /// Returns the tokens that `time` nanoseconds earn, rounded down.
    pub(crate) fn tokens_in(&self, time: u64) -> u64 {
        let (of, period) = (u128::from(self.quota().tokens()), self.quota().period().as_nanos());
        u64::try_from(u128::from(time) * of / period).unwrap_or(u64::MAX)
    }
}

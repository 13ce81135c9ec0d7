//! A quota in credits.
//!
//! A tick is the time that earns `per_tick` credits, and a token is worth `per_token` of them. Both
//! are whole numbers without a common factor. So a refill is a multiplication, and no rate is
//! rounded. A store that computes in doubles is exact as long as no number exceeds 2^53.

use std::time::Duration;

use tollgate::Quota;

use super::invalid_spec::InvalidSpec;

/// The credits that a double counts exactly.
pub(crate) const MAX_CREDITS: u64 = (1 << 53) - 1;

/// The longest step back of a server's clock that is waited for, in microseconds. A longer one is
/// taken for a new time: a bucket that waited for it would stall.
pub(crate) const MAX_SKEW_US: u64 = 1_000_000;

/// The lengths of a tick, in microseconds. The first one that fits is taken.
const TICKS_US: [u64; 4] = [1, 1_000, 1_000_000, 3_600_000_000];

/// A quota as a store counts it, and how deep leases may go into debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    quota: Quota,
    debt: u64,
    tick_us: u64,
    per_tick: u64,
    per_token: u64,
}

impl Spec {
    /// Returns the quota in credits. Leases may take up to `debt` tokens before they are earned; 0
    /// is a bucket without leases.
    ///
    /// # Errors
    ///
    /// [`InvalidSpec`] if burst and debt are more than 2^53 credits, even with ticks of an hour.
    pub fn new(quota: Quota, debt: u64) -> Result<Spec, InvalidSpec> {
        let mut least = u128::MAX;
        for tick_us in TICKS_US {
            let earned = u128::from(quota.tokens()) * u128::from(tick_us) * 1_000;
            let divisor = gcd(earned, quota.period().as_nanos());
            let (per_tick, per_token) = (earned / divisor, quota.period().as_nanos() / divisor);
            let credits = (u128::from(quota.capacity()) + u128::from(debt)).saturating_mul(per_token);
            if credits <= u128::from(MAX_CREDITS) && per_tick <= u128::from(MAX_CREDITS) {
                let (per_tick, per_token) = (per_tick as u64, per_token as u64);
                return Ok(Spec { quota, debt, tick_us, per_tick, per_token });
            }
            least = least.min(credits.max(per_tick));
        }
        Err(InvalidSpec { quota, debt, credits: least })
    }

    /// Returns the quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the tokens that leases may take before they are earned.
    #[must_use]
    pub fn debt(&self) -> u64 {
        self.debt
    }

    /// Returns the length of a tick, in microseconds.
    #[must_use]
    pub fn tick_us(&self) -> u64 {
        self.tick_us
    }

    /// Returns the credits that a tick earns.
    #[must_use]
    pub fn per_tick(&self) -> u64 {
        self.per_tick
    }

    /// Returns the credits of a token.
    #[must_use]
    pub fn per_token(&self) -> u64 {
        self.per_token
    }

    /// Returns the credits of a full bucket.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.quota.capacity() * self.per_token
    }

    /// Returns the credits of the debt that leases may take.
    #[must_use]
    pub fn debt_credits(&self) -> u64 {
        self.debt * self.per_token
    }

    /// Returns the depth that no charge exceeds, in credits: one burst, where it can be counted.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.capacity().min(MAX_CREDITS - self.capacity()).max(self.debt_credits())
    }

    /// Returns the ticks in which a bucket fills from its floor.
    #[must_use]
    pub fn fill_ticks(&self) -> u64 {
        (self.capacity() + self.floor()).div_ceil(self.per_tick)
    }

    /// Returns the whole tokens of a level, and 0 in debt.
    #[must_use]
    pub fn tokens(&self, credits: i64) -> u64 {
        u64::try_from(credits).unwrap_or(0) / self.per_token
    }

    /// Returns the time until a level has risen to `credits`; zero if it is there.
    #[must_use]
    pub fn wait(&self, from: i64, to: i64) -> Duration {
        let missing = u64::try_from(to.saturating_sub(from)).unwrap_or(0);
        let ticks = missing.div_ceil(self.per_tick);
        Duration::from_nanos(ticks.saturating_mul(self.tick_us).saturating_mul(1_000))
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

//! A quota in credits.
//!
//! A tick earns `per_tick` credits, and a token is worth `per_token` of them. Both are whole
//! numbers without a common factor. So a refill is a multiplication, and no rate is rounded. A
//! store that computes in doubles is exact while no number exceeds 2^53.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use tollgate::{AnyRule, Quota, Window};

/// The largest number of credits: a double counts up to it exactly.
pub(crate) const MAX_CREDITS: u64 = (1 << 53) - 1;

/// The longest step back of a server's clock after which a bucket waits, in microseconds. After a
/// longer one it refills from the new time: else it would stall for that long.
pub(crate) const MAX_SKEW_US: u64 = 1_000_000;

/// The possible lengths of a tick, in microseconds. A spec has the first one that fits.
const TICKS_US: [u64; 4] = [1, 1_000, 1_000_000, 3_600_000_000];

/// A quota in credits, and the debt that leases may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    quota: Quota,
    debt: u64,
    tick_us: u64,
    per_tick: u64,
    per_token: u64,
}

/// A rule that a store cannot count: a quota whose bucket needs 2^53 credits or more, or that is no
/// rate, or a window that is weighted or blocked, or one of a plan that is not the limiter's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSpec {
    rule: AnyRule,
    debt: u64,
    credits: u128,
    /// The rule of the limiter, of which the rule is no plan.
    own: Option<AnyRule>,
}

impl InvalidSpec {
    /// Returns the error of a window that a store cannot count.
    pub(crate) fn of_window(window: Window) -> InvalidSpec {
        InvalidSpec { rule: window.into(), debt: 0, credits: 0, own: None }
    }

    /// Returns the error of a plan that is not of the limiter's kind, or another window.
    pub(crate) fn of_plan(plan: AnyRule, own: AnyRule) -> InvalidSpec {
        InvalidSpec { rule: plan, debt: 0, credits: 0, own: Some(own) }
    }
}

impl Spec {
    /// Returns a quota in credits. Leases may take up to `debt` tokens before they are earned; 0 is
    /// for a bucket without leases.
    ///
    /// # Errors
    ///
    /// [`InvalidSpec`] if burst and debt, or a tick, are 2^53 credits or more, even with ticks of
    /// an hour; and for [`Quota::UNLIMITED`] and [`Quota::BLOCKED`], which are no rate.
    pub fn new(quota: Quota, debt: u64) -> Result<Spec, InvalidSpec> {
        if let Quota::UNLIMITED | Quota::BLOCKED = quota {
            return Err(InvalidSpec { rule: quota.into(), debt, credits: 0, own: None });
        }
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
        Err(InvalidSpec { rule: quota.into(), debt, credits: least, own: None })
    }

    /// Returns the spec of a call that takes no debt, in the same credits. Its floor is the same if
    /// the debt is at most the burst.
    pub(crate) fn without_debt(self) -> Spec {
        Spec { debt: 0, ..self }
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

    /// Returns the deepest debt, in credits: one burst, or less if 2^53 credits are not enough.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.capacity().min(MAX_CREDITS - self.capacity()).max(self.debt_credits())
    }

    /// Returns the ticks in which a bucket fills from its deepest debt.
    #[must_use]
    pub fn fill_ticks(&self) -> u64 {
        (self.capacity() + self.floor()).div_ceil(self.per_tick)
    }

    /// Returns the whole tokens of a level, and 0 in debt.
    #[must_use]
    pub fn tokens(&self, credits: i64) -> u64 {
        u64::try_from(credits).unwrap_or(0) / self.per_token
    }

    /// Returns the time until a level rises from `from` to `to` credits; zero if it is there.
    #[must_use]
    pub fn wait(&self, from: i64, to: i64) -> Duration {
        let missing = u64::try_from(to.saturating_sub(from)).unwrap_or(0);
        let ticks = missing.div_ceil(self.per_tick);
        Duration::from_nanos(ticks.saturating_mul(self.tick_us).saturating_mul(1_000))
    }
}

impl fmt::Display for InvalidSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(own) = self.own {
            return write!(
                f,
                "a plan of {} shares no count with {own}: only the limit may differ",
                self.rule
            );
        }
        match self.rule {
            AnyRule::Quota(quota) if self.credits == 0 => {
                return write!(f, "a store counts the tokens of a rate, and {quota} is none");
            }
            AnyRule::Window(window) => {
                return write!(
                    f,
                    "a store counts fixed and sliding windows with a limit, and {window} is none"
                );
            }
            AnyRule::Quota(quota) => write!(f, "a quota of {quota} ")?,
        }
        if self.debt > 0 {
            write!(f, "with a debt of {} tokens ", self.debt)?;
        }
        write!(f, "needs {} credits, and a store counts to {MAX_CREDITS}", self.credits)
    }
}

impl Error for InvalidSpec {}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

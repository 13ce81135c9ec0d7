//! A rule in the forms that a limiter uses.

use std::time::Duration;

use tollgate::{AnyRule, Quota, Window};

use super::gate::Gate;
use super::lease_time::nanos;
use crate::law::count_spec::CountSpec;
use crate::law::spec::{InvalidSpec, Spec};

/// The shortest time for which a lease is worth a call.
pub(crate) const LEAST_LEASE: Duration = Duration::from_millis(10);

/// The leases that a limiter takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leasing {
    /// The time that a lease is for; zero in the exact mode.
    pub(crate) horizon: Duration,
    /// The fewest tokens of a lease, at least 1.
    pub(crate) least: u64,
}

/// A rule in credits and in floating point, and the bounds of its leases.
///
/// Those of a limiter whose rule is open or shut have the numbers of its last rule that a store
/// counts: tokens that come back, and those that are spent, go there by these.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Terms {
    /// The rule that is counted.
    pub(crate) rule: AnyRule,
    pub(crate) kind: TermsKind,
    pub(crate) role: Role,
    /// The time that a lease is for; zero in the exact mode.
    pub(crate) horizon: Duration,
    /// The demand of a horizon from which on a lease is taken, in tokens.
    pub(crate) least: f64,
    /// The burst of a quota, or the limit of a window.
    pub(crate) capacity: u64,
    /// Tokens a nanosecond.
    pub(crate) rate: f64,
    pub(crate) nanos_per_token: f64,
}

/// The requests that terms are for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Role {
    /// Those without a plan.
    Own,
    /// Those under a plan.
    SharedPlan,
    /// Refunds and charges, while the rule of the limiter is open or shut.
    OwnGate,
    /// None: a plan is open or shut. No slot has them.
    PlanGate,
}

/// The part of the terms that depends on the law.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TermsKind {
    Bucket(BucketTerms),
    Window(Window),
}

/// A quota in credits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BucketTerms {
    pub(crate) spec: Spec,
    /// The same for a call that takes no debt.
    pub(crate) without_debt: Spec,
    /// The quota of a lease's bucket: the same rate, and room for the burst and the debt.
    pub(crate) lease: Quota,
}

impl Terms {
    /// Returns the terms of a rule.
    ///
    /// The debt of a quota is the tokens of one horizon, at most half of the burst. The horizon is
    /// cut to the time that earns the debt. A burst of one token leaves no horizon: that is the
    /// exact mode. The tokens of a window's lease end with it, so its horizon is at most a fourth
    /// of the window or sub-window. A shorter one than the least is none.
    pub(crate) fn new(rule: AnyRule, leasing: Leasing) -> Result<Terms, InvalidSpec> {
        let Leasing { horizon, least } = leasing;
        let rate = rule.tokens() as f64 / rule.period().as_nanos() as f64;
        let (kind, horizon) = match rule {
            AnyRule::Quota(quota) => {
                let debt = ((rate * nanos(horizon) as f64).ceil() as u64).min(quota.capacity() / 2);
                let spec = Spec::new(quota, debt)?;
                let room = quota.capacity() + debt;
                // A burst beyond the bound of the core leaves no room for debt.
                let lease = quota.try_burst(room).unwrap_or(quota);
                let horizon = horizon.min(Duration::from_nanos((debt as f64 / rate) as u64));
                let without_debt = spec.without_debt();
                (TermsKind::Bucket(BucketTerms { spec, without_debt, lease }), horizon)
            }
            AnyRule::Window(window) => {
                // Whether a store can count it does not depend on the time.
                CountSpec::new(window, Duration::ZERO)?;
                let most = window.sub_window().unwrap_or(window.period()) / 4;
                let horizon = if most < LEAST_LEASE { Duration::ZERO } else { horizon.min(most) };
                (TermsKind::Window(window), horizon)
            }
        };
        Ok(Terms {
            rule,
            kind,
            role: Role::Own,
            horizon,
            least: least as f64,
            capacity: rule.capacity(),
            rate,
            nanos_per_token: 1.0 / rate,
        })
    }

    /// Returns the terms of a limiter by a rule. A rule that is open or shut has the numbers of
    /// those before it.
    pub(crate) fn of_limiter(
        rule: AnyRule,
        leasing: Leasing,
        before: Option<&Terms>,
    ) -> Result<Terms, InvalidSpec> {
        match (Gate::of(rule), before) {
            (Gate::Counted, _) => Terms::new(rule, leasing),
            (_, Some(before)) => Ok(before.as_role(Role::OwnGate)),
            (_, None) => Ok(Terms::new(Gate::usual(rule), leasing)?.as_role(Role::OwnGate)),
        }
    }

    /// Returns the terms for other requests.
    pub(crate) fn as_role(&self, role: Role) -> Terms {
        Terms { role, ..self.clone() }
    }

    /// Returns the debt that leases may take, in tokens. That of a window is 0.
    pub(crate) fn debt(&self) -> u64 {
        match &self.kind {
            TermsKind::Bucket(terms) => terms.spec.debt(),
            TermsKind::Window(_) => 0,
        }
    }

    /// Returns the window, if the rule is one.
    pub(crate) fn window(&self) -> Option<Window> {
        match self.kind {
            TermsKind::Bucket(_) => None,
            TermsKind::Window(window) => Some(window),
        }
    }

    pub(crate) fn is_leased(&self) -> bool {
        !self.horizon.is_zero()
    }

    /// Returns the nanoseconds that earn `tokens`, rounded up.
    pub(crate) fn time_of(&self, tokens: u64) -> u64 {
        let (of, period) = (u128::from(self.rule.tokens()), self.rule.period().as_nanos());
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
        let (of, period) = (u128::from(self.rule.tokens()), self.rule.period().as_nanos());
        u64::try_from(u128::from(time) * of / period).unwrap_or(u64::MAX)
    }
}

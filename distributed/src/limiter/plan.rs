//! Another rule for some keys.

use std::fmt;
use std::sync::Arc;

use papaya::HashMap;
use tollgate::{AnyRule, Quota};

use super::shared_rule::SharedRule;
use crate::law::spec::InvalidSpec;
use crate::lease::gate::Gate;
use crate::lease::terms::{Leasing, Role, Terms};

/// Another rule for some keys of a limiter, from
/// [`DistributedLimiter::plan`](crate::DistributedLimiter::plan).
///
/// A plan of [`Quota::UNLIMITED`] grants each request, and one of [`Quota::BLOCKED`] or of a window
/// that is [blocked](tollgate::Window::blocked) none. The store is not asked, and counts neither.
///
/// A key that changes its plan keeps its whole tokens, up to the new burst; under a window it keeps
/// its count. Its lease under the old plan is given back at each change.
#[derive(Clone)]
pub struct SharedPlan<R = Quota> {
    pub(crate) terms: Arc<Terms>,
    pub(crate) gate: Gate,
    rule: R,
}

impl<R: SharedRule> SharedPlan<R> {
    /// Returns the plan of a rule that is open or shut. Refunds and charges go by the terms of the
    /// limiter.
    pub(crate) fn of_gate(gate: Gate, rule: R, own: &Terms) -> SharedPlan<R> {
        SharedPlan { gate, rule, terms: Arc::new(own.as_role(Role::PlanGate)) }
    }

    /// Returns the rule.
    #[must_use]
    pub fn rule(&self) -> R {
        self.rule
    }
}

impl<R> fmt::Debug for SharedPlan<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPlan").field("gate", &self.gate).field("rule", &self.terms.rule).finish()
    }
}

/// The most plans that are kept. The next one drops all of them: a plan in use keeps its rule.
const MAX_PLANS: usize = 256;

/// The terms of plans, by their rules.
pub(crate) struct Plans(HashMap<AnyRule, Arc<Terms>>);

impl Plans {
    pub(crate) fn new() -> Plans {
        Plans(HashMap::new())
    }

    /// Returns the plan of a rule, which is computed once while it is kept.
    pub(crate) fn of<R: SharedRule>(&self, rule: R, leasing: Leasing) -> Result<SharedPlan<R>, InvalidSpec> {
        let (plans, any) = (self.0.pin(), rule.into());
        if let Some(terms) = plans.get(&any) {
            return Ok(SharedPlan { terms: terms.clone(), gate: Gate::Counted, rule });
        }
        let terms = Arc::new(Terms::new(any, leasing)?.as_role(Role::SharedPlan));
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.insert(any, terms.clone());
        Ok(SharedPlan { terms, gate: Gate::Counted, rule })
    }
}

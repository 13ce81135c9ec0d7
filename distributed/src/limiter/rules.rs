//! The rule of a limiter, its plans, and the terms of a request.

use std::any::Any;
use std::hash::Hash;
use std::sync::{Arc, MutexGuard, PoisonError};

use tollgate::AnyRule;

use super::distributed_limiter::{DistributedLimiter, Inner};
use super::plan::SharedPlan;
use super::report::Report;
use super::shared_rule::SharedRule;
use crate::key::StoreKey;
use crate::law::spec::InvalidSpec;
use crate::lease::gate::Gate;
use crate::lease::terms::{Role, Terms};
use crate::store::op::Store;

impl<K, S, R> DistributedLimiter<K, S, R>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
    R: SharedRule,
{
    /// Returns the rule in force.
    #[must_use]
    pub fn rule(&self) -> R {
        self.inner.rule().0
    }

    /// Sets the rule of all keys without a plan, in this process.
    ///
    /// Call it in each process of the fleet. While processes have different rules, a bucket keeps
    /// its whole tokens at each change from one to the other, and a window its count. A window of
    /// another period or with other edges takes the whole count into its present window. Tokens at
    /// hand are given back. The spent tokens of a key and its tokens of an outage stay as they are.
    ///
    /// [`Quota::UNLIMITED`](tollgate::Quota::UNLIMITED) ends the limit. A pause of all keys, under
    /// whatever plan, is [`Quota::BLOCKED`](tollgate::Quota::BLOCKED), or a window that is
    /// [blocked](tollgate::Window::blocked). The store is not asked meanwhile, and its buckets earn
    /// by the rate that was set last.
    ///
    /// # Errors
    ///
    /// [`InvalidSpec`] if a store cannot count the rule.
    pub fn set_rule(&self, rule: R) -> Result<(), InvalidSpec> {
        let gate = Gate::of(rule.into());
        {
            let mut own = self.inner.rule();
            let terms = Terms::of_limiter(rule.into(), self.inner.leasing, Some(&own.1))?;
            *own = (rule, Arc::new(terms));
        }
        let slots = self.inner.slots.map.pin();
        for (key, slot) in &slots {
            // A pause is one of the keys under plans, too.
            if slot.terms.role != Role::SharedPlan || gate == Gate::Shut {
                self.inner.replace(key.clone(), slot, None);
            }
        }
        Ok(())
    }

    /// Returns a plan: another rule, for some of the keys.
    ///
    /// All plans of a key share its bucket, or its count: a plan of a window is the window of the
    /// limiter with another limit.
    ///
    /// # Errors
    ///
    /// [`InvalidSpec`] if a store cannot count the rule, or if it is a window of another period, of
    /// another kind or with other edges.
    pub fn plan(&self, rule: R) -> Result<SharedPlan<R>, InvalidSpec> {
        let own = self.inner.terms();
        if let (AnyRule::Window(plan), AnyRule::Window(window)) = (rule.into(), own.rule)
            && plan.with_limit(window.limit()) != Ok(window)
        {
            return Err(InvalidSpec::of_plan(rule.into(), own.rule));
        }
        match Gate::of(rule.into()) {
            Gate::Counted => self.inner.plans.of(rule, self.inner.leasing),
            gate => Ok(SharedPlan::of_gate(gate, rule, &own)),
        }
    }

    /// Returns the plan of a rule of any kind. If it shares no count with the limiter, that is
    /// reported once, and the rule of the limiter decides.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "a layer has plans of any kind"))]
    pub(crate) fn plan_of_any(&self, rule: AnyRule) -> Option<SharedPlan<R>> {
        let own = self.inner.terms();
        let plan = match (Gate::of(rule), of_kind(rule)) {
            (Gate::Counted, Some(rule)) => self.plan(rule),
            (Gate::Counted, None) => Err(InvalidSpec::of_plan(rule, own.rule)),
            (gate, _) => Ok(SharedPlan::of_gate(gate, self.rule(), &own)),
        };
        plan.inspect_err(|why| self.inner.shared.report(Report::SharedPlan, format_args!("{why}"))).ok()
    }
}

/// Returns a rule as one of the kind of a limiter.
fn of_kind<R: SharedRule>(rule: AnyRule) -> Option<R> {
    let rule: &dyn Any = match &rule {
        AnyRule::Quota(quota) => quota,
        AnyRule::Window(window) => window,
    };
    rule.downcast_ref().copied()
}

impl<K, S, R: SharedRule> Inner<K, S, R> {
    fn rule(&self) -> MutexGuard<'_, (R, Arc<Terms>)> {
        self.rule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn terms(&self) -> Arc<Terms> {
        self.rule().1.clone()
    }

    /// Returns the gate of requests under a plan. A limiter that is shut is so for all of them.
    pub(crate) fn gate_under(&self, plan: Option<&SharedPlan<R>>) -> Gate {
        match (Gate::of(self.rule().0.into()), plan) {
            (Gate::Open | Gate::Counted, Some(plan)) => plan.gate,
            (own, _) => own,
        }
    }

    /// Returns the terms of a plan, or those of the limiter if the plan has none in force.
    pub(crate) fn terms_under(&self, plan: Option<&SharedPlan<R>>) -> Arc<Terms> {
        match plan {
            Some(plan) if self.gate_under(Some(plan)) == Gate::Counted => plan.terms.clone(),
            _ => self.terms(),
        }
    }
}

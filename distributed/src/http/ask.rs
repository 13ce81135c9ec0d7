//! The interface of a shared limiter to a layer.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{AnyRule, Clock, Denied, Granted, Stats};
use tollgate_http::{Answer, AnswersFuture, AnyLimiter, LayerLimiter, LayerPlan, LayerRequest, Question};

use crate::key::StoreKey;
use crate::limiter::all_of::{Request, ask_slots};
use crate::limiter::distributed_limiter::{DistributedLimiter, Next};
use crate::limiter::plan::SharedPlan;
use crate::limiter::shared::SharedDecision;
use crate::limiter::shared_rule::SharedRule;
use crate::limiter::slot::Slot;
use crate::limiter::sourced::Sourced;
use crate::store::op::Store;

fn without_source(decision: SharedDecision) -> Result<Granted, Denied> {
    decision.map(Sourced::into_inner).map_err(Sourced::into_inner)
}

/// Asks for requests of a layer whose tokens are not at hand.
fn ask(asked: Vec<(Request, Arc<Slot>)>) -> AnswersFuture {
    Box::pin(async {
        let granted = ask_slots(asked).await;
        let granted = granted.map_err(|denied| (denied.which(), denied.denied()))?;
        Ok(granted.into_iter().map(Sourced::into_inner).collect())
    })
}

/// A layer takes of the limiter for each request; see
/// [`AnyLimiter::of`](tollgate_http::AnyLimiter::of).
///
/// The bucket of requests without a key is stored under the bare name of the limiter. The limit [in
/// front](crate::DistributedBuilder::local_first) does not apply to them.
///
/// All enforced limits of a request whose tokens are not at hand are one question, as to
/// [`ask_all_of`](crate::ask_all_of): one round trip for those on one handle of a store.
impl<K, S, R> LayerLimiter<K> for DistributedLimiter<K, S, R>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
    R: SharedRule,
{
    fn id(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    fn rule(&self, plan: Option<&LayerPlan>) -> AnyRule {
        let own = self.rule().into();
        plan.filter(|plan| self.plan_of_any(plan.rule()).is_some()).map_or(own, LayerPlan::rule)
    }

    fn clock(&self) -> Clock {
        self.inner.shared.clock.clone()
    }

    /// Counts the keys, and as `shared` the requests of keys without room. The other counts are 0:
    /// the limiter evicts no key. All of its counts are in
    /// [`stats`](DistributedLimiter::stats).
    fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        let own = self.stats();
        (stats.keys, stats.shared) = (own.keys, own.without_room);
        stats
    }

    fn take(&self, request: LayerRequest<'_, K>) -> Answer {
        let n = request.n;
        let plan = request.plan.and_then(|plan| self.plan_of_any(plan.rule()));
        match self.at_hand(request.key, n, plan.as_ref()) {
            Next::Decided(decision) => Answer::Now(without_source(decision)),
            Next::Ask(slot) => {
                let request = self.request_of(request.key.cloned(), n, plan);
                Answer::Together(Question::new((request, slot), ask))
            }
        }
    }

    fn refund(&self, request: LayerRequest<'_, K>) {
        let plan = request.plan.and_then(|plan| self.plan_of_any(plan.rule()));
        self.give_back(request.key, request.n, plan.as_ref());
    }

    fn charge(&self, request: LayerRequest<'_, K>) {
        let plan = request.plan.and_then(|plan| self.plan_of_any(plan.rule()));
        self.take_spent(request.key, request.n, plan.as_ref());
    }

    fn peek(&self, request: LayerRequest<'_, K>) -> Granted {
        let rule = LayerLimiter::rule(self, request.plan);
        let capacity = rule.capacity();
        let known = self.look(request.key, rule);
        let is_full = known.remaining() >= capacity;
        let reset = if is_full { Duration::ZERO } else { known.reset_after() };
        Granted::from_parts(0, known.remaining().min(capacity), reset)
    }
}

/// A shared limiter, for a layer. The [documentation of the crate](crate#in-a-layer) has a program.
impl<K, S, R> From<DistributedLimiter<K, S, R>> for AnyLimiter<K>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
    R: SharedRule,
{
    fn from(limiter: DistributedLimiter<K, S, R>) -> AnyLimiter<K> {
        AnyLimiter::of(limiter)
    }
}

/// A plan for the closure of [`LimitBy::plan`](tollgate_http::LimitBy::plan).
impl<R: SharedRule> From<SharedPlan<R>> for LayerPlan {
    fn from(plan: SharedPlan<R>) -> LayerPlan {
        let rule: AnyRule = plan.rule().into();
        rule.into()
    }
}

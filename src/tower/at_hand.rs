//! The limiters of this crate in a layer, with their rule and their hasher erased.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::limiter::{Answer, AnyLimiter, HasLine, LayerLimiter, LayerPlan, LayerRequest};
use crate::keyed::keyspace::Stats;
use crate::limiter::all_of::Tokens;
use crate::limiter::decided::DecidedLimit;
use crate::limiter::place::Place;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::rule::{Rule, earns};
use crate::rule::any_rule::AnyRule;
use crate::time::clock::Clock;
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::plan::PlanTerms;

impl<K, R, S> From<RateLimiter<K, R, S>> for AnyLimiter<K>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    R: Rule + Into<AnyRule>,
    S: BuildHasher + Send + Sync + 'static,
{
    fn from(limiter: RateLimiter<K, R, S>) -> AnyLimiter<K> {
        Arc::new(limiter).into()
    }
}

impl<K, R, S> From<Arc<RateLimiter<K, R, S>>> for AnyLimiter<K>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    R: Rule + Into<AnyRule>,
    S: BuildHasher + Send + Sync + 'static,
{
    fn from(limiter: Arc<RateLimiter<K, R, S>>) -> AnyLimiter<K> {
        AnyLimiter { limiter: limiter.clone(), line: Some(limiter) }
    }
}

/// Returns the refusal of a plan of a limiter of another crate.
#[cold]
fn foreign_plan(n: u64) -> Denied {
    Denied::from_parts(Reason::ForeignPlan, n, 0, None)
}

/// Returns the plan of a request, or its refusal if the plan is of a limiter of another crate.
fn plan_of<'a, K>(request: &LayerRequest<'a, K>) -> Result<Option<&'a PlanTerms>, Denied> {
    let compiled = |plan: &'a LayerPlan| plan.compiled().ok_or_else(|| foreign_plan(request.n));
    request.plan.map(compiled).transpose()
}

impl<K, R, S> LayerLimiter<K> for RateLimiter<K, R, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    R: Rule + Into<AnyRule>,
    S: BuildHasher + Send + Sync + 'static,
{
    fn id(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    fn rule(&self, plan: Option<&LayerPlan>) -> AnyRule {
        let source = &self.inner.keyspace.engine.source;
        let plan = plan.and_then(LayerPlan::compiled);
        plan.map_or_else(|| self.rule(), |plan| R::under(self.built, plan, source)).into()
    }

    fn clock(&self) -> Clock {
        self.inner.keyspace.engine.clock.clone()
    }

    fn stats(&self) -> Stats {
        self.stats()
    }

    #[inline]
    fn take(&self, request: LayerRequest<'_, K>) -> Answer {
        let LayerRequest { key, plan, n } = request;
        Answer::Now(match (key, plan.map(LayerPlan::compiled)) {
            (Some(key), None) => self.try_acquire_n(key, n),
            (Some(key), Some(Some(plan))) => self.key(key).n(n).under_terms(Some(plan)).try_acquire(),
            (Some(_), Some(None)) => Err(foreign_plan(n)),
            (None, _) => self.shared().n(n).try_acquire(),
        })
    }

    fn refund(&self, request: LayerRequest<'_, K>) {
        let LayerRequest { key, n, .. } = request;
        match (key, plan_of(&request)) {
            (None, _) => self.shared().n(n).refund(),
            (Some(key), plan) => self.key(key).n(n).under_terms(plan.ok().flatten()).refund(),
        }
    }

    fn charge(&self, request: LayerRequest<'_, K>) {
        let LayerRequest { key, n, .. } = request;
        // A hold of no token gives a forgotten key an entry.
        let hold = match key {
            None => self.shared().n(0).hold(),
            Some(key) => self.key(key).n(0).under_terms(plan_of(&request).ok().flatten()).hold(),
        };
        let _ = hold.map(|hold| hold.settle(n));
    }

    fn peek(&self, request: LayerRequest<'_, K>) -> Granted {
        let plan = plan_of(&request).ok().flatten();
        match request.key {
            None => self.shared().peek().content(),
            Some(key) => self.key(key).under_terms(plan).peek().content(),
        }
    }

    fn contains(&self, key: &K) -> bool {
        self.contains(key)
    }

    fn is_at_hand(&self) -> bool {
        true
    }

    fn with_tokens(&self, request: LayerRequest<'_, K>, then: &mut dyn FnMut(&dyn Tokens)) {
        let LayerRequest { key, n, .. } = request;
        match (key, plan_of(&request)) {
            (_, Err(denied)) => then(&DecidedLimit { decision: Err(denied), clock: &self.clock() }),
            (None, _) => then(&self.shared().n(n)),
            (Some(key), Ok(plan)) => then(&self.key(key).n(n).under_terms(plan)),
        }
    }
}

impl<K, R, S> HasLine<K> for RateLimiter<K, R, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    R: Rule + Into<AnyRule>,
    S: BuildHasher + Send + Sync + 'static,
{
    fn place(&self, request: LayerRequest<'_, K>, wait: (u64, usize)) -> Result<(Granted, Place), Denied> {
        let LayerRequest { key, n, .. } = request;
        let plan = plan_of(&request)?;
        match key {
            Some(key) if !earns::<R>() => self.place_now(key, plan, n),
            // A window has no tokens to come, and all requests without a key have one line.
            None if !earns::<R>() => self.place_of(None, None, n, (0, 0)),
            None => self.place_of(None, None, n, (wait.0, usize::MAX)),
            key => self.place_of(key, plan, n, wait),
        }
    }
}

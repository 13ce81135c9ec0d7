//! The limiters of this crate in a layer, with their rule and their hasher erased.

use std::any::Any;
use std::future::ready;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use tollgate::{AnyRule, Clock, Denied, Granted, Plan, Quota, RateLimiter, Reason, Rule, Stats, Tokens};

use super::limiter::{
    Answer, AnswerFuture, AnyLimiter, HasLine, LayerLimiter, LayerPlan, LayerRequest, Sleep,
};

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

/// Returns the refusal of a plan that is not of the limiter's rule.
#[cold]
fn foreign_plan(n: u64) -> Denied {
    Denied::from_parts(Reason::ForeignPlan, n, 0, None)
}

/// Returns the plan of a request, or its refusal if the plan is not of the limiter's rule.
fn plan_of<'a, K, R: Rule>(request: &LayerRequest<'a, K>) -> Result<Option<&'a Plan<R>>, Denied> {
    let compiled = |plan: &'a LayerPlan| plan.of().ok_or_else(|| foreign_plan(request.n));
    request.plan.map(compiled).transpose()
}

impl<K, R, S> LayerLimiter<K> for RateLimiter<K, R, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    R: Rule + Into<AnyRule>,
    S: BuildHasher + Send + Sync + 'static,
{
    fn id(&self) -> usize {
        self.id()
    }

    fn rule(&self, plan: Option<&LayerPlan>) -> AnyRule {
        let plan = plan.and_then(LayerPlan::of);
        plan.map_or_else(|| self.rule(), |plan| self.rule_under(plan)).into()
    }

    fn clock(&self) -> Clock {
        self.clock()
    }

    fn stats(&self) -> Stats {
        self.stats()
    }

    #[inline]
    fn take(&self, request: LayerRequest<'_, K>) -> Answer {
        let LayerRequest { key, plan, n } = request;
        Answer::Now(match (key, plan.map(LayerPlan::of::<R>)) {
            (Some(key), None) => self.try_acquire_n(key, n),
            (Some(key), Some(Some(plan))) => self.key(key).n(n).under(plan).try_acquire(),
            (Some(_), Some(None)) => Err(foreign_plan(n)),
            (None, _) => self.shared().n(n).try_acquire(),
        })
    }

    fn refund(&self, request: LayerRequest<'_, K>) {
        let LayerRequest { key, n, .. } = request;
        match key {
            None => self.shared().n(n).refund(),
            Some(key) => self.key(key).n(n).under(plan_of(&request).ok().flatten()).refund(),
        }
    }

    fn charge(&self, request: LayerRequest<'_, K>) {
        let LayerRequest { key, n, .. } = request;
        // A hold of no token gives a forgotten key an entry.
        let hold = match key {
            None => self.shared().n(0).hold(),
            Some(key) => self.key(key).n(0).under(plan_of(&request).ok().flatten()).hold(),
        };
        let _ = hold.map(|hold| hold.settle(n));
    }

    fn peek(&self, request: LayerRequest<'_, K>) -> Granted {
        match request.key {
            None => self.shared().peek(),
            Some(key) => self.key(key).under(plan_of(&request).ok().flatten()).peek(),
        }
        .into()
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
            (Some(_), Err(_)) => {}
            (None, _) => then(&self.shared().n(n)),
            (Some(key), Ok(plan)) => then(&self.key(key).n(n).under(plan)),
        }
    }
}

impl<K, R, S> HasLine<K> for RateLimiter<K, R, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    R: Rule + Into<AnyRule>,
    S: BuildHasher + Send + Sync + 'static,
{
    fn wait(&self, request: LayerRequest<'_, K>, max_wait: Duration, sleep: Sleep) -> AnswerFuture {
        let quota: Option<&RateLimiter<K, Quota, S>> = (self as &dyn Any).downcast_ref();
        let (limiter, plan) = match (quota, plan_of(&request)) {
            // A window has no tokens to come.
            (None, _) => match self.take(request) {
                Answer::Now(decision) => return Box::pin(ready(decision)),
                Answer::Later(answer) => return answer,
                Answer::Together(question) => return question.ask_alone(),
            },
            (Some(_), Err(denied)) => return Box::pin(ready(Err(denied))),
            (Some(limiter), Ok(plan)) => (limiter.clone(), plan.copied()),
        };
        let (key, n) = (request.key.cloned(), request.n);
        Box::pin(async move {
            match &key {
                None => limiter.shared().n(n).within(max_wait).acquire_by(|wait| sleep(wait)).await,
                Some(key) => {
                    let request = limiter.key(key).n(n).under(plan.as_ref()).within(max_wait);
                    request.acquire_by(|wait| sleep(wait)).await
                }
            }
        })
    }
}

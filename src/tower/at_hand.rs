//! The limiters of this crate in a layer, with their kind and their hasher erased.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::limiter::{Answer, AnyLimiter, HasLine, LayerLimiter, LayerPlan, LayerRequest};
use crate::keyed::keyspace::Stats;
use crate::limiter::all_of::{Internal, Limit};
use crate::limiter::decided::DecidedLimit;
use crate::limiter::key_call::CallOptions;
use crate::limiter::place::Place;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::window_limiter::WindowLimiter;
use crate::quota::rule::Rule;
use crate::quota::window::Window;
use crate::time::clock::Clock;
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::plan::Plan;

macro_rules! any_limiter_from {
    ($limiter:ident, |$from:ident| $buckets:expr, $window:expr) => {
        impl<K, S> From<$limiter<K, S>> for AnyLimiter<K>
        where
            K: Hash + Eq + Clone + Send + Sync + 'static,
            S: BuildHasher + Send + Sync + 'static,
        {
            fn from($from: $limiter<K, S>) -> AnyLimiter<K> {
                let erased = Arc::new(Erased { window: $window, buckets: $buckets });
                AnyLimiter { limiter: erased.clone(), line: Some(erased) }
            }
        }

        impl<K, S> From<Arc<$limiter<K, S>>> for AnyLimiter<K>
        where
            K: Hash + Eq + Clone + Send + Sync + 'static,
            S: BuildHasher + Send + Sync + 'static,
        {
            fn from(limiter: Arc<$limiter<K, S>>) -> AnyLimiter<K> {
                $limiter::clone(&limiter).into()
            }
        }
    };
}

any_limiter_from!(RateLimiter, |limiter| limiter, None);
any_limiter_from!(WindowLimiter, |limiter| limiter.limiter, Some(limiter.window()));

/// The keys of a limiter, and their window if it is one of windows.
struct Erased<K, S> {
    buckets: RateLimiter<K, S>,
    window: Option<Window>,
}

/// Returns the refusal of a plan of a limiter of another crate.
#[cold]
fn foreign_plan(n: u64) -> Denied {
    Denied::from_parts(Reason::ForeignPlan, n, 0, None)
}

/// Returns the plan of a request, or its refusal if the plan is of a limiter of another crate.
fn plan_of<'a, K>(request: &LayerRequest<'a, K>) -> Result<Option<&'a Plan>, Denied> {
    let compiled = |plan: &'a LayerPlan| plan.compiled().ok_or_else(|| foreign_plan(request.n));
    request.plan.map(compiled).transpose()
}

impl<K, S> LayerLimiter<K> for Erased<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn id(&self) -> usize {
        Arc::as_ptr(&self.buckets.inner).addr()
    }

    fn rule(&self, plan: Option<&LayerPlan>) -> Rule {
        let plan = plan.and_then(LayerPlan::compiled);
        match self.window {
            None => plan.map_or_else(|| self.buckets.quota(), |plan| self.buckets.quota_as(plan)).into(),
            Some(window) => {
                let limit = || self.buckets.inner.keyspace.engine.source.limit();
                window.limited_to(plan.map_or_else(limit, |cap| cap.capacity)).into()
            }
        }
    }

    fn clock(&self) -> Clock {
        self.buckets.inner.keyspace.engine.clock.clone()
    }

    fn stats(&self) -> Stats {
        self.buckets.stats()
    }

    #[inline]
    fn take(&self, request: LayerRequest<'_, K>) -> Answer {
        let LayerRequest { key, plan, n } = request;
        Answer::Now(match (key, plan) {
            (Some(key), None) if self.window.is_none() => self.buckets.try_acquire_n(key, n),
            (Some(key), None) => self.buckets.inner.try_acquire_in_window(key, n),
            (Some(key), Some(plan)) => match plan.compiled() {
                Some(plan) => self.buckets.key(key).n(n).under(plan).try_acquire(),
                None => Err(foreign_plan(n)),
            },
            (None, _) => Limit::take(&self.buckets.no_key(n), Internal).map(|(granted, _)| granted),
        })
    }

    fn refund(&self, request: LayerRequest<'_, K>) {
        let LayerRequest { key, n, .. } = request;
        match (key, plan_of(&request)) {
            (None, _) => self.buckets.no_key(n).refund(),
            (Some(key), Ok(Some(plan))) => self.buckets.key(key).under(plan).n(n).refund(),
            (Some(key), _) => self.buckets.refund(key, n),
        }
    }

    fn charge(&self, request: LayerRequest<'_, K>) {
        let LayerRequest { key, n, .. } = request;
        let Some(key) = key else { return self.buckets.no_key(n).charge() };
        let limit = self.buckets.key(key);
        let limit = plan_of(&request).ok().flatten().map_or(limit, |plan| limit.under(plan));
        // A hold of no token gives a forgotten key an entry.
        let _ = limit.n(0).hold().map(|hold| hold.settle(n));
    }

    fn peek(&self, request: LayerRequest<'_, K>) -> Granted {
        match (request.key, plan_of(&request)) {
            (None, _) => self.buckets.no_key(0).peek().0,
            (Some(key), Ok(Some(plan))) => self.buckets.key(key).under(plan).peek().0,
            (Some(key), _) => self.buckets.peek(key).0,
        }
    }

    fn contains(&self, key: &K) -> bool {
        let pin = self.buckets.inner.keyspace.store.pin();
        self.buckets.inner.call(&pin, key, CallOptions::NOW).is_held()
    }

    fn is_at_hand(&self) -> bool {
        true
    }

    fn with_tokens(&self, request: LayerRequest<'_, K>, then: &mut dyn FnMut(&dyn Limit)) {
        let LayerRequest { key, n, .. } = request;
        match (key, plan_of(&request)) {
            (_, Err(denied)) => then(&DecidedLimit { decision: Err(denied), clock: &self.clock() }),
            (None, _) => then(&self.buckets.no_key(n)),
            (Some(key), Ok(None)) => then(&self.buckets.key(key).n(n)),
            (Some(key), Ok(Some(plan))) => then(&self.buckets.key(key).n(n).under(plan)),
        }
    }
}

impl<K, S> HasLine<K> for Erased<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn place(&self, request: LayerRequest<'_, K>, wait: (u64, usize)) -> Result<(Granted, Place), Denied> {
        let LayerRequest { key, n, .. } = request;
        let plan = plan_of(&request)?;
        match key {
            Some(key) if self.window.is_some() => self.buckets.place_now(key, plan, n),
            // A window has no tokens to come, and all requests without a key have one line.
            None if self.window.is_some() => self.buckets.place(None, None, n, (0, 0)),
            None => self.buckets.place(None, None, n, (wait.0, usize::MAX)),
            key => self.buckets.place(key, plan, n, wait),
        }
    }
}

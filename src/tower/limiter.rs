//! A limiter with its hasher erased, and its kind.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;

use super::chain::Adjustment;
use crate::keyed::keyspace::Stats;
use crate::limiter::all_of::Tokens;
use crate::limiter::ask::Ask;
use crate::limiter::asked::Asked;
use crate::limiter::place::Place;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::reply::Reply;
use crate::limiter::rule::Rule;
use crate::rule::any_rule::AnyRule;
use crate::time::clock::Clock;
use crate::word::by_refill::WINDOWS;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::PlanTerms;

/// A request for `n` tokens of a key, perhaps under a plan, or of the bucket without a key.
#[derive(Clone)]
pub(crate) struct LimiterRequest<K> {
    pub(crate) key: Option<K>,
    pub(crate) plan: Option<PlanTerms>,
    pub(crate) n: u64,
    /// The reply of a limiter that was asked.
    pub(crate) reply: Option<Arc<Reply>>,
}

/// The question to a limiter about one request.
pub(crate) type Question = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// The verbs of a limiter that a layer needs.
pub(crate) trait DynLimiter<K>: Send + Sync {
    fn id(&self) -> u64;
    /// Returns the quota or the window in force, of keys under this plan or cap.
    fn rule(&self, plan: Option<&PlanTerms>) -> AnyRule;
    fn stats(&self) -> Stats;
    fn clock(&self) -> Clock;
    /// Returns whether the key has a bucket of its own.
    fn holds(&self, key: &K) -> bool;
    /// Returns the hash of a key, before the map mixes it.
    fn hash(&self, key: &K) -> u64;
    /// Returns whether a request has to be [asked](DynLimiter::ask) for before it is decided.
    fn is_asked(&self) -> bool {
        false
    }
    /// Begins the question about a request.
    fn ask(&self, _: LimiterRequest<K>) -> Option<Question> {
        None
    }
    fn try_acquire(&self, request: &LimiterRequest<K>) -> Result<Granted, Denied>;
    /// Takes the tokens now, or within `max_wait` nanoseconds where the limit is of buckets.
    /// At most `max_waiting` requests wait for one bucket.
    fn place(&self, request: &LimiterRequest<K>, wait: (u64, usize)) -> Result<(Granted, Place), Denied>;
    fn adjust(&self, request: &LimiterRequest<K>, adjustment: Adjustment);
    /// Returns the tokens that are there, and takes none.
    fn peek(&self, request: &LimiterRequest<K>) -> Granted;
    /// Calls `then` with the request as one of several limits.
    fn with(&self, request: &LimiterRequest<K>, then: &mut dyn FnMut(&dyn Tokens));
}

/// A limiter of buckets or of windows, whatever its hasher is, or one that a fleet shares.
///
/// A [`RateLimiter`] of either rule is turned into one, shared in an `Arc` or not. So is
/// an [`AskLimiter`](super::AskLimiter), by [`asked`](AnyLimiter::asked).
pub struct AnyLimiter<K>(pub(crate) Arc<dyn DynLimiter<K>>);

impl<K> fmt::Debug for AnyLimiter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyLimiter").finish_non_exhaustive()
    }
}

impl<K, R, S> From<RateLimiter<K, R, S>> for AnyLimiter<K>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    R: Rule,
    S: BuildHasher + Send + Sync + 'static,
{
    fn from(limiter: RateLimiter<K, R, S>) -> AnyLimiter<K> {
        AnyLimiter(Arc::new(limiter))
    }
}

impl<K, R, S> From<Arc<RateLimiter<K, R, S>>> for AnyLimiter<K>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    R: Rule,
    S: BuildHasher + Send + Sync + 'static,
{
    fn from(limiter: Arc<RateLimiter<K, R, S>>) -> AnyLimiter<K> {
        AnyLimiter(limiter)
    }
}

impl<K, R, S> DynLimiter<K> for RateLimiter<K, R, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    R: Rule,
    S: BuildHasher + Send + Sync + 'static,
{
    fn id(&self) -> u64 {
        self.inner.keyspace.id
    }

    fn rule(&self, plan: Option<&PlanTerms>) -> AnyRule {
        let source = &self.inner.keyspace.engine.source;
        plan.map_or_else(|| RateLimiter::rule(self), |plan| R::under(self.built, plan, source)).into()
    }

    fn stats(&self) -> Stats {
        RateLimiter::stats(self)
    }

    fn clock(&self) -> Clock {
        self.inner.keyspace.engine.clock.clone()
    }

    fn holds(&self, key: &K) -> bool {
        self.contains(key)
    }

    fn hash(&self, key: &K) -> u64 {
        self.inner.hasher.hash_one(key)
    }

    fn try_acquire(
        &self,
        LimiterRequest { key, plan, n, .. }: &LimiterRequest<K>,
    ) -> Result<Granted, Denied> {
        match (key, plan) {
            (Some(key), None) => self.try_acquire_n(key, *n),
            (Some(key), plan) => self.key(key).n(*n).under_terms(plan.as_ref()).try_acquire(),
            (None, _) => self.shared().n(*n).try_acquire(),
        }
    }

    fn place(&self, request: &LimiterRequest<K>, wait: (u64, usize)) -> Result<(Granted, Place), Denied> {
        let LimiterRequest { key, plan, n, .. } = request;
        match key {
            Some(key) if R::WORDS == WINDOWS => self.place_now(key, plan.as_ref(), *n),
            // A window has no tokens to come, and all requests without a key have one line.
            None if R::WORDS == WINDOWS => RateLimiter::place(self, None, None, *n, (0, 0)),
            None => RateLimiter::place(self, None, None, *n, (wait.0, usize::MAX)),
            key => RateLimiter::place(self, key.as_ref(), plan.as_ref(), *n, wait),
        }
    }

    fn adjust(&self, LimiterRequest { key, plan, .. }: &LimiterRequest<K>, adjustment: Adjustment) {
        let Some(key) = key else { return adjust(self.shared(), adjustment) };
        adjust(self.key(key).under_terms(plan.as_ref()), adjustment);
    }

    fn peek(&self, LimiterRequest { key, plan, .. }: &LimiterRequest<K>) -> Granted {
        match key {
            Some(key) => self.key(key).under_terms(plan.as_ref()).peek().content(),
            None => self.shared().peek().content(),
        }
    }

    fn with(
        &self,
        LimiterRequest { key, plan, n, .. }: &LimiterRequest<K>,
        then: &mut dyn FnMut(&dyn Tokens),
    ) {
        match key {
            Some(key) => then(&self.key(key).n(*n).under_terms(plan.as_ref())),
            None => then(&self.shared().n(*n)),
        }
    }
}

fn adjust<'a, B: Asked<'a>>(ask: Ask<'a, B>, adjustment: Adjustment) {
    match adjustment {
        Adjustment::Refund(n) => ask.n(n).refund(),
        // A hold of no token gives a forgotten key an entry.
        Adjustment::Charge(n) => drop(ask.n(0).hold().map(|hold| hold.settle(n))),
    }
}

//! A limiter with its hasher erased, and its kind.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;

use super::chain::Adjustment;
use crate::keyed::keyspace::Stats;
use crate::limiter::all_of::{Internal, Limit};
use crate::limiter::key_call::CallOptions;
use crate::limiter::place::Place;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::reply::Reply;
use crate::limiter::window_limiter::WindowLimiter;
use crate::rule::any_rule::AnyRule;
use crate::rule::window::Window;
use crate::time::clock::Clock;
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
    fn with(&self, request: &LimiterRequest<K>, then: &mut dyn FnMut(&dyn Limit));
}

/// A limiter of buckets or of windows, whatever its hasher is, or one that a fleet shares.
///
/// A [`RateLimiter`] and a [`WindowLimiter`] are turned into one, shared in an `Arc` or not. So is
/// an [`AskLimiter`](super::AskLimiter), by [`asked`](AnyLimiter::asked).
pub struct AnyLimiter<K>(pub(crate) Arc<dyn DynLimiter<K>>);

impl<K> fmt::Debug for AnyLimiter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyLimiter").finish_non_exhaustive()
    }
}

macro_rules! any_limiter_from {
    ($limiter:ident, |$from:ident| $buckets:expr, $window:expr) => {
        impl<K, S> From<$limiter<K, S>> for AnyLimiter<K>
        where
            K: Hash + Eq + Clone + Send + Sync + 'static,
            S: BuildHasher + Send + Sync + 'static,
        {
            fn from($from: $limiter<K, S>) -> AnyLimiter<K> {
                AnyLimiter(Arc::new(Erased { window: $window, buckets: $buckets }))
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

impl<K, S> DynLimiter<K> for Erased<K, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn id(&self) -> u64 {
        self.buckets.inner.keyspace.id
    }

    fn rule(&self, plan: Option<&PlanTerms>) -> AnyRule {
        match self.window {
            None => plan.map_or_else(|| self.buckets.quota(), |plan| self.buckets.quota_as(plan)).into(),
            Some(window) => {
                let limit = || self.buckets.inner.keyspace.engine.source.limit();
                window.limited_to(plan.map_or_else(limit, |cap| cap.capacity)).into()
            }
        }
    }

    fn stats(&self) -> Stats {
        self.buckets.stats()
    }

    fn clock(&self) -> Clock {
        self.buckets.inner.keyspace.engine.clock.clone()
    }

    fn holds(&self, key: &K) -> bool {
        let pin = self.buckets.inner.keyspace.store.pin();
        self.buckets.inner.call(&pin, key, CallOptions::NOW).is_held()
    }

    fn hash(&self, key: &K) -> u64 {
        self.buckets.inner.hasher.hash_one(key)
    }

    fn try_acquire(
        &self,
        LimiterRequest { key, plan, n, .. }: &LimiterRequest<K>,
    ) -> Result<Granted, Denied> {
        match (key, plan) {
            (Some(key), None) if self.window.is_some() => self.buckets.inner.try_acquire_in_window(key, *n),
            (Some(key), None) => self.buckets.try_acquire_n(key, *n),
            (Some(key), Some(plan)) => self.buckets.key(key).n(*n).under(plan).try_acquire(),
            (None, _) => Limit::take(&self.buckets.no_key(*n), Internal).map(|(granted, _)| granted),
        }
    }

    fn place(&self, request: &LimiterRequest<K>, wait: (u64, usize)) -> Result<(Granted, Place), Denied> {
        let LimiterRequest { key, plan, n, .. } = request;
        match key {
            Some(key) if self.window.is_some() => self.buckets.place_now(key, plan.as_ref(), *n),
            // A window has no tokens to come, and all requests without a key have one line.
            None if self.window.is_some() => self.buckets.place(None, None, *n, (0, 0)),
            None => self.buckets.place(None, None, *n, (wait.0, usize::MAX)),
            key => self.buckets.place(key.as_ref(), plan.as_ref(), *n, wait),
        }
    }

    fn adjust(&self, LimiterRequest { key, plan, .. }: &LimiterRequest<K>, adjustment: Adjustment) {
        let n = match adjustment {
            Adjustment::Refund(n) | Adjustment::Charge(n) => n,
        };
        let Some(key) = key else {
            let shared = self.buckets.no_key(n);
            return match adjustment {
                Adjustment::Refund(_) => shared.refund(),
                Adjustment::Charge(_) => shared.charge(),
            };
        };
        let limit = self.buckets.key(key);
        let limit = plan.as_ref().map_or(limit, |plan| limit.under(plan));
        match adjustment {
            Adjustment::Refund(n) => limit.n(n).refund(),
            // A hold of no token gives a forgotten key an entry.
            Adjustment::Charge(n) => drop(limit.n(0).hold().map(|hold| hold.settle(n))),
        }
    }

    fn peek(&self, LimiterRequest { key, plan, .. }: &LimiterRequest<K>) -> Granted {
        match (key, plan) {
            (Some(key), None) => self.buckets.peek(key).0,
            (Some(key), Some(plan)) => self.buckets.key(key).under(plan).peek().0,
            (None, _) => self.buckets.no_key(0).peek().0,
        }
    }

    fn with(
        &self,
        LimiterRequest { key, plan, n, .. }: &LimiterRequest<K>,
        then: &mut dyn FnMut(&dyn Limit),
    ) {
        match (key, plan) {
            (Some(key), None) => then(&self.buckets.key(key).n(*n)),
            (Some(key), Some(plan)) => then(&self.buckets.key(key).n(*n).under(plan)),
            (None, _) => then(&self.buckets.no_key(*n)),
        }
    }
}

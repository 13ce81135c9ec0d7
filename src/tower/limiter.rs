//! A limiter with its hasher erased.

use std::hash::{BuildHasher, Hash};

use crate::keyed::keyspace::Stats;
use crate::limiter::all_of::sealed;
use crate::limiter::rate_limiter::RateLimiter;
use crate::quota::rate::Quota;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::Plan;

/// A request for `n` tokens of a key, perhaps under a plan, or of the bucket without a key.
#[derive(Clone)]
pub(crate) struct LimiterRequest<K> {
    pub(crate) key: Option<K>,
    pub(crate) plan: Option<Plan>,
    pub(crate) n: u64,
}

/// The verbs of a limiter that a layer needs.
pub(crate) trait DynLimiter<K>: Send + Sync {
    fn id(&self) -> u64;
    fn quota(&self) -> Quota;
    fn stats(&self) -> Stats;
    /// Returns the hash of a key, before the map mixes it.
    fn hash(&self, key: &K) -> u64;
    fn try_acquire(&self, request: &LimiterRequest<K>) -> Result<Granted, Denied>;
    fn refund(&self, request: &LimiterRequest<K>);
    /// Returns the tokens that are there, and takes none.
    fn peek(&self, request: &LimiterRequest<K>) -> Granted;
    /// Calls `then` with the request as one of several limits.
    fn with(&self, request: &LimiterRequest<K>, then: &mut dyn FnMut(&dyn sealed::Limit));
}

impl<K: Hash + Eq + Clone + Send + Sync, S: BuildHasher + Send + Sync> DynLimiter<K> for RateLimiter<K, S> {
    fn id(&self) -> u64 {
        self.inner.keyspace.id
    }

    fn quota(&self) -> Quota {
        RateLimiter::quota(self)
    }

    fn stats(&self) -> Stats {
        RateLimiter::stats(self)
    }

    fn hash(&self, key: &K) -> u64 {
        self.inner.hasher.hash_one(key)
    }

    fn try_acquire(&self, LimiterRequest { key, plan, n }: &LimiterRequest<K>) -> Result<Granted, Denied> {
        match (key, plan) {
            (Some(key), None) => self.try_acquire_n(key, *n),
            (Some(key), Some(plan)) => self.key(key).n(*n).under(plan).try_acquire(),
            (None, _) => sealed::Limit::take(&self.no_key(*n)).map(|(granted, _)| granted),
        }
    }

    fn refund(&self, LimiterRequest { key, plan, n }: &LimiterRequest<K>) {
        match (key, plan) {
            (Some(key), None) => RateLimiter::refund(self, key, *n),
            (Some(key), Some(plan)) => self.key(key).n(*n).under(plan).refund(),
            (None, _) => self.no_key(*n).refund(),
        }
    }

    fn peek(&self, LimiterRequest { key, plan, .. }: &LimiterRequest<K>) -> Granted {
        match (key, plan) {
            (Some(key), None) => RateLimiter::peek(self, key).0,
            (Some(key), Some(plan)) => self.key(key).under(plan).peek().0,
            (None, _) => self.no_key(0).peek().0,
        }
    }

    fn with(
        &self,
        LimiterRequest { key, plan, n }: &LimiterRequest<K>,
        then: &mut dyn FnMut(&dyn sealed::Limit),
    ) {
        match (key, plan) {
            (Some(key), None) => then(&self.key(key).n(*n)),
            (Some(key), Some(plan)) => then(&self.key(key).n(*n).under(plan)),
            (None, _) => then(&self.no_key(*n)),
        }
    }
}

//! The interface of a shared limiter to a layer.

use std::future::{Future, ready};
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tollgate::tower::{AnyLimiter, AskLimiter, AskedBucket, LayerPlan};
use tollgate::{Clock, Denied, Granted, Quota, Reason, Stats};

use crate::key::StoreKey;
use crate::limiter::distributed_limiter::{DistributedLimiter, Next};
use crate::limiter::plan::Plan;
use crate::limiter::shared::Decision;
use crate::limiter::sourced::Sourced;
use crate::store::op::Store;

fn without_source(decision: Decision) -> Result<Granted, Denied> {
    decision.map(Sourced::into_inner).map_err(Sourced::into_inner)
}

/// A layer asks the limiter for each request; see
/// [`AnyLimiter::asked`](tollgate::tower::AnyLimiter::asked).
///
/// The bucket of requests without a key is stored under the bare name of the limiter. The limit [in
/// front](crate::DistributedBuilder::local_first) does not apply to them.
impl<K, S> AskLimiter<K> for DistributedLimiter<K, S>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
{
    fn id(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    fn quota(&self) -> Quota {
        self.quota()
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

    fn ask(
        &self,
        bucket: AskedBucket<'_, K>,
        n: u64,
    ) -> Pin<Box<dyn Future<Output = Result<Granted, Denied>> + Send>> {
        let Ok(plan) = bucket.plan.map(|quota| self.plan(quota)).transpose() else {
            // The store cannot count the quota.
            return Box::pin(ready(Err(Denied::from_parts(Reason::ForeignPlan, n, 0, None))));
        };
        match self.at_hand(bucket.key, n, plan.as_ref()) {
            Next::Decided(decision) => Box::pin(ready(without_source(decision))),
            Next::Ask(slot) => {
                let inner = self.inner.clone();
                Box::pin(async move { without_source(inner.ask(&slot, n).await) })
            }
        }
    }

    fn refund(&self, bucket: AskedBucket<'_, K>, n: u64) {
        if let Ok(plan) = bucket.plan.map(|quota| self.plan(quota)).transpose() {
            self.give_back(bucket.key, n, plan.as_ref());
        }
    }

    fn charge(&self, bucket: AskedBucket<'_, K>, n: u64) {
        if let Ok(plan) = bucket.plan.map(|quota| self.plan(quota)).transpose() {
            self.take_spent(bucket.key, n, plan.as_ref());
        }
    }

    fn peek(&self, bucket: AskedBucket<'_, K>) -> Granted {
        let quota = bucket.plan.unwrap_or_else(|| self.quota());
        let known = self.look(bucket.key, quota);
        let is_full = known.remaining() >= quota.capacity();
        let reset = if is_full { Duration::ZERO } else { known.reset_after() };
        Granted::from_parts(0, known.remaining().min(quota.capacity()), reset)
    }
}

/// A shared limiter, for a layer. The [documentation of the crate](crate#in-a-layer) has a program.
impl<K, S> From<DistributedLimiter<K, S>> for AnyLimiter<K>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
{
    fn from(limiter: DistributedLimiter<K, S>) -> AnyLimiter<K> {
        AnyLimiter::asked(limiter)
    }
}

/// A plan for the closure of [`LimitBy::plan`](tollgate::tower::LimitBy::plan).
impl From<Plan> for LayerPlan {
    fn from(plan: Plan) -> LayerPlan {
        plan.quota().into()
    }
}

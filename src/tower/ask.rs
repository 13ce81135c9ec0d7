//! Limiters that a layer has to ask.

use std::future::Future;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::chain::Adjustment;
use super::limiter::{AnyLimiter, DynLimiter, LimiterRequest, Question};
use crate::keyed::keyspace::Stats;
use crate::limiter::all_of::Tokens;
use crate::limiter::place::Place;
use crate::limiter::reply::Reply;
use crate::rule::any_rule::AnyRule;
use crate::rule::rate::Quota;
use crate::time::clock::Clock;
use crate::word::decision::{Denied, Granted, Reason};
use crate::word::plan::PlanTerms;

/// The bucket of a request, as a layer names it to an [`AskLimiter`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AskedBucket<'a, K> {
    /// The key. `None` is the one bucket of all requests without a key.
    pub key: Option<&'a K>,
    /// The quota of the request's plan. `None` is the limiter's own, as for all requests without a
    /// key.
    ///
    /// A key has one bucket under all plans: it keeps its tokens, up to the burst of the next plan.
    pub plan: Option<Quota>,
}

/// A limiter whose decisions may take time, such as one that a fleet shares through a store.
///
/// A layer asks it once for each request to which its limit applies, before the layer decides. The
/// layer gives granted tokens back if another limit refuses, or if the request is dropped before
/// the decision. [`AnyLimiter::asked`] makes a limiter for a layer of it.
pub trait AskLimiter<K>: Send + Sync + 'static {
    /// Returns the number of this limiter and its clones, such as the address of the state that
    /// they share. Of two limiters with one number, the layers count a request once.
    fn id(&self) -> usize;

    /// Returns the quota in force.
    fn quota(&self) -> Quota;

    /// Returns the clock of this process, for bans and logs.
    fn clock(&self) -> Clock;

    /// Returns the counts of keys. A layer reports `keys`, `evicted` and those without room.
    fn stats(&self) -> Stats;

    /// Takes `n` tokens, all or none. A take of 0 tokens is granted.
    ///
    /// A dropped future takes none, or gives them back.
    fn ask(
        &self,
        bucket: AskedBucket<'_, K>,
        n: u64,
    ) -> Pin<Box<dyn Future<Output = Result<Granted, Denied>> + Send>>;

    /// Gives back `n` tokens that were granted.
    fn refund(&self, bucket: AskedBucket<'_, K>, n: u64);

    /// Takes `n` tokens that are spent already, on credit if need be.
    fn charge(&self, bucket: AskedBucket<'_, K>, n: u64);

    /// Returns the tokens that are known to be there, without a question.
    fn peek(&self, bucket: AskedBucket<'_, K>) -> Granted;
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> AnyLimiter<K> {
    /// Returns a limiter that the layer asks, and whose answer it waits for.
    ///
    /// A limit by such a limiter has all options of another, with these differences:
    ///
    /// * A request that it refuses never waits for its turn
    ///   ([`delay_with`](super::LayerBuilder::delay_with)): the limiter has no reservations.
    /// * It is asked before the other limits decide, and at the same time as others that are asked.
    ///   A key that the limit has banned is not asked for.
    /// * Requests without a key that [share](super::OnMissingKey::Share) a bucket have one of their
    ///   own.
    /// * A plan is made by [`Plan::of`].
    ///
    /// # Examples
    ///
    /// A limiter on a store of one's own:
    ///
    /// ```
    /// use std::future::{Future, ready};
    /// use std::net::IpAddr;
    /// use std::pin::Pin;
    /// use tollgate::http::ClientIp;
    /// use tollgate::tower::{AnyLimiter, AskLimiter, AskedBucket, RateLimitLayer};
    /// use tollgate::{Clock, Denied, Granted, Quota, RateLimiter, Stats};
    ///
    /// struct Store(RateLimiter<IpAddr>);
    ///
    /// impl AskLimiter<IpAddr> for Store {
    ///     fn id(&self) -> usize {
    ///         std::ptr::from_ref(self).addr()
    ///     }
    ///     fn quota(&self) -> Quota {
    ///         self.0.rule()
    ///     }
    ///     fn clock(&self) -> Clock {
    ///         Clock::new()
    ///     }
    ///     fn stats(&self) -> Stats {
    ///         self.0.stats()
    ///     }
    ///     fn ask(
    ///         &self,
    ///         bucket: AskedBucket<'_, IpAddr>,
    ///         n: u64,
    ///     ) -> Pin<Box<dyn Future<Output = Result<Granted, Denied>> + Send>> {
    ///         let key = bucket.key.expect("each request has an address");
    ///         // A call of a server, in earnest.
    ///         Box::pin(ready(self.0.try_acquire_n(key, n)))
    ///     }
    ///     fn refund(&self, bucket: AskedBucket<'_, IpAddr>, n: u64) {
    ///         bucket.key.into_iter().for_each(|key| self.0.refund(key, n));
    ///     }
    ///     fn charge(&self, bucket: AskedBucket<'_, IpAddr>, n: u64) {
    ///         let hold = bucket.key.and_then(|key| self.0.key(key).n(0).hold().ok());
    ///         hold.into_iter().for_each(|hold| drop(hold.settle(n)));
    ///     }
    ///     fn peek(&self, bucket: AskedBucket<'_, IpAddr>) -> Granted {
    ///         let known = bucket.key.map(|key| self.0.peek(key));
    ///         known.map_or(Granted::from_parts(0, 0, std::time::Duration::ZERO), |known| {
    ///             Granted::from_parts(0, known.remaining(), known.reset_after())
    ///         })
    ///     }
    /// }
    ///
    /// let store = Store(RateLimiter::new(Quota::per_second(10)));
    /// let layer = RateLimitLayer::builder(AnyLimiter::asked(store)).key(ClientIp::peer()).build();
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn asked(limiter: impl AskLimiter<K>) -> AnyLimiter<K> {
        // The limiters of this crate count theirs from 0 on.
        let id = limiter.id() as u64 | 1 << 63;
        AnyLimiter(Arc::new(Asked { id, clock: limiter.clock(), limiter: Arc::new(limiter) }))
    }
}

/// A limiter that has to be asked.
struct Asked<L> {
    id: u64,
    clock: Clock,
    limiter: Arc<L>,
}

impl<K> LimiterRequest<K> {
    fn bucket(&self) -> AskedBucket<'_, K> {
        AskedBucket { key: self.key.as_ref(), plan: self.plan.as_ref().map(|plan| plan.quota()) }
    }

    /// Returns the reply, or a refusal of a request that was not asked for: a ban may have ended in
    /// between.
    fn replied(&self) -> Arc<Reply> {
        let unasked = || Denied::from_parts(Reason::Unavailable, self.n, 0, Some(Duration::ZERO));
        self.reply.clone().unwrap_or_else(|| Arc::new(Reply::refused(unasked())))
    }
}

impl<K, L> DynLimiter<K> for Asked<L>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    L: AskLimiter<K>,
{
    fn id(&self) -> u64 {
        self.id
    }

    fn rule(&self, plan: Option<&PlanTerms>) -> AnyRule {
        plan.map_or_else(|| self.limiter.quota(), |plan| plan.quota()).into()
    }

    fn stats(&self) -> Stats {
        self.limiter.stats()
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Each key has a bucket in the store.
    fn holds(&self, _: &K) -> bool {
        true
    }

    /// Returns the same hash in each process: a share of the keys is one share of the fleet.
    fn hash(&self, key: &K) -> u64 {
        BuildHasherDefault::<DefaultHasher>::new().hash_one(key)
    }

    fn is_asked(&self) -> bool {
        true
    }

    fn ask(&self, request: LimiterRequest<K>) -> Option<Question> {
        let (asked, limiter) = (self.limiter.ask(request.bucket(), request.n), self.limiter.clone());
        Some(Box::pin(async move {
            let (result, plan) = (asked.await, request.plan);
            Reply::new(result, plan, move || limiter.refund(request.bucket(), request.n))
        }))
    }

    fn try_acquire(&self, request: &LimiterRequest<K>) -> Result<Granted, Denied> {
        request.replied().take()
    }

    fn place(&self, request: &LimiterRequest<K>, _: (u64, usize)) -> Result<(Granted, Place), Denied> {
        request.replied().place()
    }

    fn adjust(&self, request: &LimiterRequest<K>, adjustment: Adjustment) {
        match adjustment {
            Adjustment::Refund(n) => self.limiter.refund(request.bucket(), n),
            Adjustment::Charge(n) => self.limiter.charge(request.bucket(), n),
        }
    }

    fn peek(&self, request: &LimiterRequest<K>) -> Granted {
        self.limiter.peek(request.bucket())
    }

    fn with(&self, request: &LimiterRequest<K>, then: &mut dyn FnMut(&dyn Tokens)) {
        then(&request.replied().on(&self.clock));
    }
}

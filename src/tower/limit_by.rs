//! One limit of a layer, and how several are taken at once.

use std::any::Any;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::sync::Arc;

use super::decision::Counted;
use super::limiter::{DynLimiter, Request};
use super::policies::Policies;
use super::said::Said;
use super::stats::{LimitCounters, LimitStats, count};
use super::top_keys::TopKeys;
use crate::http::{Check, Head, InvalidName, KeyFrom, Policy};
use crate::limiter::all_of::{sealed, take_all};
use crate::limiter::rate_limiter::RateLimiter;
use crate::quota::rate::Quota;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::Plan;

/// What becomes of a request that has no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// All of these share one bucket, under the limiter's own quota. (It is one of those that keys without room share.)
    Share,
    /// The limit does not apply to it.
    Allow,
    /// It is rejected, which is the default: with 500 if the server has not noted the peer's
    /// address, else with 400. [`reject_with`](super::LayerBuilder::reject_with) may say otherwise.
    #[default]
    Reject,
}

/// Gives some requests a plan of their own.
pub(crate) type Choose = Box<dyn Fn(Head<'_>) -> Option<Plan> + Send + Sync>;

/// One limit of a layer: a limiter, and where its keys come from.
///
/// # Examples
///
/// ```
/// use tollgate::http::HeaderKey;
/// use tollgate::tower::{LimitBy, OnMissingKey};
/// use tollgate::{Quota, RateLimiter};
///
/// let by_tenant = LimitBy::new(RateLimiter::new(Quota::per_second(1_000)))
///     .key(HeaderKey::new("x-tenant")?)
///     .name("tenant")?
///     .on_missing_key(OnMissingKey::Allow);
/// # let _ = by_tenant;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LimitBy<K> {
    pub(crate) limiter: Arc<dyn DynLimiter<K>>,
    key: Box<dyn KeyFrom<Key = K>>,
    plan: Option<Choose>,
    missing: OnMissingKey,
    pub(crate) policy: Arc<Policy>,
    /// The same policy for other quotas. It is empty until requests come, when the policy stays as
    /// it is.
    others: Policies,
    pub(crate) top: TopKeys<K>,
    counters: Arc<LimitCounters>,
}

/// A limiter that has no source of keys yet: the first half of a `T`, which is [`LimitBy`] or
/// [`LayerBuilder`](super::LayerBuilder).
///
/// # Examples
///
/// Without a source of keys there is no layer:
///
/// ```compile_fail,E0599
/// use std::net::IpAddr;
/// use tollgate::tower::RateLimitLayer;
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::<IpAddr>::new(Quota::per_second(100));
/// let layer = RateLimitLayer::builder(limiter).build();
/// ```
///
/// One bucket for all requests has to be said:
///
/// ```
/// use tollgate::tower::RateLimitLayer;
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::<()>::new(Quota::per_second(100));
/// let layer = RateLimitLayer::builder(limiter).shared().build();
/// # let _ = layer;
/// ```
#[must_use = "a limit has a source of keys: `.key(..)`, or `.shared()` for one bucket for all requests"]
pub struct NeedsKey<K, T = LimitBy<K>> {
    limiter: Arc<dyn DynLimiter<K>>,
    then: PhantomData<fn() -> T>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, T: From<LimitBy<K>>> NeedsKey<K, T> {
    pub(crate) fn new<S: BuildHasher + Send + Sync + 'static>(
        limiter: impl Into<Arc<RateLimiter<K, S>>>,
    ) -> NeedsKey<K, T> {
        NeedsKey { limiter: limiter.into(), then: PhantomData }
    }

    /// Limits each key by itself: [`ClientIp`](crate::http::ClientIp),
    /// [`HeaderKey`](crate::http::HeaderKey), [`Extension`](crate::http::Extension), a closure in
    /// [`key_fn`](crate::http::key_fn), a pair of these.
    pub fn key(self, from: impl KeyFrom<Key = K> + 'static) -> T {
        T::from(LimitBy::with(self.limiter, Box::new(from), OnMissingKey::Reject))
    }

    /// Has all requests share one bucket. None has a key: all are counted as `keyless`.
    pub fn shared(self) -> T {
        T::from(LimitBy::with(self.limiter, Box::new(|_: Head<'_>| None), OnMissingKey::Share))
    }
}

impl<K, T> fmt::Debug for NeedsKey<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NeedsKey").finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LimitBy<K> {
    /// By a limiter, which may be in an `Arc` and in other hands as well. [`key`](NeedsKey::key) or
    /// [`shared`](NeedsKey::shared) comes next.
    pub fn new<S: BuildHasher + Send + Sync + 'static>(
        limiter: impl Into<Arc<RateLimiter<K, S>>>,
    ) -> NeedsKey<K, LimitBy<K>> {
        NeedsKey::new(limiter)
    }

    fn with(limiter: Arc<dyn DynLimiter<K>>, key: Box<dyn KeyFrom<Key = K>>, missing: OnMissingKey) -> Self {
        let policy = Policy::new("default", limiter.quota()).expect("it is a name").into();
        let (others, top, counters) = (Policies::new(), TopKeys::new(), Arc::default());
        LimitBy { limiter, key, plan: None, missing, policy, others, top, counters }
    }

    /// Puts requests under a plan of the limiter. `None` is its own quota.
    #[must_use]
    pub fn plan(self, choose: impl Fn(Head<'_>) -> Option<Plan> + Send + Sync + 'static) -> Self {
        LimitBy { plan: Some(Box::new(choose)), ..self }
    }

    /// What becomes of a request without a key: it is rejected if this is not given.
    #[must_use]
    pub fn on_missing_key(self, missing: OnMissingKey) -> Self {
        LimitBy { missing, ..self }
    }

    /// The name of the limit, for clients and for statistics: `default` if it is not given.
    ///
    /// # Errors
    ///
    /// It is not of 1 to 64 printable ASCII characters.
    pub fn name(self, name: &str) -> Result<Self, InvalidName> {
        Ok(LimitBy { policy: Policy::new(name, self.limiter.quota())?.into(), ..self })
    }

    pub(crate) fn with_policy(self, policy: Policy) -> Self {
        LimitBy { policy: policy.into(), ..self }
    }

    /// Returns the policy of a decision under a quota. It was made ahead for the quota that the
    /// limiter began with.
    fn policy_of(&self, quota: Quota) -> Arc<Policy> {
        if quota == self.policy.quota() { self.policy.clone() } else { self.others.of(&self.policy, quota) }
    }
}

impl<K> fmt::Debug for LimitBy<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitBy").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// A request, as limits are asked about it.
pub(crate) struct LayerRequest<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) cost: u64,
    /// The limits of the layer.
    pub(crate) limits: usize,
    /// The faults of the setup that were said already.
    pub(crate) said: &'a Said,
    /// By limiters of layers before this one.
    pub(crate) counted: Option<&'a Counted>,
    /// The limit is enforced for some keys only, by their hash.
    pub(crate) sampled: bool,
    /// The tokens may be given back.
    pub(crate) refundable: bool,
}

/// What all limits of a layer came to.
pub(crate) struct ChainOutcome<'a> {
    pub(crate) outcome: LimitOutcome,
    /// The limit that refused, or has the fewest tokens left. `None` if no limit applies.
    pub(crate) decider: Option<Decider<'a>>,
    /// Of all others.
    pub(crate) also: Vec<Arc<Policy>>,
    pub(crate) refunds: Vec<Refund>,
    /// The hash of the first limit's key, or 0 if no share is sampled. `None` if it has no key.
    pub(crate) hash: Option<u64>,
    which: usize,
}

/// The limit that decided on a request.
pub(crate) struct Decider<'a> {
    pub(crate) policy: Arc<Policy>,
    pub(crate) counters: &'a Arc<LimitCounters>,
}

pub(crate) enum LimitOutcome {
    Decided(Result<Granted, Denied>),
    /// No limit applies.
    Free,
    /// There is no key, and one is needed: perhaps by a fault of the setup.
    NoKey {
        check: Option<Check>,
    },
}

/// Gives back the tokens of a limit. Returns the tokens that are left then, if this limit decided.
pub(crate) type Refund = Box<dyn FnOnce() -> Option<Granted> + Send>;

impl<'a> ChainOutcome<'a> {
    fn new(outcome: LimitOutcome, which: usize) -> ChainOutcome<'a> {
        ChainOutcome { outcome, decider: None, also: Vec::new(), refunds: Vec::new(), hash: None, which }
    }
}

/// The limits that apply to a request so far, the latest first: each is on the stack of the gate that found its key.
pub(crate) struct Chain<'a> {
    limit: &'a dyn sealed::Limit,
    before: Option<&'a Chain<'a>>,
    index: usize,
}

impl sealed::Limits for Chain<'_> {
    fn get(&self, index: usize) -> Option<&dyn sealed::Limit> {
        match index.cmp(&self.index) {
            std::cmp::Ordering::Greater => None,
            std::cmp::Ordering::Equal => Some(self.limit),
            std::cmp::Ordering::Less => self.before.and_then(|before| before.get(index)),
        }
    }
}

/// A limit, whatever its keys are.
pub(crate) trait DynLimit: Any + Send + Sync {
    /// Finds the key, and goes on to the others; the last takes of all or of none. What is left to say of this limit is added to what
    /// came of that.
    fn decide<'a>(
        &'a self,
        asked: &LayerRequest<'_>,
        rest: &'a [Arc<dyn DynLimit>],
        chain: Option<&Chain<'_>>,
    ) -> ChainOutcome<'a>;
    /// Of its limiter.
    fn id(&self) -> u64;
    /// Says a fault of the setup that a request shows, or without one that the source of keys has.
    fn examine(&self, head: Option<Head<'_>>, said: &Said);
    fn stats(&self) -> LimitStats;
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> DynLimit for LimitBy<K> {
    fn decide<'a>(
        &'a self,
        asked: &LayerRequest<'_>,
        rest: &'a [Arc<dyn DynLimit>],
        chain: Option<&Chain<'_>>,
    ) -> ChainOutcome<'a> {
        let key = self.key.key_from(asked.head);
        // The key of the first limit is sampled, whatever becomes of the others.
        let first = rest.len() + 1 == asked.limits;
        let hash = match &key {
            Some(key) if asked.sampled && first => Some(self.limiter.hash(key)),
            Some(_) => Some(0),
            None => None,
        };
        let mut verdict = self.pass(key, asked, rest, chain);
        if first {
            verdict.hash = hash;
        }
        verdict
    }

    fn id(&self) -> u64 {
        self.limiter.id()
    }

    fn examine(&self, head: Option<Head<'_>>, said: &Said) {
        if let Some(check) = self.key.check(head) {
            said.say(self.policy.name(), check);
        }
    }

    fn stats(&self) -> LimitStats {
        let limiter = self.limiter.stats();
        LimitStats {
            policy: self.policy.name().to_owned(),
            keys: limiter.keys,
            evicted: limiter.evicted,
            without_room: limiter.shared + limiter.refused_full + limiter.allowed_full,
            ..LimitStats::of(&self.counters)
        }
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LimitBy<K> {
    /// Takes of this limit, unless it does not apply, and goes on to the others.
    #[inline(always)]
    fn pass<'a>(
        &'a self,
        key: Option<K>,
        asked: &LayerRequest<'_>,
        rest: &'a [Arc<dyn DynLimit>],
        chain: Option<&Chain<'_>>,
    ) -> ChainOutcome<'a> {
        if asked.counted.is_some_and(|counted| counted.has(self.limiter.id())) {
            return next(asked, rest, chain);
        }
        let index = chain.map_or(0, |chain| chain.index + 1);
        if key.is_none() {
            self.count_keyless(asked);
            match self.missing {
                OnMissingKey::Share => {}
                OnMissingKey::Allow => return next(asked, rest, chain),
                OnMissingKey::Reject => return self.no_key(asked.head, index),
            }
        }
        let plan = key.as_ref().and(self.plan.as_ref()).and_then(|choose| choose(asked.head));
        let request = Request { key, plan, n: asked.cost };
        let mut verdict = ChainOutcome::new(LimitOutcome::Free, 0);
        if rest.is_empty() && chain.is_none() {
            verdict.outcome = LimitOutcome::Decided(self.limiter.try_acquire(&request));
        } else {
            self.limiter.with(&request, &mut |limit| {
                verdict = next(asked, rest, Some(&Chain { limit, before: chain, index }));
            });
        }
        self.tell(&mut verdict, asked, index, request);
        verdict
    }

    #[cold]
    fn no_key(&self, head: Head<'_>, index: usize) -> ChainOutcome<'_> {
        let check = self.key.check(Some(head));
        let decider = Some(self.decider(self.policy.clone()));
        ChainOutcome { decider, ..ChainOutcome::new(LimitOutcome::NoKey { check }, index) }
    }

    /// Counts a request without a key. The 1st, 2nd, 4th, 8th of these and so on are examined for a
    /// fault of the setup.
    #[cold]
    fn count_keyless(&self, asked: &LayerRequest<'_>) {
        if count(&self.counters.keyless).is_power_of_two() {
            self.examine(Some(asked.head), asked.said);
        }
    }

    fn decider(&self, policy: Arc<Policy>) -> Decider<'_> {
        Decider { policy, counters: &self.counters }
    }

    /// Adds what is to be said of this limit.
    #[inline(always)]
    fn tell<'a>(
        &'a self,
        verdict: &mut ChainOutcome<'a>,
        asked: &LayerRequest<'_>,
        index: usize,
        request: Request<K>,
    ) {
        let LimitOutcome::Decided(result) = &verdict.outcome else { return };
        let quota = request.plan.map_or_else(|| self.limiter.quota(), |plan| plan.quota());
        let decided = verdict.which == index;
        if !decided {
            verdict.also.push(self.policy_of(quota));
        } else {
            verdict.decider = Some(self.decider(self.policy_of(quota)));
            if let (Some(key), Err(_)) = (&request.key, result) {
                self.top.note(key);
            }
        }
        if asked.refundable && result.is_ok() {
            let limiter = self.limiter.clone();
            verdict.refunds.push(Box::new(move || {
                limiter.refund(&request);
                decided.then(|| limiter.peek(&request))
            }));
        }
    }
}

/// The rest of the gates, of which there is one at first; after the last, the decision.
pub(crate) fn next<'a>(
    asked: &LayerRequest<'_>,
    rest: &'a [Arc<dyn DynLimit>],
    chain: Option<&Chain<'_>>,
) -> ChainOutcome<'a> {
    match (rest.split_first(), chain) {
        (Some((gate, rest)), chain) => gate.decide(asked, rest, chain),
        (None, None) => ChainOutcome::new(LimitOutcome::Free, usize::MAX),
        (None, Some(all)) => match take_all(all) {
            Ok((granted, which)) => ChainOutcome::new(LimitOutcome::Decided(Ok(granted)), which),
            Err(denied) => ChainOutcome::new(LimitOutcome::Decided(Err(denied.denied())), denied.which()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_made_once_for_each_quota() {
        let limit = LimitBy::new(RateLimiter::<u64>::new(Quota::per_second(10))).shared();
        for n in [10, 20, 30] {
            let (first, again) =
                (limit.policy_of(Quota::per_second(n)), limit.policy_of(Quota::per_second(n)));
            assert_eq!(first.quota(), Quota::per_second(n));
            assert!(Arc::ptr_eq(&first, &again), "{n}/s");
        }
    }
}

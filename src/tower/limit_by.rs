//! One limit of a layer.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::chain::{Decider, DynLimit, LayerRequest, LimitChain, LimitOutcome, Refund, next};
use super::limiter::{AnyLimiter, DynLimiter, LimiterRequest};
use super::policies::Policies;
use super::said::Said;
use super::stats::{LimitCounters, LimitStats, count};
use super::top_keys::TopKeys;
use crate::http::{Head, InvalidName, KeyFrom, Policy};
use crate::limiter::window_key::Cap;
use crate::quota::rule::Rule;
use crate::word::plan::Plan;

/// The treatment of a request without a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// All such requests share one bucket, under the limiter's own quota. It is one of its overflow
    /// buckets.
    Share,
    /// The limit does not apply.
    Allow,
    /// The request is rejected, with 500 if the server has not noted the peer's address, else with
    /// 400. [`reject_with`](super::LayerBuilder::reject_with) can change the response.
    #[default]
    Reject,
}

type ChoosePlan = dyn Fn(Head<'_>) -> Option<Plan> + Send + Sync;

/// One limit of a layer: a limiter and the source of its keys.
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
    plan: Option<Box<ChoosePlan>>,
    missing: OnMissingKey,
    pub(crate) policy: Arc<Policy>,
    /// The same policy for other rules, empty while the limiter has one.
    others: Policies,
    pub(crate) top: TopKeys<K>,
    counters: Arc<LimitCounters>,
}

/// A limiter that still needs a source of keys to become a [`LimitBy`] or a
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
/// One bucket for all requests has to be explicit:
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
    pub(crate) fn new(limiter: impl Into<AnyLimiter<K>>) -> NeedsKey<K, T> {
        NeedsKey { limiter: limiter.into().0, then: PhantomData }
    }

    /// Limits each key by itself: a [`ClientIp`](crate::http::ClientIp),
    /// [`HeaderKey`](crate::http::HeaderKey), [`Extension`](crate::http::Extension),
    /// [`key_fn`](crate::http::key_fn), or a pair of these.
    pub fn key(self, from: impl KeyFrom<Key = K> + 'static) -> T {
        T::from(LimitBy::with(self.limiter, Box::new(from), OnMissingKey::Reject))
    }

    /// Limits all requests by one bucket. As they have no key, all are counted as `keyless`.
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
    /// Begins a limit by a limiter of buckets or of windows, which may be shared in an `Arc`.
    /// [`key`](NeedsKey::key) or [`shared`](NeedsKey::shared) comes next.
    pub fn new(limiter: impl Into<AnyLimiter<K>>) -> NeedsKey<K, LimitBy<K>> {
        NeedsKey::new(limiter)
    }

    fn with(limiter: Arc<dyn DynLimiter<K>>, key: Box<dyn KeyFrom<Key = K>>, missing: OnMissingKey) -> Self {
        let policy = Policy::new("default", limiter.rule(None)).expect("it is a name").into();
        let (others, top, counters) = (Policies::new(), TopKeys::new(), Arc::default());
        LimitBy { limiter, key, plan: None, missing, policy, others, top, counters }
    }

    /// Chooses a plan of the limiter for each request, as by a customer's tier. `None` is its own
    /// quota.
    #[must_use]
    pub fn plan(self, choose: impl Fn(Head<'_>) -> Option<Plan> + Send + Sync + 'static) -> Self {
        LimitBy { plan: Some(Box::new(choose)), ..self }
    }

    /// Chooses a cap of the limiter of windows for each request. `None` is its own limit.
    #[must_use]
    pub fn cap(self, choose: impl Fn(Head<'_>) -> Option<Cap> + Send + Sync + 'static) -> Self {
        self.plan(move |head| choose(head).map(|cap| cap.0))
    }

    /// Sets the treatment of requests without a key, which are rejected by default.
    ///
    /// After [`shared`](NeedsKey::shared) the default is [`Share`](OnMissingKey::Share), because no
    /// request has a key.
    #[must_use]
    pub fn on_missing_key(self, missing: OnMissingKey) -> Self {
        LimitBy { missing, ..self }
    }

    /// Names the limit, for clients and for statistics. The default is `default`.
    ///
    /// # Errors
    ///
    /// `name` is not of 1 to 64 printable ASCII characters.
    pub fn name(self, name: &str) -> Result<Self, InvalidName> {
        let (before, policy) = (self.policy, Policy::new(name, self.limiter.rule(None))?.into());
        Ok(LimitBy { policy, ..self }.told_as(&before))
    }

    pub(crate) fn with_policy(self, set: impl FnOnce(Policy) -> Policy) -> Self {
        LimitBy { policy: set(Policy::clone(&self.policy)).into(), ..self }
    }

    /// Reports this limit to clients in the form of another.
    pub(crate) fn told_as(self, other: &Policy) -> Self {
        let longest = Duration::from_secs(other.longest);
        let spread = Duration::from_secs(other.spread);
        self.with_policy(|policy| {
            let policy = policy.form(other.form).reset_format(other.reset).only_below(other.below);
            policy.longest_wait(longest).spread_retries(spread)
        })
    }

    /// Returns the policy of a decision under a quota or a window.
    fn policy_of(&self, rule: Rule) -> Arc<Policy> {
        if rule == self.policy.rule() { self.policy.clone() } else { self.others.of(&self.policy, rule) }
    }
}

impl<K> fmt::Debug for LimitBy<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitBy").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> DynLimit for LimitBy<K> {
    fn decide<'a>(
        &'a self,
        asked: &mut LayerRequest<'a>,
        rest: &'a [Arc<dyn DynLimit>],
        chain: Option<&LimitChain<'_>>,
    ) -> LimitOutcome {
        let key = self.key.key_from(asked.head);
        // The first limit's key is sampled, even if only other limits apply.
        if let Some(key) = &key
            && asked.sampled
            && rest.len() + 1 == asked.limits
        {
            asked.hash = self.limiter.hash(key);
        }
        if asked.counted.iter().any(|id| *id == self.limiter.id()) {
            return next(asked, rest, chain);
        }
        let index = chain.map_or(0, |chain| chain.index + 1);
        if key.is_none() {
            self.count_keyless(asked);
            match self.missing {
                OnMissingKey::Share => {}
                OnMissingKey::Allow => return next(asked, rest, chain),
                OnMissingKey::Reject => return self.no_key(asked),
            }
        }
        let plan = key.as_ref().and(self.plan.as_ref()).and_then(|choose| choose(asked.head));
        let request = LimiterRequest { key, plan, n: asked.cost };
        let outcome = if rest.is_empty() && chain.is_none() {
            LimitOutcome::Decided(self.limiter.try_acquire(&request), index)
        } else {
            let mut outcome = LimitOutcome::Free;
            self.limiter.with(&request, &mut |limit| {
                outcome = next(asked, rest, Some(&LimitChain { limit, before: chain, index }));
            });
            outcome
        };
        if let LimitOutcome::Decided(result, which) = &outcome {
            self.note(asked, &request, *which == index, result.is_ok());
            if let (Some(refunds), Ok(_)) = (&mut asked.refunds, result) {
                refunds.push(self.refund(request, *which == index));
            }
        }
        outcome
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
    #[cold]
    fn no_key<'a>(&'a self, asked: &mut LayerRequest<'a>) -> LimitOutcome {
        asked.decider = Some(self.decider(self.policy.clone()));
        LimitOutcome::NoKey { check: self.key.check(Some(asked.head)) }
    }

    /// Counts a request without a key. The 1st, 2nd, 4th, 8th and so on are examined for faults.
    #[cold]
    fn count_keyless(&self, asked: &LayerRequest<'_>) {
        if count(&self.counters.keyless).is_power_of_two() {
            self.examine(Some(asked.head), asked.said);
        }
    }

    fn decider(&self, policy: Arc<Policy>) -> Decider<'_> {
        Decider { policy, counters: &self.counters }
    }

    /// Notes the policy of this limit, and a refused key.
    #[inline]
    fn note<'a>(
        &'a self,
        asked: &mut LayerRequest<'a>,
        request: &LimiterRequest<K>,
        decided: bool,
        granted: bool,
    ) {
        let mut policy = self.policy_of(self.limiter.rule(request.plan.as_ref()));
        if !decided {
            return asked.also.push(policy);
        }
        if let (Some(key), false, 1..) = (&request.key, granted, policy.spread) {
            policy = Arc::new(policy.for_key(self.limiter.hash(key)));
        }
        asked.decider = Some(self.decider(policy));
        if let (Some(key), false) = (&request.key, granted) {
            self.top.note(key);
        }
    }

    /// Returns the refund of a granted request.
    #[cold]
    fn refund(&self, request: LimiterRequest<K>, decided: bool) -> Refund {
        let limiter = self.limiter.clone();
        Box::new(move || {
            limiter.refund(&request);
            decided.then(|| limiter.peek(&request))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Quota, RateLimiter};

    #[test]
    fn a_policy_is_made_once_for_each_quota() {
        let limit = LimitBy::new(RateLimiter::<u64>::new(Quota::per_second(10))).shared();
        for n in [10, 20, 30] {
            let rule = Rule::from(Quota::per_second(n));
            let (first, again) = (limit.policy_of(rule), limit.policy_of(rule));
            assert_eq!(first.rule(), rule);
            assert!(Arc::ptr_eq(&first, &again), "{n}/s");
        }
    }
}

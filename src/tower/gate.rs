//! One limit of a layer, and how several are taken at once.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::decision::Counted;
use super::policies::Policies;
use super::store::{Request, Store};
use super::top::Top;
use crate::all_of::{sealed, take_all};
use crate::decision::{Denied, Granted};
use crate::http::{Head, InvalidName, KeyFrom, Policy};
use crate::limiter::RateLimiter;
use crate::plan::Plan;
use crate::quota::Quota;

/// What becomes of a request that has no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// All of these share one bucket, under the limiter's own quota. (It is one of those that keys without room share.)
    #[default]
    Shared,
    /// The limit does not apply to it.
    Allow,
    /// It is rejected: 400, unless [`reject_with`](super::LayerBuilder::reject_with) says otherwise.
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
///     .on_missing_key(OnMissingKey::Reject);
/// # let _ = by_tenant;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LimitBy<K> {
    pub(crate) limiter: Arc<dyn Store<K>>,
    key: Option<Box<dyn KeyFrom<Key = K>>>,
    plan: Option<Choose>,
    missing: OnMissingKey,
    pub(crate) policy: Arc<Policy>,
    /// The same policy for other quotas. It is empty until requests come, when the policy stays as
    /// it is.
    others: Policies,
    pub(crate) top: Top<K>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LimitBy<K> {
    /// By a limiter, which may be in an `Arc` and in other hands as well. Without a [`key`](LimitBy::key) all requests share one
    /// bucket.
    #[must_use]
    pub fn new<S: BuildHasher + Send + Sync + 'static>(
        limiter: impl Into<Arc<RateLimiter<K, S>>>,
    ) -> LimitBy<K> {
        let limiter = limiter.into();
        let policy = Policy::new("default", limiter.quota()).expect("it is a name").into();
        let (others, top) = (Policies::new(), Top::new());
        LimitBy { limiter, key: None, plan: None, missing: OnMissingKey::default(), policy, others, top }
    }

    /// Where the key is found.
    #[must_use]
    pub fn key(self, from: impl KeyFrom<Key = K> + 'static) -> Self {
        LimitBy { key: Some(Box::new(from)), ..self }
    }

    /// Puts requests under a plan of the limiter. `None` is its own quota.
    #[must_use]
    pub fn plan(self, choose: impl Fn(Head<'_>) -> Option<Plan> + Send + Sync + 'static) -> Self {
        LimitBy { plan: Some(Box::new(choose)), ..self }
    }

    /// What becomes of a request without a key.
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
pub(crate) struct Asked<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) cost: u64,
    /// By limiters of layers before this one.
    pub(crate) counted: Option<&'a Counted>,
    /// The limit is enforced for some keys only, by their hash.
    pub(crate) sampled: bool,
    /// The tokens may be given back.
    pub(crate) refundable: bool,
}

/// What all limits of a layer came to.
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    /// Of the limit that has the least left, or refused.
    pub(crate) policy: Option<Arc<Policy>>,
    /// Of all others.
    pub(crate) also: Vec<Arc<Policy>>,
    pub(crate) refunds: Vec<Refund>,
    /// Of the first limit's key, or 0 if nobody asks what it is.
    pub(crate) hash: Option<u64>,
    which: usize,
}

pub(crate) enum Outcome {
    Decided(Result<Granted, Denied>),
    /// No limit applies.
    Free,
    /// There is no key, and one is needed.
    NoKey,
}

/// Gives back what a limit took.
pub(crate) type Refund = Box<dyn FnOnce() + Send>;

impl Verdict {
    fn new(outcome: Outcome, which: usize) -> Verdict {
        Verdict { outcome, policy: None, also: Vec::new(), refunds: Vec::new(), hash: None, which }
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
pub(crate) trait Gate: Send + Sync {
    /// Finds the key, and goes on to the others; the last takes of all or of none. What is left to say of this limit is added to what
    /// came of that.
    fn decide(&self, asked: &Asked<'_>, rest: &[Arc<dyn Gate>], chain: Option<&Chain<'_>>) -> Verdict;
    /// Of its limiter.
    fn id(&self) -> u64;
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Gate for LimitBy<K> {
    fn decide(&self, asked: &Asked<'_>, rest: &[Arc<dyn Gate>], chain: Option<&Chain<'_>>) -> Verdict {
        if asked.counted.is_some_and(|counted| counted.has(self.id())) {
            return next(asked, rest, chain);
        }
        let index = chain.map_or(0, |chain| chain.index + 1);
        let key = self.key.as_ref().and_then(|from| from.key_from(asked.head));
        match self.missing {
            OnMissingKey::Allow if key.is_none() => return next(asked, rest, chain),
            OnMissingKey::Reject if key.is_none() => {
                return Verdict { policy: Some(self.policy.clone()), ..Verdict::new(Outcome::NoKey, index) };
            }
            _ => {}
        }
        let plan = key.as_ref().and(self.plan.as_ref()).and_then(|choose| choose(asked.head));
        let request = Request { key, plan, n: asked.cost };
        let mut verdict = None;
        if rest.is_empty() && chain.is_none() {
            verdict = Some(Verdict::new(Outcome::Decided(self.limiter.try_acquire(&request)), 0));
        } else {
            self.limiter.with(&request, &mut |limit| {
                verdict = Some(next(asked, rest, Some(&Chain { limit, before: chain, index })));
            });
        }
        let verdict = verdict.expect("a store goes on with it");
        self.tell(verdict, asked, index, request)
    }

    fn id(&self) -> u64 {
        self.limiter.id()
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LimitBy<K> {
    /// Adds what is to be said of this limit.
    fn tell(&self, mut verdict: Verdict, asked: &Asked<'_>, index: usize, request: Request<K>) -> Verdict {
        if index == 0 {
            let hash = |key| if asked.sampled { self.limiter.hash(key) } else { 0 };
            verdict.hash = request.key.as_ref().map(hash);
        }
        let Outcome::Decided(result) = &verdict.outcome else { return verdict };
        let quota = request.plan.map_or_else(|| self.limiter.quota(), |plan| plan.quota());
        if verdict.which != index {
            verdict.also.push(self.policy_of(quota));
        } else {
            verdict.policy = Some(self.policy_of(quota));
            if let (Some(key), Err(_)) = (&request.key, result) {
                self.top.note(key);
            }
        }
        if asked.refundable && result.is_ok() {
            let limiter = self.limiter.clone();
            verdict.refunds.push(Box::new(move || limiter.refund(&request)));
        }
        verdict
    }
}

/// The rest of the gates, of which there is one at first; after the last, the decision.
pub(crate) fn next(asked: &Asked<'_>, rest: &[Arc<dyn Gate>], chain: Option<&Chain<'_>>) -> Verdict {
    match (rest.split_first(), chain) {
        (Some((gate, rest)), chain) => gate.decide(asked, rest, chain),
        (None, None) => Verdict::new(Outcome::Free, usize::MAX),
        (None, Some(all)) => match take_all(all) {
            Ok((granted, which)) => Verdict::new(Outcome::Decided(Ok(granted)), which),
            Err(denied) => Verdict::new(Outcome::Decided(Err(denied.denied())), denied.which()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_made_once_for_each_quota() {
        let limit = LimitBy::new(RateLimiter::<u64>::new(Quota::per_second(10)));
        for n in [10, 20, 30] {
            let (first, again) =
                (limit.policy_of(Quota::per_second(n)), limit.policy_of(Quota::per_second(n)));
            assert_eq!(first.quota(), Quota::per_second(n));
            assert!(Arc::ptr_eq(&first, &again), "{n}/s");
        }
    }
}

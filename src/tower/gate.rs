//! One limit of a layer, and how several are taken at once.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use super::decision::Counted;
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
pub struct LimitBy<K, S = RandomState> {
    pub(crate) limiter: Arc<RateLimiter<K, S>>,
    key: Option<Box<dyn KeyFrom<Key = K>>>,
    plan: Option<Choose>,
    missing: OnMissingKey,
    pub(crate) policy: Arc<Policy>,
    pub(crate) top: Top<K>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, S: BuildHasher + Send + Sync + 'static> LimitBy<K, S> {
    /// By a limiter, which others may use as well. Without a [`key`](LimitBy::key) all requests share one bucket.
    #[must_use]
    pub fn new(limiter: impl Into<Arc<RateLimiter<K, S>>>) -> LimitBy<K, S> {
        let limiter = limiter.into();
        let policy = Policy::new("default", limiter.quota()).expect("it is a name").into();
        LimitBy { limiter, key: None, plan: None, missing: OnMissingKey::default(), policy, top: Top::new() }
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

    /// The policy as it is told of a decision under a quota: made ahead for the one that the limiter began with.
    fn policy_of(&self, quota: Quota) -> Arc<Policy> {
        if quota == self.policy.quota() { self.policy.clone() } else { self.policy.with_quota(quota).into() }
    }
}

impl<K: fmt::Debug, S> fmt::Debug for LimitBy<K, S> {
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
    /// Of the first limit's key.
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

    pub(crate) fn is_granted(&self) -> bool {
        matches!(self.outcome, Outcome::Decided(Ok(_)))
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
    fn decide(&self, asked: &Asked<'_>, rest: &[Box<dyn Gate>], chain: Option<&Chain<'_>>) -> Verdict;
    /// Of its limiter.
    fn id(&self) -> u64;
    fn policy_mut(&mut self) -> &mut Arc<Policy>;
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, S: BuildHasher + Send + Sync + 'static> Gate
    for LimitBy<K, S>
{
    fn decide(&self, asked: &Asked<'_>, rest: &[Box<dyn Gate>], chain: Option<&Chain<'_>>) -> Verdict {
        if asked.counted.is_some_and(|counted| counted.has(self.id())) {
            return next(asked, rest, chain);
        }
        let index = chain.map_or(0, |chain| chain.index + 1);
        let Some(key) = self.key.as_ref().and_then(|from| from.key_from(asked.head)) else {
            return match (&self.key, self.missing) {
                (Some(_), OnMissingKey::Allow) => next(asked, rest, chain),
                (Some(_), OnMissingKey::Reject) => {
                    Verdict { policy: Some(self.policy.clone()), ..Verdict::new(Outcome::NoKey, index) }
                }
                _ => {
                    let limit = self.limiter.no_key(asked.cost);
                    let verdict = next(asked, rest, Some(&Chain { limit: &limit, before: chain, index }));
                    let (limiter, cost) = (self.limiter.clone(), asked.cost);
                    let refund = move || limiter.no_key(cost).refund();
                    self.tell(verdict, asked, index, self.limiter.quota(), refund)
                }
            };
        };
        let plan = self.plan.as_ref().and_then(|choose| choose(asked.head));
        let limit = self.limiter.key(&key).n(asked.cost);
        let mut verdict = match &plan {
            // Alone, it is a plain decision.
            None if rest.is_empty() && chain.is_none() => {
                Verdict::new(Outcome::Decided(self.limiter.try_acquire_n(&key, asked.cost)), 0)
            }
            None => next(asked, rest, Some(&Chain { limit: &limit, before: chain, index })),
            Some(plan) => next(asked, rest, Some(&Chain { limit: &limit.under(plan), before: chain, index })),
        };
        if index == 0 {
            verdict.hash = Some(self.limiter.hash(&key));
        }
        if verdict.which == index && matches!(verdict.outcome, Outcome::Decided(Err(_))) {
            self.top.note(&key);
        }
        let quota = plan.map_or_else(|| self.limiter.quota(), |plan| plan.quota());
        let (limiter, cost) = (self.limiter.clone(), asked.cost);
        self.tell(verdict, asked, index, quota, move || {
            let limit = limiter.key(&key).n(cost);
            match &plan {
                Some(plan) => limit.under(plan).refund(),
                None => limit.refund(),
            }
        })
    }

    fn id(&self) -> u64 {
        self.limiter.shared.id
    }

    fn policy_mut(&mut self) -> &mut Arc<Policy> {
        &mut self.policy
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, S: BuildHasher + Send + Sync + 'static> LimitBy<K, S> {
    fn tell(
        &self,
        mut verdict: Verdict,
        asked: &Asked<'_>,
        index: usize,
        quota: Quota,
        refund: impl FnOnce() + Send + 'static,
    ) -> Verdict {
        if matches!(verdict.outcome, Outcome::NoKey) {
            return verdict;
        }
        if verdict.which == index {
            verdict.policy = Some(self.policy_of(quota));
        } else {
            verdict.also.push(self.policy_of(quota));
        }
        if asked.refundable && verdict.is_granted() {
            verdict.refunds.push(Box::new(refund));
        }
        verdict
    }
}

/// The rest of the gates; after the last, the decision.
fn next(asked: &Asked<'_>, rest: &[Box<dyn Gate>], chain: Option<&Chain<'_>>) -> Verdict {
    match (rest.split_first(), chain) {
        (Some((gate, rest)), chain) => gate.decide(asked, rest, chain),
        (None, None) => Verdict::new(Outcome::Free, usize::MAX),
        (None, Some(alone @ Chain { before: None, .. })) => {
            Verdict::new(Outcome::Decided(alone.limit.take().map(|(granted, _)| granted)), 0)
        }
        (None, Some(all)) => match take_all(all) {
            Ok((granted, which)) => Verdict::new(Outcome::Decided(Ok(granted)), which),
            Err(denied) => Verdict::new(Outcome::Decided(Err(denied.denied())), denied.which()),
        },
    }
}

//! One limit of a layer.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::ban::{Ban, BanAfter, BanFlaw, BanRule, Bans, InvalidBan};
use super::counts::LimitCounters;
use super::limiter::{AnyLimiter, HasLine, LayerLimiter, LayerPlan};
use super::part::SearchFuture;
use super::policies::Policies;
use super::share::Share;
use super::top_keys::TopKeys;
use crate::request::key::{Head, KeyFrom};
use crate::response::policy::Policy;
use crate::response::policy_name::InvalidName;
use tollgate::AnyRule;
use tollgate::Denied;

/// The treatment of a request without a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// All such requests share one bucket, under the limiter's own quota. No key shares it.
    Share,
    /// The limit does not apply.
    Allow,
    /// The request is rejected, with 500 if the server has not noted the peer's address, else with
    /// 400. [`reject_with`](crate::LayerBuilder::reject_with) can change the response.
    #[default]
    Reject,
}

type Applies = dyn Fn(Head<'_>) -> bool + Send + Sync;
type ChoosePlan = dyn Fn(Head<'_>) -> Option<LayerPlan> + Send + Sync;
/// Begins the search for the key of a request.
type FindKey = dyn Fn(Head<'_>) -> SearchFuture + Send + Sync;
/// A function that sees the key of a refused request, its policy, and whether the key is banned.
pub(crate) type SeeRefusal<K> = dyn Fn(Option<&K>, &Policy, &Denied, Ban) + Send + Sync;

/// One limit of a layer: a limiter and the source of its keys.
///
/// # Examples
///
/// ```
/// use tollgate_http::HeaderKey;
/// use tollgate_http::{LimitBy, OnMissingKey};
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
    pub(crate) limiter: Arc<dyn LayerLimiter<K>>,
    pub(super) line: Option<Arc<dyn HasLine<K>>>,
    /// Whether the limiter decides at once.
    pub(super) at_hand: bool,
    pub(super) key: Box<dyn KeyFrom<Key = K>>,
    pub(super) find_key: Option<Box<FindKey>>,
    /// Whether the limit applies to a request: to all by default.
    pub(super) applies: Option<Box<Applies>>,
    pub(super) plan: Option<Box<ChoosePlan>>,
    pub(super) missing: OnMissingKey,
    pub(crate) policy: Arc<Policy>,
    /// The same policy for other rules, empty while the limiter has one.
    others: Policies,
    pub(crate) top: TopKeys<K>,
    pub(crate) bans: Option<Bans<K>>,
    pub(super) see_refusal: Option<Box<SeeRefusal<K>>>,
    /// The share of keys whose refusals this limit enforces: none in shadow mode.
    pub(super) enforced: Share,
    pub(super) counters: Arc<LimitCounters>,
}

/// A limiter that still needs a source of keys to become a [`LimitBy`] or a
/// [`LayerBuilder`](crate::LayerBuilder).
///
/// # Examples
///
/// Without a source of keys there is no layer:
///
/// ```compile_fail,E0599
/// use std::net::IpAddr;
/// use tollgate_http::RateLimitLayer;
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::<IpAddr>::new(Quota::per_second(100));
/// let layer = RateLimitLayer::builder(limiter).build();
/// ```
///
/// One bucket for all requests has to be explicit:
///
/// ```
/// use tollgate_http::RateLimitLayer;
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::<()>::new(Quota::per_second(100));
/// let layer = RateLimitLayer::builder(limiter).shared().build();
/// # let _ = layer;
/// ```
#[must_use = "a limit has a source of keys: `.key(..)`, or `.shared()` for one bucket for all requests"]
pub struct NeedsKey<K, T = LimitBy<K>> {
    limiter: AnyLimiter<K>,
    then: PhantomData<fn() -> T>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, T: From<LimitBy<K>>> NeedsKey<K, T> {
    pub(crate) fn new(limiter: impl Into<AnyLimiter<K>>) -> NeedsKey<K, T> {
        NeedsKey { limiter: limiter.into(), then: PhantomData }
    }

    /// Limits each key by itself: a [`ClientIp`](crate::ClientIp),
    /// [`HeaderKey`](crate::HeaderKey), [`Extension`](crate::Extension),
    /// [`key_fn`](crate::key_fn), or a pair of these.
    pub fn key(self, from: impl KeyFrom<Key = K> + 'static) -> T {
        T::from(LimitBy::with(self.limiter, Box::new(from), OnMissingKey::Reject))
    }

    /// Limits each key by itself, where the key takes time to find, as by a look at a database.
    ///
    /// The closure copies the input of the search from the head of the request, which the future
    /// cannot borrow. The future returns `None` if the request has no key. The request waits for it
    /// before any limit decides, with no bound on the time and the number of such searches: a
    /// `Timeout` and a `ConcurrencyLimit` go outside of the layer. Requests that are
    /// [exempt](crate::LayerBuilder::exempt) are not searched for.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_http::RateLimitLayer;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// async fn account_of(token: String) -> Option<u64> {
    ///     // A look at a database.
    ///     (token == "t1").then_some(7)
    /// }
    ///
    /// let layer = RateLimitLayer::builder(RateLimiter::<u64>::new(Quota::per_second(10)))
    ///     .key_async(|head| {
    ///         let token = head.headers.get("authorization").and_then(|value| value.to_str().ok());
    ///         let token = token.map(str::to_owned);
    ///         async { account_of(token?).await }
    ///     })
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn key_async<F>(self, find: impl Fn(Head<'_>) -> F + Send + Sync + 'static) -> T
    where
        F: Future<Output = Option<K>> + Send + 'static,
    {
        let find_key: Box<FindKey> = Box::new(move |head| {
            let search = find(head);
            Box::pin(async move { Box::new(search.await) as Box<dyn Any + Send + Sync> })
        });
        let limit = LimitBy::with(self.limiter, Box::new(|_: Head<'_>| None), OnMissingKey::Reject);
        T::from(LimitBy { find_key: Some(find_key), ..limit })
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
    /// Begins a limit by a limiter of buckets or of windows, which may be shared in an `Arc`, or by
    /// [one of your own](AnyLimiter::of). [`key`](NeedsKey::key) or
    /// [`shared`](NeedsKey::shared) comes next.
    pub fn new(limiter: impl Into<AnyLimiter<K>>) -> NeedsKey<K, LimitBy<K>> {
        NeedsKey::new(limiter)
    }

    fn with(limiter: AnyLimiter<K>, key: Box<dyn KeyFrom<Key = K>>, missing: OnMissingKey) -> Self {
        let AnyLimiter { limiter, line } = limiter;
        let policy = Policy::new("default", limiter.rule(None)).expect("it is a name").into();
        let (others, top, counters) = (Policies::new(), TopKeys::new(), Arc::default());
        let at_hand = limiter.is_at_hand();
        LimitBy {
            limiter,
            line,
            at_hand,
            key,
            find_key: None,
            applies: None,
            plan: None,
            missing,
            policy,
            others,
            top,
            bans: None,
            see_refusal: None,
            enforced: Share::ALL,
            counters,
        }
    }

    /// Applies the limit only to requests by a closure, as to one method or one route.
    ///
    /// Other requests are as if the layer had no such limit. Called again, both closures have to
    /// return `true`.
    ///
    /// A server may read several spellings of a path as one. So take the route that the server has
    /// found, such as axum's `MatchedPath` among the extensions, or match on the path as the server
    /// does.
    ///
    /// # Examples
    ///
    /// Logins have a limit of their own beside that for all requests:
    ///
    /// ```
    /// use http::Method;
    /// use tollgate_http::ClientIp;
    /// use tollgate_http::{LimitBy, RateLimitLayer};
    /// use tollgate::{Quota, RateLimiter, Window};
    ///
    /// let logins = LimitBy::new(RateLimiter::new(Window::per_hour(20).sliding()))
    ///     .key(ClientIp::peer())
    ///     .name("login")?
    ///     .when(|head| head.method == Method::POST && head.uri.path() == "/login");
    /// let layer = RateLimitLayer::builder(RateLimiter::new(Quota::per_second(100)))
    ///     .key(ClientIp::peer())
    ///     .and(logins)
    ///     .build();
    /// # let _ = layer;
    /// # Ok::<(), tollgate_http::InvalidName>(())
    /// ```
    #[must_use]
    pub fn when(self, applies: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        let applies: Box<Applies> = match self.applies {
            None => Box::new(applies),
            Some(before) => Box::new(move |head| before(head) && applies(head)),
        };
        LimitBy { applies: Some(applies), ..self }
    }

    /// Bans a key that is refused `refusals` times within `window`. The duration comes next, by
    /// [`for_`](BanAfter::for_).
    ///
    /// The law: each refusal of a key by this limit that is its `refusals`-th within `window`
    /// begins a ban, the key is refused until the ban's duration has passed, and no refusal by a
    /// ban counts. `Retry-After` is the rest of the ban.
    ///
    /// **Bans are for keys that a client cannot choose:** its address, an
    /// [`Extension`](crate::Extension) of a layer that authenticates, or a pair with one of
    /// these. By a header that any client can write, three refused requests with the name of
    /// another client would ban the other. So a [`HeaderKey`](crate::HeaderKey) alone is an
    /// error, unless it is [proved](crate::HeaderKey::proved). Of a closure nothing is known.
    ///
    /// * A refusal counts for `window` and for up to one of its sub-windows longer, by
    ///   [`Window::sliding`](tollgate::Window::sliding).
    /// * A refusal that begins a ban does not count for the next ban.
    /// * A refusal for want of room, by [`WhenFull`](tollgate::WhenFull), counts only if a bucket
    ///   of the key's own would have refused the request, too: else other keys took the tokens.
    ///   That bucket has the requests that were refused for want of room, under the rule in force.
    /// * A ban ends up to 2^-16 of its duration early, by the tick in which it began, and never
    ///   late. `Retry-After` is the rest of the ban to that end.
    /// * Exempt requests, and those without a key, are neither refused nor counted.
    /// * The refusals, the bans and the keys without room are in limiters of this limit, each with
    ///   a bound on its keys: see [`max_keys`](BanAfter::max_keys). No flood of other keys ends a
    ///   ban, and no key is banned for the refusals of another one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_http::ClientIp;
    /// use tollgate_http::LimitBy;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limit = LimitBy::new(RateLimiter::new(Quota::per_second(10)))
    ///     .key(ClientIp::peer())
    ///     .ban_after(100, Duration::from_secs(60))
    ///     .for_(Duration::from_secs(3_600))?;
    /// # let _ = limit;
    /// # Ok::<(), tollgate_http::InvalidBan>(())
    /// ```
    pub fn ban_after(self, refusals: u64, window: Duration) -> BanAfter<LimitBy<K>> {
        BanAfter::new(refusals, window, self, |limit, rule| limit.with_bans(&rule))
    }

    /// Sets the function that sees refused keys. Without feature `tracing` no layer has one.
    #[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "see above"))]
    pub(crate) fn with_see_refusal(self, see: Box<SeeRefusal<K>>) -> Self {
        LimitBy { see_refusal: Some(see), ..self }
    }

    pub(crate) fn with_bans(self, rule: &BanRule) -> Result<Self, InvalidBan> {
        if !self.key.is_proved() {
            return Err(InvalidBan(BanFlaw::Unproved));
        }
        let bans = Some(Bans::new(rule, self.limiter.clock())?);
        Ok(LimitBy { bans, ..self })
    }

    /// Enforces the refusals of `percent` hundredths of this limit's keys.
    ///
    /// They are always the same keys. 100 and above is all keys, the default. For all other keys
    /// the limit is in shadow mode, as for all keys by `enforce(0)`: it refuses no request, and
    /// reports none to its client. A request that the other limits grant takes tokens of this limit
    /// if they are there. If not, the request is passed on and counts as `shadow_refused`. With
    /// `enforce(0)` a request without a key is not rejected.
    ///
    /// The share is the same in each process. A client that chooses its key can try until it has
    /// one that is not enforced.
    #[must_use]
    pub fn enforce(self, percent: u8) -> Self {
        LimitBy { enforced: Share::of_percent(percent), ..self }
    }

    /// Chooses a plan for each request, as by a customer's tier. `None` is the limiter's own rule.
    ///
    /// It is a [`Plan`](tollgate::Plan) of the limiter, or for a limiter of another crate a
    /// [`Quota`](tollgate::Quota). Take the tier from a layer that authenticates: a client can
    /// write any header.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    /// use tollgate_http::{Extension, RateLimitLayer};
    ///
    /// /// The authentication inserts both into the extensions of the request.
    /// #[derive(Clone, PartialEq, Eq, Hash)]
    /// struct Customer(u32);
    /// #[derive(Clone)]
    /// struct IsPro(bool);
    ///
    /// let (free, pro) = (Quota::per_second(5), Quota::per_second(50));
    /// let customers = RateLimiter::<Customer>::builder(free).headroom(pro)?.build();
    /// let pro = customers.plan(pro)?;
    /// let layer = RateLimitLayer::builder(customers)
    ///     .key(Extension::<Customer>::new())
    ///     .plan(move |head| matches!(head.extensions.get(), Some(IsPro(true))).then_some(pro))
    ///     .build();
    /// # let _ = layer;
    /// # Ok::<(), tollgate::InvalidRule>(())
    /// ```
    #[must_use]
    pub fn plan<P: Into<LayerPlan>>(
        self,
        choose: impl Fn(Head<'_>) -> Option<P> + Send + Sync + 'static,
    ) -> Self {
        LimitBy { plan: Some(Box::new(move |head| choose(head).map(P::into))), ..self }
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
        Ok(LimitBy { policy, ..self }.with_form_of(&before))
    }

    pub(crate) fn with_policy(self, set: impl FnOnce(Policy) -> Policy) -> Self {
        LimitBy { policy: set(Policy::clone(&self.policy)).into(), ..self }
    }

    /// Reports this limit to clients in the form of another.
    pub(crate) fn with_form_of(self, other: &Policy) -> Self {
        let spread = Duration::from_secs(other.spread);
        self.with_policy(|policy| policy.form(other.chosen).only_below(other.below).spread_retries(spread))
    }

    /// Returns the policy of a decision under a quota or a window.
    pub(super) fn policy_of(&self, rule: AnyRule) -> Arc<Policy> {
        if rule == self.policy.rule() { self.policy.clone() } else { self.others.of(&self.policy, rule) }
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LimitBy<K> {
    /// Returns the rest of the ban of a key, if it is banned.
    pub(crate) fn banned(&self, key: &K) -> Option<Duration> {
        self.bans.as_ref()?.check(key)?.retry_after()
    }

    pub(crate) fn unban(&self, key: &K) -> bool {
        self.bans.as_ref().is_some_and(|bans| bans.unban(key))
    }
}

impl<K> fmt::Debug for LimitBy<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitBy").field("policy", &self.policy).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{Quota, RateLimiter};

    #[test]
    fn a_policy_is_made_once_for_each_quota() {
        let limit = LimitBy::new(RateLimiter::<u64>::new(Quota::per_second(10))).shared();
        for n in [10, 20, 30] {
            let rule = AnyRule::from(Quota::per_second(n));
            let (first, again) = (limit.policy_of(rule), limit.policy_of(rule));
            assert_eq!(first.rule(), rule);
            assert!(Arc::ptr_eq(&first, &again), "{n}/s");
        }
    }
}

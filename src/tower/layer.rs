//! The layer, and how it is set up.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tower_layer::Layer;

use super::counters::{Counters, LayerStats};
use super::decision::Decision;
use super::gate::{Gate, LimitBy, OnMissingKey};
use super::service::RateLimit;
use crate::http::{Bare, ClientIp, Head, HeaderKey, Headers, InvalidName, KeyFrom, Policy, ResetFormat};
use crate::limiter::RateLimiter;
use crate::plan::Plan;

type Cost = Box<dyn Fn(Head<'_>) -> u64 + Send + Sync>;
type Skip = Box<dyn Fn(Head<'_>) -> bool + Send + Sync>;
type Hook = Box<dyn Fn(Head<'_>, &Decision) + Send + Sync>;
pub(crate) type RefundOn = Arc<dyn Fn(StatusCode) -> bool + Send + Sync>;

/// What all services of a layer share.
pub(crate) struct State<K, R, S> {
    pub(crate) first: LimitBy<K, S>,
    pub(crate) others: Vec<Box<dyn Gate>>,
    /// Of all of these limiters.
    pub(crate) ids: Arc<[u64]>,
    pub(crate) cost: Option<Cost>,
    pub(crate) skip: Option<Skip>,
    pub(crate) hook: Option<Hook>,
    pub(crate) refund_on: Option<RefundOn>,
    /// Of 2^32.
    pub(crate) enforced: u64,
    pub(crate) reject: R,
    pub(crate) counters: Arc<Counters>,
}

/// A layer that limits requests. See the [module](super).
///
/// A clone is the same layer.
pub struct RateLimitLayer<K, R = Bare, S = RandomState> {
    pub(crate) state: Arc<State<K, R, S>>,
}

impl<K, S> RateLimitLayer<K, Bare, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Begins a layer on a limiter, which may be in an `Arc` and in other hands as well.
    pub fn builder(limiter: impl Into<Arc<RateLimiter<K, S>>>) -> LayerBuilder<K, Bare, S> {
        LayerBuilder {
            first: LimitBy::new(limiter),
            others: Vec::new(),
            cost: None,
            skip: None,
            hook: None,
            refund_on: None,
            shadow: false,
            enforced: WHOLE,
            tell: Tell::default(),
            reject: Bare,
        }
    }
}

const WHOLE: u64 = 1 << 32;

impl RateLimitLayer<std::net::IpAddr> {
    /// The classic chain, "by `X-API-Key`, else by address", as it does no harm: each address is limited, and each value of the
    /// header as well. So whoever makes up keys is still one address, and a key that moves from address to address is still
    /// one key. A request without the header is limited by its address only.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::http::{ClientIp, HeaderKey};
    /// use tollgate::tower::RateLimitLayer;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let by_address = RateLimiter::new(Quota::per_second(100));
    /// let by_key = RateLimiter::new(Quota::per_second(20));
    /// let layer =
    ///     RateLimitLayer::by_address_and_key(by_address, ClientIp::peer(), by_key, HeaderKey::new("x-api-key")?)
    ///         .build();
    /// # let _ = layer;
    /// # Ok::<(), http::header::InvalidHeaderName>(())
    /// ```
    pub fn by_address_and_key(
        addresses: impl Into<Arc<RateLimiter<std::net::IpAddr>>>,
        address: ClientIp,
        keys: impl Into<Arc<RateLimiter<crate::http::Digest>>>,
        key: HeaderKey,
    ) -> LayerBuilder<std::net::IpAddr> {
        let keys = LimitBy::new(keys).key(key).on_missing_key(OnMissingKey::Allow);
        let named = |limit: LimitBy<_>| limit.name("key").expect("it is a name");
        let all = RateLimitLayer::builder(addresses).key(address).name("address").expect("it is a name");
        all.and(named(keys))
    }
}

/// How clients are told.
#[derive(Clone, Copy, Debug, Default)]
struct Tell {
    form: Headers,
    reset: ResetFormat,
    below: Option<u8>,
    longest: Option<Duration>,
}

impl Tell {
    fn of(self, policy: Policy) -> Policy {
        let policy = policy.form(self.form).reset_format(self.reset);
        let policy = self.below.map_or_else(|| policy.clone(), |below| policy.clone().only_below(below));
        self.longest.map_or_else(|| policy.clone(), |longest| policy.clone().longest_wait(longest))
    }
}

/// Sets up a [`RateLimitLayer`].
#[must_use]
pub struct LayerBuilder<K, R = Bare, S = RandomState> {
    first: LimitBy<K, S>,
    others: Vec<Box<dyn Gate>>,
    cost: Option<Cost>,
    skip: Option<Skip>,
    hook: Option<Hook>,
    refund_on: Option<RefundOn>,
    shadow: bool,
    enforced: u64,
    tell: Tell,
    reject: R,
}

impl<K, R, S> LayerBuilder<K, R, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Where the key is found: [`ClientIp`], [`HeaderKey`], [`Extension`](crate::http::Extension), a closure, a pair of these.
    /// Without it all requests share one bucket.
    pub fn key(self, from: impl KeyFrom<Key = K> + 'static) -> Self {
        LayerBuilder { first: self.first.key(from), ..self }
    }

    /// Puts requests under a [`Plan`] of the limiter, as by the tier of a customer. `None` is its own quota.
    pub fn plan(self, choose: impl Fn(Head<'_>) -> Option<Plan> + Send + Sync + 'static) -> Self {
        LayerBuilder { first: self.first.plan(choose), ..self }
    }

    /// What becomes of a request without a key.
    pub fn on_missing_key(self, missing: OnMissingKey) -> Self {
        LayerBuilder { first: self.first.on_missing_key(missing), ..self }
    }

    /// The name of the limit, for clients and for statistics: `default` if it is not given.
    ///
    /// # Errors
    ///
    /// It is not of 1 to 64 printable ASCII characters.
    pub fn name(self, name: &str) -> Result<Self, InvalidName> {
        Ok(LayerBuilder { first: self.first.name(name)?, ..self })
    }

    /// One more limit. A request is granted by all of them, or takes from none.
    pub fn and<L, T>(mut self, limit: LimitBy<L, T>) -> Self
    where
        L: Hash + Eq + Clone + Send + Sync + 'static,
        T: BuildHasher + Send + Sync + 'static,
    {
        self.others.push(Box::new(limit));
        self
    }

    /// What a request costs, in tokens: 1 if it is not given. One that costs 0 is always granted.
    pub fn cost(self, cost: impl Fn(Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        LayerBuilder { cost: Some(Box::new(cost)), ..self }
    }

    /// Requests that are not limited at all, as those that ask for the server's health.
    pub fn skip(self, skip: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        LayerBuilder { skip: Some(Box::new(skip)), ..self }
    }

    /// Decides and counts, but refuses nobody, and tells nobody: a dry run.
    pub fn shadow(self, shadow: bool) -> Self {
        LayerBuilder { shadow, ..self }
    }

    /// Refuses only so many hundredths of the first limit's keys, always the same; to the others it is as in
    /// [shadow mode](LayerBuilder::shadow). 100 and more is all.
    pub fn enforce_percent(self, percent: u8) -> Self {
        LayerBuilder { enforced: WHOLE * u64::from(percent.min(100)) / 100, ..self }
    }

    /// Gives the tokens back if the response's status is one of these: a login that succeeded, a request that the server failed.
    ///
    /// They are taken until then, so of requests at the same time more may be refused than would be one after the other. A request that
    /// is dropped, or that ends in an error of the service, gives nothing back.
    pub fn refund_on(self, refund: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        LayerBuilder { refund_on: Some(Arc::new(refund)), ..self }
    }

    /// Which headers responses get.
    pub fn headers(self, form: Headers) -> Self {
        LayerBuilder { tell: Tell { form, ..self.tell }, ..self }
    }

    /// What `X-RateLimit-Reset` counts from.
    pub fn reset_format(self, reset: ResetFormat) -> Self {
        LayerBuilder { tell: Tell { reset, ..self.tell }, ..self }
    }

    /// As [`Policy::only_below`].
    pub fn only_below(self, percent: u8) -> Self {
        LayerBuilder { tell: Tell { below: Some(percent), ..self.tell }, ..self }
    }

    /// As [`Policy::longest_wait`].
    pub fn longest_wait(self, longest: Duration) -> Self {
        LayerBuilder { tell: Tell { longest: Some(longest), ..self.tell }, ..self }
    }

    /// Shows each decision, with the head of its request: as for a log. It is called before the request is passed on, or refused.
    pub fn on_decision(self, hook: impl Fn(Head<'_>, &Decision) + Send + Sync + 'static) -> Self {
        LayerBuilder { hook: Some(Box::new(hook)), ..self }
    }

    /// Makes the responses to refused requests: [`Problem`](crate::http::Problem), or a closure. An empty one if it is not given.
    ///
    /// Headers that tell of the limit are added.
    pub fn reject_with<T>(self, reject: T) -> LayerBuilder<K, T, S> {
        let LayerBuilder { first, others, cost, skip, hook, refund_on, shadow, enforced, tell, reject: _ } =
            self;
        LayerBuilder { first, others, cost, skip, hook, refund_on, shadow, enforced, tell, reject }
    }

    /// The layer.
    #[must_use]
    pub fn build(self) -> RateLimitLayer<K, R, S> {
        let LayerBuilder {
            mut first,
            mut others,
            cost,
            skip,
            hook,
            refund_on,
            shadow,
            enforced,
            tell,
            reject,
        } = self;
        let ids = [first.id()].into_iter().chain(others.iter().map(|gate| gate.id())).collect();
        let gates = others.iter_mut().map(|gate| gate.policy_mut());
        for policy in [first.policy_mut()].into_iter().chain(gates) {
            *policy = Arc::new(tell.of(Policy::clone(policy)));
        }
        let enforced = if shadow { 0 } else { enforced };
        let counters = Arc::default();
        let state = State { first, others, ids, cost, skip, hook, refund_on, enforced, reject, counters };
        RateLimitLayer { state: Arc::new(state) }
    }
}

impl<K: Hash + Eq + Clone, R, S> RateLimitLayer<K, R, S> {
    /// The first limit's limiter, as to change its quota.
    #[must_use]
    pub fn limiter(&self) -> &Arc<RateLimiter<K, S>> {
        &self.state.first.limiter
    }

    /// What was decided so far.
    #[must_use]
    pub fn stats(&self) -> LayerStats {
        let limiter = self.state.first.limiter.stats();
        LayerStats {
            policy: self.state.first.policy.name().to_owned(),
            keys: limiter.keys,
            evicted: limiter.evicted,
            without_room: limiter.shared + limiter.refused_full + limiter.allowed_full,
            ..LayerStats::of(&self.state.counters)
        }
    }

    /// Up to `n` keys that the first limit refused most, with how often: for logs and dashboards.
    ///
    /// It is a sketch of 512 keys. A count may be too high by that of a key that it replaced, and too low by what was
    /// refused while another thread was writing.
    #[must_use]
    pub fn top_refused(&self, n: usize) -> Vec<(K, u64)> {
        self.state.first.top.most(n)
    }
}

impl<T, K, R, S> Layer<T> for RateLimitLayer<K, R, S> {
    type Service = RateLimit<T, K, R, S>;

    fn layer(&self, inner: T) -> RateLimit<T, K, R, S> {
        RateLimit { inner, state: self.state.clone() }
    }
}

impl<K, R, S> Clone for RateLimitLayer<K, R, S> {
    fn clone(&self) -> Self {
        RateLimitLayer { state: self.state.clone() }
    }
}

impl<K, R, S> fmt::Debug for RateLimitLayer<K, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("policy", &self.state.first.policy).finish_non_exhaustive()
    }
}

impl<K, R, S> fmt::Debug for LayerBuilder<K, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerBuilder").field("policy", &self.first.policy).finish_non_exhaustive()
    }
}

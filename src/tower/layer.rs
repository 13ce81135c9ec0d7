//! The layer, and how it is set up.

use std::any::Any;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_utils::CachePadded;
use http::{Response, StatusCode};
use tower_layer::Layer;

use super::chain::DynLimit;
use super::decide::{ALL_KEYS, LayerState};
use super::decision::Decision;
use super::limit_by::{LimitBy, NeedsKey, OnMissingKey};
use super::said::Said;
use super::service::RateLimit;
use super::stats::LayerStats;
use crate::http::{
    Bare, Check, ClientIp, Head, HeaderKey, Headers, InvalidName, Policy, Refusal, Reject, ResetFormat,
};
use crate::limiter::rate_limiter::RateLimiter;
use crate::word::plan::Plan;

/// A layer that limits requests. See the [module](super).
///
/// A clone is the same layer. `K` are the keys of its first limit.
pub struct RateLimitLayer<K> {
    state: Arc<LayerState>,
    first: Arc<LimitBy<K>>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> RateLimitLayer<K> {
    /// Begins a layer on a limiter, which may be in an `Arc` and in other hands as well.
    /// [`key`](NeedsKey::key) or [`shared`](NeedsKey::shared) comes next.
    pub fn builder<S: BuildHasher + Send + Sync + 'static>(
        limiter: impl Into<Arc<RateLimiter<K, S>>>,
    ) -> NeedsKey<K, LayerBuilder<K>> {
        NeedsKey::new(limiter)
    }
}

/// A layer of one limit, to be set up.
impl<K> From<LimitBy<K>> for LayerBuilder<K> {
    fn from(first: LimitBy<K>) -> LayerBuilder<K> {
        let state = LayerState {
            limits: Box::default(),
            ids: Arc::default(),
            cost: None,
            skip: None,
            hook: None,
            refund_on: None,
            enforced: ALL_KEYS,
            reject: Box::new(Bare),
            skipped: CachePadded::default(),
            said: Said::default(),
        };
        LayerBuilder { first, others: Vec::new(), shadow: false, state }
    }
}

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

/// Makes a limit ready, and has clients told of it as of the first.
type Finish = Box<dyn FnOnce(&Policy) -> Arc<dyn DynLimit>>;

/// Sets up a [`RateLimitLayer`].
#[must_use]
pub struct LayerBuilder<K> {
    first: LimitBy<K>,
    others: Vec<Finish>,
    shadow: bool,
    /// Without the limits.
    state: LayerState,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LayerBuilder<K> {
    /// Puts requests under a [`Plan`] of the limiter, as by the tier of a customer. `None` is its own quota.
    pub fn plan(self, choose: impl Fn(Head<'_>) -> Option<Plan> + Send + Sync + 'static) -> Self {
        LayerBuilder { first: self.first.plan(choose), ..self }
    }

    /// What becomes of a request without a key: it is rejected if this is not given.
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
    pub fn and<L: Hash + Eq + Clone + Send + Sync + 'static>(mut self, limit: LimitBy<L>) -> Self {
        self.others.push(Box::new(|first| Arc::new(limit.told_as(first))));
        self
    }

    /// What a request costs, in tokens: 1 if it is not given. One that costs 0 is always granted.
    pub fn cost(mut self, cost: impl Fn(Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.state.cost = Some(Box::new(cost));
        self
    }

    /// Requests that are not limited at all, as those that ask for the server's health.
    pub fn skip(mut self, skip: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.state.skip = Some(Box::new(skip));
        self
    }

    /// Decides and counts, but refuses nobody, and tells nobody: a dry run.
    pub fn shadow(self, shadow: bool) -> Self {
        LayerBuilder { shadow, ..self }
    }

    /// Refuses only so many hundredths of the first limit's keys, always the same; to the others it is as in
    /// [shadow mode](LayerBuilder::shadow). 100 and more is all.
    pub fn enforce_percent(mut self, percent: u8) -> Self {
        self.state.enforced = ALL_KEYS * u64::from(percent.min(100)) / 100;
        self
    }

    /// Gives the tokens back if the response's status is one of these: a login that succeeded, a request that the server failed.
    ///
    /// They are taken until then, so of requests at the same time more may be refused than would be one after the other. A request that
    /// is dropped, or that ends in an error of the service, gives nothing back.
    pub fn refund_on(mut self, refund: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.state.refund_on = Some(Arc::new(refund));
        self
    }

    /// Keeps the layer from saying a fault of the setup. May be called for several.
    ///
    /// # Examples
    ///
    /// Clients in the same private network, some of which send `X-Forwarded-For`:
    ///
    /// ```
    /// use tollgate::http::{Check, ClientIp};
    /// use tollgate::tower::RateLimitLayer;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let layer = RateLimitLayer::builder(RateLimiter::new(Quota::per_second(100)))
    ///     .key(ClientIp::peer())
    ///     .silence(Check::PeerIsProxy)
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn silence(self, check: Check) -> Self {
        self.state.said.mark(check);
        self
    }

    /// Which headers responses get.
    pub fn headers(self, form: Headers) -> Self {
        self.with_policy(|policy| policy.form(form))
    }

    /// What `X-RateLimit-Reset` counts from.
    pub fn reset_format(self, reset: ResetFormat) -> Self {
        self.with_policy(|policy| policy.reset_format(reset))
    }

    /// As [`Policy::only_below`].
    pub fn only_below(self, percent: u8) -> Self {
        self.with_policy(|policy| policy.only_below(percent))
    }

    /// As [`Policy::longest_wait`].
    pub fn longest_wait(self, longest: Duration) -> Self {
        self.with_policy(|policy| policy.longest_wait(longest))
    }

    fn with_policy(self, set: impl FnOnce(Policy) -> Policy) -> Self {
        LayerBuilder { first: self.first.with_policy(set), ..self }
    }

    /// Shows each decision, with the head of its request: as for a log. It is called before the request is passed on, or refused.
    pub fn on_decision(mut self, hook: impl Fn(Head<'_>, &Decision) + Send + Sync + 'static) -> Self {
        self.state.hook = Some(Box::new(hook));
        self
    }

    /// Makes the responses to refused requests by a closure. An empty one if it is not given.
    ///
    /// The body is anything that becomes [`Bytes`]: a text, a `String`, a `Vec`. Headers that tell of the limit are added.
    /// A closure that serves gRPC begins with [`grpc_response`](Refusal::grpc_response).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::tower::RateLimitLayer;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let layer = RateLimitLayer::builder(RateLimiter::<String>::new(Quota::per_second(1)))
    ///     .shared()
    ///     .reject_with(|refusal| refusal.response(format!("the limit is {}\n", refusal.policy().quota())))
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn reject_with<T: Into<Bytes>>(
        self,
        respond: impl Fn(&Refusal<'_>) -> Response<T> + Send + Sync + 'static,
    ) -> Self {
        self.reject_as(move |refusal: &Refusal<'_>| respond(refusal).map(Into::into))
    }

    /// Makes the responses to refused requests by a value: a [`Problem`](crate::http::Problem), or a [`Reject`] of your own.
    pub fn reject_as(mut self, reject: impl Reject<Bytes> + 'static) -> Self {
        self.state.reject = Box::new(reject);
        self
    }

    /// The layer.
    #[must_use]
    pub fn build(self) -> RateLimitLayer<K> {
        let LayerBuilder { first, others, shadow, mut state } = self;
        let first = Arc::new(first);
        let others = others.into_iter().map(|finish| finish(&first.policy));
        state.limits = std::iter::once(first.clone() as Arc<dyn DynLimit>).chain(others).collect();
        state.ids = state.limits.iter().map(|limit| limit.id()).collect();
        if shadow {
            state.enforced = 0;
        }
        state.examine(None);
        RateLimitLayer { state: Arc::new(state), first }
    }
}

impl<K: Hash + Eq + Clone> RateLimitLayer<K> {
    /// Decisions so far, of the layer and of each limit.
    #[must_use]
    pub fn stats(&self) -> LayerStats {
        let limits = self.state.limits.iter().map(|limit| limit.stats()).collect();
        LayerStats::of(limits, self.state.skipped.load(Ordering::Relaxed))
    }

    /// Up to `n` keys that the first limit refused most, with the number of refusals: for logs and dashboards.
    ///
    /// It is a sketch of 512 keys. A count may be too high by that of a key that it replaced, and too low by what was
    /// refused while another thread was writing.
    #[must_use]
    pub fn top_refused(&self, n: usize) -> Vec<(K, u64)> {
        self.first.top.most(n)
    }

    /// As [`top_refused`](RateLimitLayer::top_refused), of the limit with a name and its own keys. `None` if no limit has this name
    /// and keys of this type.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::http::{ClientIp, Digest, HeaderKey};
    /// use tollgate::tower::RateLimitLayer;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let (by_address, by_key) = (Quota::per_second(100), Quota::per_second(20));
    /// let (by_address, by_key) = (RateLimiter::new(by_address), RateLimiter::new(by_key));
    /// let key = HeaderKey::new("x-api-key")?;
    /// let layer = RateLimitLayer::by_address_and_key(by_address, ClientIp::peer(), by_key, key).build();
    /// assert_eq!(layer.top_refused_of::<Digest>("key", 10), Some(vec![]));
    /// # Ok::<(), http::header::InvalidHeaderName>(())
    /// ```
    #[must_use]
    pub fn top_refused_of<L: Hash + Eq + Clone + 'static>(
        &self,
        limit: &str,
        n: usize,
    ) -> Option<Vec<(L, u64)>> {
        let limits = self.state.limits.iter().filter_map(|limit| (&**limit as &dyn Any).downcast_ref());
        let limit = limits.into_iter().find(|by: &&LimitBy<L>| by.policy.name() == limit)?;
        Some(limit.top.most(n))
    }
}

impl<T, K> Layer<T> for RateLimitLayer<K> {
    type Service = RateLimit<T>;

    fn layer(&self, inner: T) -> RateLimit<T> {
        RateLimit { inner, state: self.state.clone() }
    }
}

impl<K> Clone for RateLimitLayer<K> {
    fn clone(&self) -> Self {
        RateLimitLayer { state: self.state.clone(), first: self.first.clone() }
    }
}

impl<K> fmt::Debug for RateLimitLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("policy", &self.first.policy).finish_non_exhaustive()
    }
}

impl<K> fmt::Debug for LayerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerBuilder").field("policy", &self.first.policy).finish_non_exhaustive()
    }
}

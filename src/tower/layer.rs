//! The layer and its builder.

use std::any::Any;
use std::fmt;
use std::hash::Hash;
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
use super::limiter::AnyLimiter;
use super::said::Said;
use super::service::RateLimit;
use super::stats::LayerStats;
use crate::http::{
    Bare, Check, ClientIp, Head, HeaderKey, Headers, InvalidName, Policy, Refusal, Reject, ResetFormat,
};
use crate::limiter::window_key::Cap;
use crate::word::plan::Plan;

/// A layer that limits requests. See the [module](super).
///
/// A clone is the same layer. `K` are the keys of its first limit.
pub struct RateLimitLayer<K> {
    state: Arc<LayerState>,
    first: Arc<LimitBy<K>>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> RateLimitLayer<K> {
    /// Begins a layer on a limiter of buckets or of windows, which may be shared in an `Arc`.
    /// [`key`](NeedsKey::key) or [`shared`](NeedsKey::shared) comes next.
    pub fn builder(limiter: impl Into<AnyLimiter<K>>) -> NeedsKey<K, LayerBuilder<K>> {
        NeedsKey::new(limiter)
    }
}

impl<K> From<LimitBy<K>> for LayerBuilder<K> {
    fn from(first: LimitBy<K>) -> LayerBuilder<K> {
        let state = LayerState {
            limits: Box::default(),
            ids: Vec::new().into(),
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
    /// Limits each address, and each value of a header such as `X-API-Key` as well.
    ///
    /// A client that makes up keys is still one address, and a key that moves between addresses is
    /// still one key. A request without the header is limited by its address only.
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
        addresses: impl Into<AnyLimiter<std::net::IpAddr>>,
        address: ClientIp,
        keys: impl Into<AnyLimiter<crate::http::Digest>>,
        key: HeaderKey,
    ) -> LayerBuilder<std::net::IpAddr> {
        let keys = LimitBy::new(keys).key(key).on_missing_key(OnMissingKey::Allow);
        let named = |limit: LimitBy<_>| limit.name("key").expect("it is a name");
        let all = RateLimitLayer::builder(addresses).key(address).name("address").expect("it is a name");
        all.and(named(keys))
    }
}

/// Completes a limit by the first limit's policy, which says how to report it.
type Finish = Box<dyn FnOnce(&Policy) -> Arc<dyn DynLimit>>;

/// The builder of a [`RateLimitLayer`].
#[must_use]
pub struct LayerBuilder<K> {
    first: LimitBy<K>,
    others: Vec<Finish>,
    shadow: bool,
    /// The layer's state, still without the limits.
    state: LayerState,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LayerBuilder<K> {
    /// Chooses a [`Plan`] of the limiter for each request; see [`LimitBy::plan`].
    pub fn plan(self, choose: impl Fn(Head<'_>) -> Option<Plan> + Send + Sync + 'static) -> Self {
        LayerBuilder { first: self.first.plan(choose), ..self }
    }

    /// Chooses a [`Cap`] of the limiter of windows for each request; see [`LimitBy::cap`].
    pub fn cap(self, choose: impl Fn(Head<'_>) -> Option<Cap> + Send + Sync + 'static) -> Self {
        LayerBuilder { first: self.first.cap(choose), ..self }
    }

    /// Sets the treatment of requests without a key, which are rejected by default.
    ///
    /// After [`shared`](super::NeedsKey::shared) the default is [`Share`](OnMissingKey::Share),
    /// because no request has a key.
    pub fn on_missing_key(self, missing: OnMissingKey) -> Self {
        LayerBuilder { first: self.first.on_missing_key(missing), ..self }
    }

    /// Names the limit; see [`LimitBy::name`].
    ///
    /// # Errors
    ///
    /// `name` is not of 1 to 64 printable ASCII characters.
    pub fn name(self, name: &str) -> Result<Self, InvalidName> {
        Ok(LayerBuilder { first: self.first.name(name)?, ..self })
    }

    /// Adds a limit. A request is granted by all limits, or takes from none.
    pub fn and<L: Hash + Eq + Clone + Send + Sync + 'static>(mut self, limit: LimitBy<L>) -> Self {
        self.others.push(Box::new(|first| Arc::new(limit.told_as(first))));
        self
    }

    /// Sets the tokens that a request costs, 1 by default. A cost of 0 is always granted.
    pub fn cost(mut self, cost: impl Fn(Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.state.cost = Some(Box::new(cost));
        self
    }

    /// Exempts requests from all limits, such as health checks.
    pub fn skip(mut self, skip: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.state.skip = Some(Box::new(skip));
        self
    }

    /// Sets shadow mode, a dry run: each request is passed on, and no headers are added.
    ///
    /// A request within its limits takes tokens as usual. A request over a limit takes none, and
    /// counts as `shadow_refused`. A request that would be rejected for want of a key takes none,
    /// and counts as `skipped`. By default the mode is off.
    pub fn shadow(self, shadow: bool) -> Self {
        LayerBuilder { shadow, ..self }
    }

    /// Enforces refusals for `percent` hundredths of the first limit's keys, always the same ones.
    ///
    /// All other keys are in [shadow mode](LayerBuilder::shadow). 100 and above is all keys.
    pub fn enforce_percent(mut self, percent: u8) -> Self {
        self.state.enforced = ALL_KEYS * u64::from(percent.min(100)) / 100;
        self
    }

    /// Gives the tokens back by the response's status, as for a successful login or a server error.
    ///
    /// The tokens stay taken until then, so concurrent requests may be refused that would be
    /// granted one after the other. A request that is dropped, or ends in an error of the inner
    /// service, gives nothing back.
    pub fn refund_on(mut self, refund: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.state.refund_on = Some(Arc::new(refund));
        self
    }

    /// Turns off the report of a fault of the setup. May be called for several faults.
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

    /// Sets the headers of responses.
    pub fn headers(self, form: Headers) -> Self {
        self.with_policy(|policy| policy.form(form))
    }

    /// Sets the unit of `X-RateLimit-Reset`.
    pub fn reset_format(self, reset: ResetFormat) -> Self {
        self.with_policy(|policy| policy.reset_format(reset))
    }

    /// Works as [`Policy::only_below`], for all limits.
    pub fn only_below(self, percent: u8) -> Self {
        self.with_policy(|policy| policy.only_below(percent))
    }

    /// Works as [`Policy::longest_wait`], for all limits.
    pub fn longest_wait(self, longest: Duration) -> Self {
        self.with_policy(|policy| policy.longest_wait(longest))
    }

    /// Works as [`Policy::spread_retries`], for all limits.
    pub fn spread_retries(self, most: Duration) -> Self {
        self.with_policy(|policy| policy.spread_retries(most))
    }

    fn with_policy(self, set: impl FnOnce(Policy) -> Policy) -> Self {
        LayerBuilder { first: self.first.with_policy(set), ..self }
    }

    /// Calls a hook with each decision, before the request is passed on or refused.
    pub fn on_decision(mut self, hook: impl Fn(Head<'_>, &Decision) + Send + Sync + 'static) -> Self {
        self.state.hook = Some(Box::new(hook));
        self
    }

    /// Makes the responses to refused requests by a closure. By default they are empty.
    ///
    /// The body is anything that becomes [`Bytes`], such as a `&'static str` or a `String`. The
    /// headers that report the limit are added. For gRPC the closure begins with
    /// [`grpc_response`](Refusal::grpc_response).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::tower::RateLimitLayer;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let layer = RateLimitLayer::builder(RateLimiter::<String>::new(Quota::per_second(1)))
    ///     .shared()
    ///     .reject_with(|refusal| refusal.response(format!("the limit is {}\n", refusal.policy().rule())))
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn reject_with<T: Into<Bytes>>(
        self,
        respond: impl Fn(&Refusal<'_>) -> Response<T> + Send + Sync + 'static,
    ) -> Self {
        self.reject_as(move |refusal: &Refusal<'_>| respond(refusal).map(Into::into))
    }

    /// Makes the responses to refused requests by a [`Reject`], such as a
    /// [`Problem`](crate::http::Problem).
    pub fn reject_as(mut self, reject: impl Reject<Bytes> + 'static) -> Self {
        self.state.reject = Box::new(reject);
        self
    }

    /// Builds the layer.
    #[must_use]
    pub fn build(self) -> RateLimitLayer<K> {
        let LayerBuilder { first, others, shadow, mut state } = self;
        let first = Arc::new(first);
        let others = others.into_iter().map(|finish| finish(&first.policy));
        state.limits = std::iter::once(first.clone() as Arc<dyn DynLimit>).chain(others).collect();
        state.ids = state.limits.iter().map(|limit| limit.id()).collect::<Vec<u64>>().into();
        if shadow {
            state.enforced = 0;
        }
        state.examine(None);
        RateLimitLayer { state: Arc::new(state), first }
    }
}

impl<K: Hash + Eq + Clone> RateLimitLayer<K> {
    /// Returns the counts so far, of the layer and of each limit.
    #[must_use]
    pub fn stats(&self) -> LayerStats {
        let limits = self.state.limits.iter().map(|limit| limit.stats()).collect();
        LayerStats::of(limits, self.state.skipped.load(Ordering::Relaxed))
    }

    /// Returns up to `n` keys that the first limit refused most, with the number of refusals.
    ///
    /// This is a sketch of 512 keys, for logs and dashboards. A count may be too high by the count
    /// of a replaced key, and too low by refusals during another thread's update.
    #[must_use]
    pub fn top_refused(&self, n: usize) -> Vec<(K, u64)> {
        self.first.top.most(n)
    }

    /// Works as [`top_refused`](RateLimitLayer::top_refused), for the limit of this name. `None` if
    /// no limit has this name and keys of type `L`.
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

//! The layer.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::boxed::BoxRateLimitLayer;
use super::builder::LayerBuilder;
use super::rate_limit::RateLimit;
use super::stats::LayerStats;
use crate::layer::decide::state::LayerState;
use crate::layer::limit::dyn_limit::DynLimit;
use crate::layer::limit::limit_by::{LimitBy, NeedsKey};
use crate::layer::limit::limiter::AnyLimiter;
use crate::layer::limit::named::NamedLimit;

/// A layer that limits requests. See the [front page](crate).
///
/// A clone is the same layer. `K` are the keys of its first limit.
pub struct RateLimitLayer<K> {
    pub(super) state: Arc<LayerState>,
    first: Arc<LimitBy<K>>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> RateLimitLayer<K> {
    /// Begins a layer on a limiter of buckets or of windows, which may be shared in an `Arc`, or on
    /// [one of your own](AnyLimiter::of). [`key`](NeedsKey::key) or
    /// [`shared`](NeedsKey::shared) comes next.
    pub fn builder(limiter: impl Into<AnyLimiter<K>>) -> NeedsKey<K, LayerBuilder<K>> {
        NeedsKey::new(limiter)
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LayerBuilder<K> {
    /// Builds the layer.
    #[must_use]
    pub fn build(self) -> RateLimitLayer<K> {
        let LayerBuilder { first, others, mut state } = self;
        let first = Arc::new(first);
        let others = others.into_iter().map(|finish| finish(&first.policy));
        state.limits = std::iter::once(first.clone() as Arc<dyn DynLimit>).chain(others).collect();
        let any = |is: fn(&dyn DynLimit) -> bool| state.limits.iter().any(|limit| is(&**limit));
        let (searches, asks) = (any(|limit| limit.has_search()), any(|limit| !limit.is_at_hand()));
        let (bans, shadows) = (any(|limit| limit.has_bans()), any(|limit| limit.has_shadow()));
        let ids = state.limits.iter().map(|limit| limit.id()).collect::<Vec<usize>>().into();
        let state = LayerState { ids, searches, asks, bans, shadows, ..state };
        RateLimitLayer { state: Arc::new(state), first }
    }
}

impl<K: Hash + Eq + Clone> RateLimitLayer<K> {
    /// Returns the counts so far, of the layer and of each limit.
    #[must_use]
    pub fn stats(&self) -> LayerStats {
        LayerStats::of(&self.state)
    }

    /// Returns this layer without its type parameter, for the state of an application.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tollgate_http::ClientIp;
    /// use tollgate_http::{BoxRateLimitLayer, RateLimitLayer};
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// struct App {
    ///     limits: BoxRateLimitLayer,
    /// }
    ///
    /// let by_address = RateLimiter::new(Quota::per_second(10));
    /// let app = App { limits: RateLimitLayer::builder(by_address).key(ClientIp::peer()).build().boxed() };
    /// assert_eq!(app.limits.stats().refused, 0);
    /// let peer = IpAddr::from([192, 0, 2, 1]);
    /// let limit = app.limits.limit("default").expect("a limit has this name");
    /// assert!(!limit.unban(&peer));
    /// ```
    #[must_use]
    pub fn boxed(&self) -> BoxRateLimitLayer {
        BoxRateLimitLayer { state: self.state.clone() }
    }

    /// Returns up to `n` keys that the first limit refused most; see [`NamedLimit::top_refused`].
    #[must_use]
    pub fn top_refused(&self, n: usize) -> Vec<(K, u64)> {
        self.first.top.most(n)
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> RateLimitLayer<K> {
    /// Returns the limit of this name with keys of type `L`, with its counts and its bans.
    ///
    /// `None` if no limit has this name and keys of type `L`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_http::{ClientIp, Digest, HeaderKey};
    /// use tollgate_http::{LimitBy, RateLimitLayer};
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let by_key = LimitBy::new(RateLimiter::new(Quota::per_second(20)));
    /// let by_key = by_key.key(HeaderKey::new("x-api-key")?).name("key")?;
    /// let by_address = RateLimiter::new(Quota::per_second(100));
    /// let layer = RateLimitLayer::builder(by_address).key(ClientIp::peer()).and(by_key).build();
    /// let limit = layer.limit::<Digest>("key").expect("it was added");
    /// assert_eq!((limit.top_refused(10), limit.stats().refused), (vec![], 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn limit<L>(&self, name: &str) -> Option<NamedLimit<'_, L>>
    where
        L: Hash + Eq + Clone + Send + Sync + 'static,
    {
        NamedLimit::of(&self.state.limits, name)
    }

    /// Returns the rest of the ban of a key of the first limit, if it is banned.
    #[must_use]
    pub fn banned(&self, key: &K) -> Option<Duration> {
        self.first.banned(key)
    }

    /// Ends the ban of a key of the first limit, and forgets its refusals. Returns whether it was
    /// banned.
    pub fn unban(&self, key: &K) -> bool {
        self.first.unban(key)
    }
}

impl<T, K> Layer<T> for RateLimitLayer<K> {
    type Service = RateLimit<T>;

    fn layer(&self, inner: T) -> RateLimit<T> {
        RateLimit { inner, state: self.state.clone(), line: None }
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

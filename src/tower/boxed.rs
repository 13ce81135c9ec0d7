//! A layer without a type parameter.

use std::any::Any;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tower_layer::Layer;

use super::limit_by::LimitBy;
use super::service::RateLimit;
use super::state::LayerState;
use super::stats::LayerStats;

/// A [`RateLimitLayer`](super::RateLimitLayer) whose type of keys is erased, from
/// [`boxed`](super::RateLimitLayer::boxed).
///
/// A clone is the same layer, and so is the layer that it was made from.
#[derive(Clone)]
pub struct BoxRateLimitLayer {
    pub(super) state: Arc<LayerState>,
}

impl BoxRateLimitLayer {
    /// Returns the counts so far, of the layer and of each limit.
    #[must_use]
    pub fn stats(&self) -> LayerStats {
        self.state.stats()
    }

    /// Returns up to `n` keys that a limit refused most; see
    /// [`RateLimitLayer::top_refused_of`](super::RateLimitLayer::top_refused_of).
    #[must_use]
    pub fn top_refused_of<L>(&self, limit: &str, n: usize) -> Option<Vec<(L, u64)>>
    where
        L: Hash + Eq + Clone + 'static,
    {
        self.state.limit(limit).map(|by: &LimitBy<L>| by.top.most(n))
    }

    /// Returns the rest of the ban of a key of the limit of this name, if it is banned.
    ///
    /// `None` if no limit has this name and keys of type `L`.
    #[must_use]
    pub fn banned_of<L>(&self, limit: &str, key: &L) -> Option<Option<Duration>>
    where
        L: Hash + Eq + Clone + Send + Sync + 'static,
    {
        self.state.limit(limit).map(|by| by.banned(key))
    }

    /// Ends the ban of a key; see [`RateLimitLayer::unban_of`](super::RateLimitLayer::unban_of).
    pub fn unban_of<L>(&self, limit: &str, key: &L) -> Option<bool>
    where
        L: Hash + Eq + Clone + Send + Sync + 'static,
    {
        self.state.limit(limit).map(|by| by.unban(key))
    }
}

impl LayerState {
    /// Returns the limit of this name with keys of type `L`.
    pub(super) fn limit<L: 'static>(&self, name: &str) -> Option<&LimitBy<L>> {
        let limits = self.limits.iter().filter_map(|limit| (&**limit as &dyn Any).downcast_ref());
        limits.into_iter().find(|by: &&LimitBy<L>| by.policy.name() == name)
    }
}

impl<T> Layer<T> for BoxRateLimitLayer {
    type Service = RateLimit<T>;

    fn layer(&self, inner: T) -> RateLimit<T> {
        RateLimit { inner, state: self.state.clone() }
    }
}

impl fmt::Debug for BoxRateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxRateLimitLayer").finish_non_exhaustive()
    }
}

//! A layer without a type parameter.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use tower_layer::Layer;

use super::rate_limit::RateLimit;
use super::stats::LayerStats;
use crate::layer::decide::state::LayerState;
use crate::layer::limit::named::NamedLimit;

/// A [`RateLimitLayer`](crate::RateLimitLayer) whose type of keys is erased, from
/// [`boxed`](crate::RateLimitLayer::boxed).
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
        LayerStats::of(&self.state)
    }

    /// Returns the limit of this name with keys of type `L`; see
    /// [`RateLimitLayer::limit`](crate::RateLimitLayer::limit).
    #[must_use]
    pub fn limit<L>(&self, name: &str) -> Option<NamedLimit<'_, L>>
    where
        L: Hash + Eq + Clone + Send + Sync + 'static,
    {
        NamedLimit::of(&self.state.limits, name)
    }
}

impl<T> Layer<T> for BoxRateLimitLayer {
    type Service = RateLimit<T>;

    fn layer(&self, inner: T) -> RateLimit<T> {
        RateLimit { inner, state: self.state.clone(), line: None }
    }
}

impl fmt::Debug for BoxRateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxRateLimitLayer").finish_non_exhaustive()
    }
}

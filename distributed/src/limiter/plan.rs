//! Another quota for some keys.

use std::sync::Arc;

use tollgate::Quota;

use crate::lease::terms::Terms;

/// Another quota for some keys of a limiter, from
/// [`DistributedLimiter::plan`](crate::DistributedLimiter::plan).
///
/// A key that changes its plan keeps its tokens, as far as they fit below the new burst: the store
/// has them in whole tokens. The lease of the old plan is given back.
#[derive(Clone, Debug)]
pub struct Plan(pub(crate) Arc<Terms>);

impl Plan {
    /// Returns the quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.0.quota()
    }
}

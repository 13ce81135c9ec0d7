//! The rules of a shared limiter.

use tollgate::{AnyRule, Quota, Window};

/// The rule of a [`DistributedLimiter`](crate::DistributedLimiter): a [`Quota`] or a [`Window`].
/// Other crates cannot implement it.
#[expect(private_bounds, reason = "sealed")]
pub trait SharedRule: OneKind {}

impl SharedRule for Quota {}
impl SharedRule for Window {}

/// One kind of [`AnyRule`].
pub(crate) trait OneKind: Copy + Into<AnyRule> + Send + Sync + 'static {}

impl OneKind for Quota {}
impl OneKind for Window {}

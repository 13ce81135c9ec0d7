//! The rules of a shared limiter.

use tollgate::{AnyRule, Quota, Window};

/// The rule of a [`DistributedLimiter`](crate::DistributedLimiter): a [`Quota`] or a [`Window`].
/// Other crates cannot implement it.
#[expect(private_bounds, reason = "sealed")]
pub trait SharedRule: OneKind {}

impl SharedRule for Quota {}
impl SharedRule for Window {}

/// One kind of [`AnyRule`].
pub(crate) trait OneKind: Copy + Into<AnyRule> + Send + Sync + 'static {
    /// Returns a rule of this kind.
    fn of(rule: AnyRule) -> Option<Self>;
}

impl OneKind for Quota {
    fn of(rule: AnyRule) -> Option<Quota> {
        match rule {
            AnyRule::Quota(quota) => Some(quota),
            AnyRule::Window(_) => None,
        }
    }
}

impl OneKind for Window {
    fn of(rule: AnyRule) -> Option<Window> {
        match rule {
            AnyRule::Window(window) => Some(window),
            AnyRule::Quota(_) => None,
        }
    }
}

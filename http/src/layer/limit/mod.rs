//! One limit of a layer, and the part of a request at it.

pub(crate) mod at_hand;
pub(crate) mod ban;
pub(crate) mod counts;
pub(crate) mod dyn_limit;
#[cfg(feature = "tracing")]
pub(crate) mod events;
pub(crate) mod limit_by;
pub(crate) mod limit_part;
pub(crate) mod limiter;
pub(crate) mod named;
pub(crate) mod own_quota;
pub(crate) mod part;
pub(crate) mod policies;
pub(crate) mod reported;
pub(crate) mod share;
#[cfg(not(feature = "tracing"))]
pub(crate) mod stderr;
pub(crate) mod top_keys;
#[cfg(feature = "tracing")]
pub(crate) mod tracing;

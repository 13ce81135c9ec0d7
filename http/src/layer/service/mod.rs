//! The layer over a service: its builder, its response, and its counts.

pub(crate) mod body;
pub(crate) mod boxed;
pub(crate) mod builder;
pub(crate) mod deciding;
pub(crate) mod delay;
#[cfg(feature = "tracing")]
pub(crate) mod events;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
pub(crate) mod rate_limit;
pub(crate) mod rate_limit_layer;
pub(crate) mod stats;

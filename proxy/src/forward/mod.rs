//! The way of a request to an upstream, and of its response back.

pub(crate) mod admission;
pub(crate) mod answers;
pub(crate) mod attempts;
pub(crate) mod bodies;
pub(crate) mod connect;
pub(crate) mod exchange;
pub(crate) mod forwarded;
pub(crate) mod grpc;
pub(crate) mod health;
pub(crate) mod inflight;
pub(crate) mod places;
pub(crate) mod pool;
mod streams;
pub(crate) mod target;
mod trust;
pub(crate) mod tunnel;
mod turns;
mod ways;

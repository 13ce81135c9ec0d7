//! The limits of requests, and the keys that they are of.

pub(crate) mod hasher;
pub(crate) mod in_force;
pub(crate) mod keys;
pub(crate) mod limit;
pub(crate) mod limiter;
pub(crate) mod past;
mod prefixes;
pub(crate) mod store;
pub(crate) mod tally;

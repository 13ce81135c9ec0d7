//! A limit on requests in flight, and the guard of a place.

pub(crate) mod builder;
pub(crate) mod flight;
pub(crate) mod inflight;
pub(crate) mod overloaded;
pub(crate) mod stats;

//! The trait of stores: steps of buckets, many in a round trip.

pub(crate) mod breaker;
pub(crate) mod error;
pub(crate) mod lanes;
pub(crate) mod memory;
pub(crate) mod op;
pub(crate) mod random;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) mod single;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) mod url_options;

//! The one thing that a store does: steps of buckets, many in a round trip.

pub(crate) mod error;
pub(crate) mod memory;
pub(crate) mod op;

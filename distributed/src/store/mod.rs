//! The trait of stores: steps of buckets, many in a round trip.

pub(crate) mod error;
pub(crate) mod memory;
pub(crate) mod op;

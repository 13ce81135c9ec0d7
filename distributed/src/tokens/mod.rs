//! Buckets that are refilled at intervals, in a table that other programs may use as well.

pub(crate) mod requester;

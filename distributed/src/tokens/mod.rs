//! Buckets that are refilled at intervals, in a table that other programs use, too.

pub(crate) mod requester;

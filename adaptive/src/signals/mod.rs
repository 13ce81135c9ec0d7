//! The signals of a limit that adapts: the outcomes of requests, and their latencies.

pub(crate) mod counters;
pub(crate) mod histogram;
pub(crate) mod outcome;
pub(crate) mod samples;

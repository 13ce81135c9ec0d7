//! The live page and the numbers for Prometheus.

pub(crate) mod page;
pub(crate) mod sources;

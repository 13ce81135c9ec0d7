//! The rate limit service: the messages of Envoy, and a decision on each.

pub(crate) mod counts;
pub(crate) mod decide;
pub(crate) mod json;
pub(crate) mod limiters;
pub(crate) mod loaded;
pub(crate) mod messages;
pub(crate) mod statistics;

pub(crate) mod checks;
mod status;

#[cfg(test)]
mod tests;

//! A quota that follows the latency of the answers.

pub(crate) mod adaptive;
pub(crate) mod builder;
mod controller;

//! One bucket: its atomic word, the terms in force, and the steps that are run on it.

pub(crate) mod atomic;
pub(crate) mod engine;
pub(crate) mod lease;
pub(crate) mod line;
pub(crate) mod live_terms;
pub(crate) mod padded;
pub(crate) mod receipt;
pub(crate) mod reservation;
mod sweeps;
mod version;

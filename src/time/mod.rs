//! Where the time comes from.

pub(crate) mod clock;
pub(crate) mod jitter;
pub(crate) mod periodic;
pub(crate) mod tsc;

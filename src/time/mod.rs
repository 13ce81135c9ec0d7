//! Clocks, jitter, and a periodic thread.

pub(crate) mod clock;
pub(crate) mod jitter;
pub(crate) mod periodic;
pub(crate) mod tsc;
pub(crate) mod wall;

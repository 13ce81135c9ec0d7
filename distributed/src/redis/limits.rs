//! The times that a store waits.

use std::time::Duration;

/// How long a connection may take, and an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connect: Duration,
    pub(crate) response: Duration,
}

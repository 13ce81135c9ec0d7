//! The timeouts of a store.

use std::time::Duration;

/// The longest time to a connection, and to an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connect: Duration,
    pub(crate) response: Duration,
}

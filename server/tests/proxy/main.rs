//! `tollgate proxy` from the outside: its process, real sockets, HTTP written by hand.
//!
//! Nothing here waits for time to pass. A quota of a few requests an hour makes the decisions those of the burst, an
//! upstream in the test holds back what has to come later, and every read gives up after [`PATIENCE`].

mod admin;
#[cfg(unix)]
mod draining;
mod forwarding;
mod limiting;
mod options;
mod process;
mod routes;

use std::time::Duration;

/// Far more than anything here takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const NO_LIMIT: &str = "1000000/s burst 1000000";

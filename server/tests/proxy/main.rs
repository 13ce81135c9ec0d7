//! `tollgate proxy` from outside: its process, real sockets, and HTTP written by hand.
//!
//! No test waits for time to pass. Under a quota of a few requests an hour, the burst alone
//! decides. An upstream in the test holds back each response that has to come later. Every read
//! gives up after [`PATIENCE`].

mod admin;
mod draining;
mod forwarding;
mod limiting;
mod options;
#[expect(dead_code, reason = "the other tests of the server use the rest")]
mod process;
mod routes;

use std::time::Duration;

/// A time far above that of each step. Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const NO_LIMIT: &str = "1000000/s burst 1000000";

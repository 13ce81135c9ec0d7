//! The bounds of `tollgate proxy`, from outside: clients and upstreams that stand still, break off
//! or flood.
//!
//! Time-outs are fractions of a second here. A test waits for the effect of one by reading a
//! socket, and gives up after [`PATIENCE`].
#![cfg(target_os = "linux")]

mod connections;
mod downloads;
mod heads;
mod http2;
mod inflight;
mod loops;
mod places;
#[path = "../proxy/process.rs"]
#[expect(dead_code, reason = "the tests of the proxy use the rest")]
mod process;
mod retries;
mod uploads;
mod watched;

use std::time::Duration;

/// A time far above that of each step. Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const NO_LIMIT: &str = "1000000/s burst 1000000";

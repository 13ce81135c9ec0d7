//! The features of `tollgate` from outside: its process, real sockets, and clients of several
//! protocols.
//!
//! No verdict waits for time to pass. Under a quota of a few requests an hour, the burst alone
//! decides. An upstream in the test holds back each response that has to come later. Every read
//! gives up after [`PATIENCE`].

mod check;
mod exempt;
mod forwarding;
mod http2;
mod keys;
mod large_bodies;
mod log;
mod prefixes;
#[expect(dead_code, reason = "the tests of the proxy use the rest")]
#[path = "../proxy/process.rs"]
mod process;
mod proxy_protocol;
mod refusals;
mod reload;
mod reread;
mod start;
mod stopping;
mod support;
mod tls;
mod unix;
mod upstreams;
mod websocket;

use std::time::Duration;

/// A time far above that of each step. Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const NO_LIMIT: &str = "1000000/s burst 1000000";

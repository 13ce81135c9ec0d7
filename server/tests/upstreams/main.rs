//! Upstreams over TLS and HTTP/2, and those that are down.
//!
//! The upstreams are servers in this process, and the clients write frames of HTTP/2. A real client
//! and a real server of gRPC run too, if Python has them. No verdict waits for time to pass.

mod authority;
mod grpc;
mod health;
mod http2;
#[expect(dead_code, reason = "the tests of the proxy use the rest")]
#[path = "../proxy/process.rs"]
mod process;
mod resets;
#[expect(dead_code, reason = "the tests of the features use the rest")]
#[path = "../features/support.rs"]
mod support;
mod tls;
mod upstream;

use std::time::Duration;

/// A time far above that of each step. Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const NO_LIMIT: &str = "1000000/s burst 1000000";

//! The bounds of `tollgate-proxy`: clients and upstreams that stand still, break off or flood.
//!
//! Time-outs are fractions of a second here. A test waits for the effect of one by reading a
//! socket.

mod connections;
mod downloads;
mod heads;
mod http2;
mod inflight;
mod loops;
mod places;
mod retries;
mod uploads;
mod upstreams;

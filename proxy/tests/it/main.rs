//! `tollgate-proxy` from outside: its process, real sockets, and HTTP written by hand.
//!
//! No verdict waits for time to pass, but for the time-outs of `bounds`, which are fractions of a
//! second. Under a quota of a few requests an hour, the burst alone decides. An upstream in the
//! test holds back each response that has to come later. Every read gives up after `PATIENCE`.

#[cfg(target_os = "linux")]
mod bounds;
mod features;
mod proxy;
mod smuggling;
mod spellings;
#[cfg(feature = "sqlite")]
mod store;
mod support;
mod upstreams;

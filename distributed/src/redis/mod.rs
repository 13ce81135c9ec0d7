//! Redis: one server, the master of some sentinels, or a cluster.
//!
//! The counts of `envoyproxy/ratelimit` are another layout: `incr.rs`.
//!
//! A script on the server runs the steps of many buckets in one round trip. A bucket is a string of
//! 21 bytes that expires when it is full.

mod all_command;
pub(crate) mod builder;
mod chain;
mod cluster;
mod command;
mod connection;
mod count_command;
mod errors;
pub mod fuzzing;
pub(crate) mod incr;
mod incr_command;
mod link;
mod node;
mod script;
mod sentinels;
mod server;
mod slots;
pub(crate) mod store;
#[cfg(feature = "redis-tls")]
mod tls;
#[cfg(not(feature = "redis-tls"))]
#[path = "no_tls.rs"]
mod tls;
mod tls_files;
mod urls;

//! Redis: one server, or a cluster.
//!
//! A script on the server runs the steps of many buckets in one round trip. A bucket is a string of
//! 21 bytes that expires when it is full.

mod all_command;
pub(crate) mod builder;
mod cluster;
mod command;
mod connection;
mod count_command;
mod errors;
pub mod fuzzing;
mod link;
mod node;
mod script;
mod server;
mod slots;
pub(crate) mod store;

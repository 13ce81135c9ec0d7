//! What the crate promises, held through its public face: one binary, one file a promise.

#![cfg(not(loom))]

mod api;
#[cfg(feature = "tokio")]
mod client;
mod conformance;
mod edges;
mod eviction;
mod flood;
mod janitor;
mod json;
mod proxy;
mod quota;
#[path = "../reference/mod.rs"]
mod reference;
mod support;
#[cfg(feature = "tokio")]
mod waiting;
mod walk;

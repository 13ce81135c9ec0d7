//! What the crate promises, held through its public face: one binary, one file a promise.

#![cfg(not(loom))]

mod api;
mod conformance;
mod edges;
mod eviction;
mod flood;
mod janitor;
mod json;
mod proxy;
mod quota;
#[allow(unreachable_pub, reason = "it is written for several binaries")]
#[path = "../reference/mod.rs"]
mod reference;
mod support;
mod walk;

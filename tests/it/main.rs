//! What the crate promises, held through its public face: one binary, one file a promise.

#![cfg(not(any(loom, shuttle)))]

mod all_of;
mod api;
mod between;
#[cfg(feature = "tokio")]
mod client;
#[cfg(feature = "http")]
mod client_ip;
mod conformance;
mod dropped;
mod edges;
mod eviction;
mod face;
mod flood;
#[cfg(feature = "tokio")]
mod futures;
#[cfg(feature = "http")]
mod headers;
mod hold;
mod janitor;
mod json;
#[cfg(feature = "tower")]
mod layer;
mod moments;
mod plans;
mod proxy;
mod quota;
#[path = "../reference/mod.rs"]
mod reference;
mod refund;
mod reserve;
#[cfg(feature = "serde")]
mod serde;
mod set_quota;
mod shadow;
mod small;
mod spread;
mod support;
#[cfg(feature = "tokio")]
mod waiting;
mod walk;

//! The promises of the crate, checked through its public face: one binary, one file a promise.

#![cfg(not(any(loom, shuttle)))]

mod api;
#[cfg(feature = "tower")]
mod asked;
#[cfg(feature = "tower")]
mod ban;
mod basic;
#[cfg(feature = "tokio")]
mod client;
#[cfg(feature = "http")]
mod client_ip;
#[cfg(feature = "tower")]
mod counted;
#[cfg(feature = "tower")]
mod exempt;
#[cfg(feature = "tokio")]
mod futures;
mod gates;
mod hand;
#[cfg(feature = "http")]
mod headers;
mod inline;
#[cfg(feature = "tower")]
mod limits;
mod map;
mod places;
mod published;
mod quota;
#[path = "../windows/random.rs"]
mod random;
#[cfg(feature = "tower")]
mod ready;
#[path = "../reference/mod.rs"]
mod reference;
#[cfg(feature = "tower")]
mod refusals;
mod resizing;
mod scene;
#[cfg(feature = "serde")]
mod serde;
#[cfg(feature = "tower")]
mod serving;
#[path = "../windows/spelled.rs"]
mod spelled;
mod spread;
mod store;
#[path = "../reference/strategies.rs"]
mod strategies;
mod support;
#[expect(clippy::duplicate_mod, reason = "what is promised of keys is compiled for either store")]
mod table;
#[cfg(all(feature = "metrics", feature = "tracing"))]
mod telemetry;
mod texts;
mod unborn;
mod windows;

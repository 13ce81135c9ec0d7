//! The promises of the crate, checked through its public face: one binary, one file a promise.

#![cfg(not(any(loom, shuttle)))]

mod api;
mod basic;
#[cfg(feature = "tokio")]
mod client;
#[cfg(feature = "tokio")]
mod futures;
mod gates;
mod hand;
mod inline;
mod map;
mod places;
mod published;
mod quota;
#[path = "../reference/mod.rs"]
mod reference;
mod resizing;
mod scene;
#[cfg(feature = "serde")]
mod serde;
mod spread;
mod state;
mod store;
mod support;
#[expect(clippy::duplicate_mod, reason = "what is promised of keys is compiled for either store")]
mod table;
mod texts;
mod unborn;
mod windows;

//! The promises of the crate, checked through its public face: one binary, one file a promise.

#![cfg(not(any(loom, shuttle)))]

mod api;
mod basic;
mod bucket_walk;
#[cfg(feature = "tokio")]
mod client;
#[cfg(feature = "tokio")]
mod futures;
mod gates;
mod hand;
mod inline;
// The files of its parts are beside it.
#[path = "keyed.rs"]
mod keyed;
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
mod support;
mod texts;
mod unborn;
mod windows;

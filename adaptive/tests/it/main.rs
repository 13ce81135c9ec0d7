//! The promises of the crate, checked through its public face: one binary, one file a promise.

#![cfg(not(any(loom, shuttle)))]

mod alloc;
mod keys;
mod layer;
mod quota;

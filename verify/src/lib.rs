//! Real threads on the real map: scenarios that check themselves, in a form that a sanitizer can
//! run.
//!
//! ```text
//! cargo run --release --manifest-path verify/Cargo.toml --bin threads
//! ```
//!
//! No scenario waits for the real time. The threads move the clock and disagree about it.
//! `tests/stress.rs` of the root package compiles the same files, and runs their smallest size.

#[path = "../../tests/threads/mod.rs"]
pub mod scenarios;

pub use scenarios::{skewed, watchdog};

pub mod acceptance;
pub mod closed_loop;
pub mod controllers;
pub mod disturbance;
pub mod fleet;
pub mod policies;

//! Real threads on the real map: scenarios that check themselves, in a form that a sanitizer can run.
//!
//! ```text
//! cargo run --release --manifest-path verify/Cargo.toml --bin threads
//! ```
//!
//! Nothing here waits for the real time. The clock is one that the threads move and disagree about.

pub mod random;
pub mod scenarios;
pub mod skewed;
pub mod watchdog;

//! `cargo bench` times `decision.rs`.

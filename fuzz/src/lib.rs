//! The fuzz targets, a module each: a `Case` is read from bytes, run, and panics at the first
//! answer that is not the reference's.
//!
//! The library is built by any compiler, so `cargo test` runs the found cases again.

pub mod bucket;
pub mod headers;
pub mod keyed;
pub mod quota_text;
pub mod rate_limits;
pub mod state;
pub mod store;
pub mod window;

mod bytes;
#[path = "../../tests/reference/mod.rs"]
mod reference;
mod steps;

#[cfg(test)]
mod tests;

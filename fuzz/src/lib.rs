//! What the fuzz targets do, each a module: a `Case` is read from bytes, run, and panics at the first answer that is not
//! the reference's. Libraries are built by any compiler: what was found once is run again by `cargo test`.

pub mod bucket;
pub mod headers;
pub mod keyed;
pub mod quota_text;
pub mod window;

mod bytes;
#[path = "../../tests/reference/mod.rs"]
mod reference;
mod steps;
#[path = "../../tests/windows/mod.rs"]
mod walk;

#[cfg(test)]
mod tests;

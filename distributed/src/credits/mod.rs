//! The arithmetic of a shared bucket, in whole credits.

pub(crate) mod bucket;
pub(crate) mod spec;
#[cfg(all(test, not(loom)))]
mod tests;

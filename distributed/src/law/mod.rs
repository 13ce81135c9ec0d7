//! The two laws of a store, in whole numbers: buckets in credits, and counts of windows.

pub(crate) mod amount;
pub(crate) mod any_law;
pub(crate) mod bucket;
pub(crate) mod count;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) mod count_numbers;
pub(crate) mod count_spec;
pub(crate) mod spec;
#[cfg(all(test, not(loom)))]
mod tests;

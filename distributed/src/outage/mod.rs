//! Decisions without the store.

pub(crate) mod fallback;
pub(crate) mod policy;

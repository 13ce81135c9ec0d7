//! The word of a limit: its limit and its count.

pub(crate) mod atomic_word;
pub(crate) mod priority;
pub(crate) mod word;

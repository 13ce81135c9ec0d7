//! The limits of a rate limit service, from the YAML of envoyproxy/ratelimit.
//!
//! `yaml` reads a text, and `load` checks it, limits by `amount`, and builds the `tree`, whose
//! wildcards are a `pattern` each. `warnings` finds rules that are valid and have no effect.
//! Nothing here opens a file or reads a clock: the caller hands in paths and texts, or nodes that
//! no text has.

pub(crate) mod amount;
mod descent;
mod doubts;
pub mod error;
pub(crate) mod explain;
mod fields;
pub mod load;
mod metadata;
mod pattern;
pub(crate) mod shared_entry;
pub mod tree;
mod warnings;
pub(crate) mod yaml;

#[cfg(test)]
mod tests;

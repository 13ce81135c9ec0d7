//! The laws of the SQL stores, for each of them.

#![allow(dead_code, reason = "not every store has each part")]

pub(crate) mod bound;
pub(crate) mod clean;
pub(crate) mod intervals;
pub(crate) mod keys;
pub(crate) mod measure;
pub(crate) mod skew;
pub(crate) mod strategies;
pub(crate) mod walk;
pub(crate) mod world;

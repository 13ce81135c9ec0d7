//! The arithmetic of a bucket's word: pure, `Copy`, without atomics.

pub(crate) mod decision;
pub(crate) mod plan;
pub(crate) mod state;
pub(crate) mod terms;
pub(crate) mod tick;
pub(crate) mod verb;

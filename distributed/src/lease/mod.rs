//! Tokens that the store granted to this process ahead of their use.

pub(crate) mod demand;
pub(crate) mod lease_time;
#[cfg(all(test, loom))]
mod models;
pub(crate) mod shadow;
pub(crate) mod terms;
#[cfg(all(test, not(loom)))]
mod tests;
pub(crate) mod tokens;

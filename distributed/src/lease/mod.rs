//! Tokens that the store granted to this process ahead of their use.

pub(crate) mod demand;
pub(crate) mod ending;
pub(crate) mod gate;
pub(crate) mod lease_time;
pub(crate) mod maturing;
pub(crate) mod shadow;
pub(crate) mod terms;
#[cfg(test)]
mod tests;
pub(crate) mod tokens;

//! Buckets in MariaDB.

mod fault;
pub mod fuzzing;
pub(crate) mod options;
mod session;
mod statements;
pub(crate) mod store;
#[cfg(all(test, not(loom)))]
mod tests;
mod tokens;

//! Buckets in MariaDB.

mod fault;
pub mod fuzzing;
pub(crate) mod options;
mod script;
mod session;
pub(crate) mod store;
#[cfg(all(test, not(loom)))]
mod tests;
mod tokens;

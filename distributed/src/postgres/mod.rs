//! Buckets in PostgreSQL.

mod fault;
pub(crate) mod options;
mod session;
mod statement;
pub(crate) mod store;
mod tokens;

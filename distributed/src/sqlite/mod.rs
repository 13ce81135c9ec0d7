//! Buckets in a file of SQLite: they survive a restart, and processes of one host share them.

mod clean_up;
mod decide;
mod fault;
pub(crate) mod store;
mod table;
mod thread;
mod tokens;

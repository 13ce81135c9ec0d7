//! Buckets and counts in a file of SQLite, which processes of one machine share.

mod clean_up;
mod decide;
mod fault;
pub(crate) mod store;
mod table;
mod thread;
mod tokens;

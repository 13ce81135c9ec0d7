//! The store of MariaDB. The tests start a server of their own.

#[path = "../sql/mod.rs"]
mod sql;

mod faults;
mod laws;
mod load;
mod text;
mod tokens;
mod world;

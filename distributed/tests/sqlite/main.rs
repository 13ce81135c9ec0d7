//! The store of SQLite.

#[path = "../sql/mod.rs"]
mod sql;

mod faults;
mod laws;
mod processes;
mod queue;
mod world;

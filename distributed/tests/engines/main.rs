//! The four engines. `suite/` has the promises of all stores, each a function that is run for each
//! engine, and the folder of an engine has those of its own. The tests start servers of their own.

mod engine;
#[macro_use]
mod suite;

mod mysql;
mod postgres;
mod redis;
mod sqlite;

//! The four engines. `suite/` has the promises of all stores, each a function that is run for each
//! engine, and the folder of an engine has those of its own. The tests start servers of their own.

#![cfg_attr(
    not(all(feature = "mysql", feature = "postgres", feature = "redis")),
    allow(dead_code, reason = "the other engines use the rest")
)]

mod engine;
#[macro_use]
mod suite;

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod sqlite;

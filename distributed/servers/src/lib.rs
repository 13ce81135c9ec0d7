//! Throw-away servers for tests: each on a free port of the loopback, with its data in a temporary
//! folder. A server ends with the value that stands for it, and with the process of the tests.

#![cfg(unix)]

mod account;
mod database;
mod guard;
pub mod mariadb;
pub mod net;
pub mod postgres;
pub mod process;
pub mod program;
pub mod redis;
pub mod wire;

//! Throw-away servers for tests: each on a free port of the loopback, with its data in a temporary
//! folder. A server ends when its value is dropped, and when the process of the tests ends.

#![cfg(unix)]

mod account;
pub mod any;
pub mod clock;
pub mod database;
mod guard;
pub mod mariadb;
pub mod net;
pub mod postgres;
pub mod process;
pub mod program;
pub mod redis;
pub mod wire;

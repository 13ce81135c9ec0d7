//! The reverse proxy.

mod connect;
mod counters;
mod listen;
mod settings;

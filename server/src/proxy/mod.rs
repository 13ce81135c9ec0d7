//! The reverse proxy.

mod counters;
mod listen;
mod settings;

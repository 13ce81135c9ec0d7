//! The reverse proxy.

mod config;
mod counters;
mod settings;

//! The reverse proxy.

mod counters;
mod settings;

//! The reverse proxy.

mod counters;
mod forwarded;
mod paths;
mod settings;

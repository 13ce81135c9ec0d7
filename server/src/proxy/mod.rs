//! A reverse proxy that limits each client.

pub(crate) mod admin;
pub(crate) mod config;
pub(crate) mod counters;
pub(crate) mod forward;
pub(crate) mod limits;
pub(crate) mod pace;
pub(crate) mod run;
pub(crate) mod serve;

//! The rate limit service: Envoy's protocol, and a decision on each of its messages.

mod admin;
mod built_in;
mod clear;
mod decided;
mod entry_keys;
mod environment;
mod front;
mod grpc;
mod homes;
mod http;
mod in_store;
mod jitter;
mod key_room;
mod keys;
mod limit_gauge;
mod limit_paths;
mod logged;
pub(crate) mod options;
pub(crate) mod pages;
mod redis_variables;
mod reload;
mod reserve;
mod room;
pub(crate) mod run;
mod saved;
mod setting_values;
pub(crate) mod settings;
mod shared;
pub(crate) mod sources;
mod state;
pub(crate) mod tables;
mod xds;

pub mod counts;
pub mod decide;
pub mod json;
pub mod limiters;
pub(crate) mod lists;
pub mod loaded;
pub mod messages;
pub mod statistics;

pub(crate) mod checks;
pub mod status;

#[cfg(test)]
mod tests;

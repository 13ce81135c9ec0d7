//! The rate limit service: Envoy's protocol, and a decision on each of its messages.

mod admin;
mod built_in;
mod environment;
mod front;
mod grpc;
mod homes;
mod http;
mod key_room;
mod keys;
mod limit_paths;
pub(crate) mod options;
mod pages;
#[cfg_attr(not(test), expect(dead_code, reason = "the start reads them once it has a store"))]
mod redis_variables;
mod reload;
mod room;
pub(crate) mod run;
mod saved;
mod settings;
mod sources;
mod state;

pub mod counts;
pub mod decide;
pub mod json;
pub mod limiters;
pub mod loaded;
pub mod messages;
pub mod statistics;

pub(crate) mod checks;
pub mod status;

#[cfg(test)]
mod tests;

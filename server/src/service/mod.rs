//! The rate limit service: Envoy's protocol, and a decision on each of its messages.

mod admin;
mod environment;
mod front;
mod grpc;
mod homes;
mod http;
mod key_room;
mod keys;
pub(crate) mod options;
mod pages;
mod places;
mod reload;
mod room;
pub(crate) mod run;
mod saved;
mod settings;
mod sources;
mod state;

pub(crate) mod counts;
pub(crate) mod decide;
pub(crate) mod json;
pub(crate) mod limiters;
pub(crate) mod loaded;
pub(crate) mod messages;
pub(crate) mod statistics;

pub(crate) mod checks;
mod status;

#[cfg(test)]
mod tests;

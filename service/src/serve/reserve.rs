//! Kuadrant's service `kuadrant.service.ratelimit.v1`: tokens that are reserved before they are
//! used, and committed by the number that was used.

pub(super) mod calls;
mod here;
pub(super) mod id;
mod in_store;
pub(super) mod messages;
pub(super) mod open;
mod service;
mod settlement;
pub(super) mod settings;

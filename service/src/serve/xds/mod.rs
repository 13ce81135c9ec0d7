//! Rules from a control plane: the client of its discovery service (ADS), state of the world.
//!
//! `settings` names the control plane, by the `rows` of the table. `client` keeps a `stream` to it,
//! with a `back_off` between two. Each of its `messages` is an `update`, whose `nodes` are read by
//! the loader of files.

mod back_off;
pub(super) mod client;
mod messages;
mod nodes;
pub(super) mod plane;
pub(super) mod rows;
pub(super) mod settings;
mod stream;
pub(super) mod update;

#[cfg(test)]
pub(super) mod tests;

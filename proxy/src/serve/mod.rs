//! The work of a proxy that runs.

mod access;
pub(crate) mod connections;
pub(crate) mod demo;
mod header;
pub(crate) mod introduce;
mod policies;
pub(crate) mod reload;
pub(crate) mod sockets;

#[cfg(test)]
mod tests;

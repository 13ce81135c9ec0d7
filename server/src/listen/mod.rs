//! Connections of clients, until each is a stream of requests.

pub(crate) mod crowd;
pub(crate) mod header;
pub(crate) mod open;
pub(crate) mod socket;
pub(crate) mod tls;

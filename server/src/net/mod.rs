//! Connections of clients: from a listener to streams of requests, and the end of them all.

pub(crate) mod crowd;
pub(crate) mod fields;
pub(crate) mod files;
mod frames;
pub(crate) mod header;
pub(crate) mod io;
pub(crate) mod open;
pub(crate) mod serving;
pub(crate) mod signals;
pub(crate) mod socket;
pub(crate) mod threads;
pub(crate) mod tls;

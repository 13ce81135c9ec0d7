//! Connections of clients: from a listener to streams of requests, and the end of them all. And
//! connections to a server.

pub mod connect;
pub mod crowd;
pub mod fields;
pub mod files;
mod frames;
pub mod io;
pub mod open;
pub mod serving;
pub mod signals;
pub mod socket;
pub mod threads;
pub mod tls;

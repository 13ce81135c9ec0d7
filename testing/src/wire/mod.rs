//! HTTP/1.1 as bytes: a strict reader and writer, for tests with real sockets.
//!
//! A step that does not succeed is a panic, and so is one that takes longer than [`PATIENCE`].

mod connection;
mod message;

pub use connection::{Connection, End, PATIENCE};
pub use message::{Message, bytes, head, request, text};

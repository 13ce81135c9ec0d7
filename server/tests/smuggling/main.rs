//! Requests and responses that two readers could take apart in different ways.
//!
//! A request of `requests` or `http2` is refused, or the upstream sees the one that a strict reader
//! sees, written so that no reader can see another. A response of `responses` becomes an error, or
//! reaches the client as one response. After each, other clients get their own responses.
//!
//! The upstream of these tests records every byte. It is asked again over each connection that a
//! request has left open, so that nothing can wait there for the next one.

mod client;
mod http2;
#[path = "../proxy/process.rs"]
#[allow(dead_code, reason = "the tests of the proxy use the rest")]
mod process;
mod requests;
mod responses;
mod strict;
mod upstream;
mod verdict;

use std::time::Duration;

/// Far more than anything here takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const NO_LIMIT: &str = "1000000/s burst 1000000";

/// The bytes of a text in which each character is one byte.
fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|char| u8::try_from(char).expect("a character above U+00FF is no byte")).collect()
}

/// The text in which each byte is one character.
fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

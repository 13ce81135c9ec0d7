//! Requests and responses that two parsers could take apart in different ways.
//!
//! A request of `requests` or `http2` is refused, or the upstream sees the request that a strict
//! parser sees. It is written so that no parser can see another request. A response of `responses`
//! becomes an error, or reaches the client as one response. After each, other clients get their own
//! responses.
//!
//! The upstream of these tests records every byte. It is asked again over each connection that a
//! request has left open. So no bytes can wait there for the next request.

mod client;
mod frames;
mod http2;
#[path = "../proxy/process.rs"]
#[expect(dead_code, reason = "the tests of the proxy use the rest")]
mod process;
mod requests;
mod responses;
mod strict;
mod upstream;
mod verdict;

use std::time::Duration;

/// A time far above that of each step. Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const NO_LIMIT: &str = "1000000/s burst 1000000";

/// Returns the bytes of a text in which each character is one byte.
fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|char| u8::try_from(char).expect("a character above U+00FF is no byte")).collect()
}

/// Returns the text in which each byte is one character.
fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

//! How a refusal is told to a client of gRPC: `RESOURCE_EXHAUSTED` with the wait, in a response of trailers only.
//!
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>, and for the pushback
//! <https://github.com/grpc/proposal/blob/master/A6-client-retries.md>.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::base64::encode;

/// The code of `RESOURCE_EXHAUSTED`.
const RESOURCE_EXHAUSTED: u8 = 8;
const MESSAGE: &str = "rate limit exceeded";
/// Percent-encoded, which spaces need not be.
pub(crate) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const TEXT: HeaderName = HeaderName::from_static("grpc-message");
pub(crate) const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
pub(crate) const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// The content type to answer with, if the request is one of gRPC: the request's own for grpc-web.
pub(crate) fn content_type(headers: &HeaderMap) -> Option<HeaderValue> {
    let value = headers.get(CONTENT_TYPE)?;
    let rest = value.as_bytes().strip_prefix(b"application/grpc")?;
    match rest.first() {
        None | Some(b'+' | b';' | b' ') => Some(HeaderValue::from_static("application/grpc")),
        Some(b'-') => Some(value.clone()),
        Some(_) => None,
    }
}

/// The headers of the response. No wait: it is never granted, and not to be tried again.
pub(crate) fn headers(content_type: HeaderValue, wait: Option<Duration>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(5);
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(STATUS, u64::from(RESOURCE_EXHAUSTED).into());
    headers.insert(TEXT, HeaderValue::from_static(MESSAGE));
    match wait {
        Some(wait) => {
            headers.insert(PUSHBACK, millis(wait).into());
            let details = HeaderValue::try_from(encode(&status(wait))).expect("base64 is visible ASCII");
            headers.insert(DETAILS, details);
        }
        None => {
            headers.insert(PUSHBACK, HeaderValue::from_static("-1"));
        }
    }
    headers
}

/// Rounded up: who waits for so long is not early. Readers have 32 bits for it, with a sign.
pub(crate) fn millis(wait: Duration) -> u32 {
    u32::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX).min(i32::MAX as u32)
}

/// A `google.rpc.Status` with a `google.rpc.RetryInfo`.
pub(crate) fn status(wait: Duration) -> Vec<u8> {
    // A protobuf duration has 10,000 years at most.
    let seconds = wait.as_secs().min(315_576_000_000);
    let mut delay = Vec::new();
    number(&mut delay, 1, seconds);
    number(&mut delay, 2, wait.subsec_nanos().into());
    let (mut retry, mut any, mut status) = (Vec::new(), Vec::new(), Vec::new());
    bytes(&mut retry, 1, &delay);
    bytes(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    bytes(&mut any, 2, &retry);
    number(&mut status, 1, RESOURCE_EXHAUSTED.into());
    bytes(&mut status, 2, MESSAGE.as_bytes());
    bytes(&mut status, 3, &any);
    status
}

/// A field that is a number; 0 is what is not there.
fn number(message: &mut Vec<u8>, field: u8, value: u64) {
    if value > 0 {
        message.push(field << 3);
        varint(message, value);
    }
}

/// A field that is a string, or a message.
fn bytes(message: &mut Vec<u8>, field: u8, value: &[u8]) {
    message.push(field << 3 | 2);
    varint(message, value.len() as u64);
    message.extend_from_slice(value);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value > 127 {
        message.push(value as u8 | 128);
        value >>= 7;
    }
    message.push(value as u8);
}

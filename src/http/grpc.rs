//! A refusal as a gRPC client reads it: trailers only, `RESOURCE_EXHAUSTED` with the wait.
//!
//! A limit on the requests in flight refuses by `UNAVAILABLE`, and so does a limit whose store does
//! not answer.
//! The code for a request without a key says whether the request or the server is at fault.
//! Formats: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>, and for the pushback
//! <https://github.com/grpc/proposal/blob/master/A6-client-retries.md>.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

/// A code of <https://grpc.github.io/grpc/core/md_doc_statuscodes.html>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidArgument = 3,
    ResourceExhausted = 8,
    Internal = 13,
    #[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "it is of a layer"))]
    Unavailable = 14,
    Unauthenticated = 16,
    /// The number of [`Code::Unavailable`], with another text.
    LimitUnavailable,
}

impl Code {
    pub(crate) fn number(self) -> u64 {
        match self {
            Code::LimitUnavailable => 14,
            code => code as u64,
        }
    }

    /// Returns the message. Percent-encoding leaves it as it is, since spaces may stand.
    fn message(self) -> &'static str {
        match self {
            Code::ResourceExhausted => "rate limit exceeded",
            Code::InvalidArgument | Code::Unauthenticated => "request has nothing to limit it by",
            Code::Internal => "server has nothing to limit the request by",
            Code::Unavailable => "too many requests in flight",
            Code::LimitUnavailable => "the limit is not available",
        }
    }
}

pub(crate) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const TEXT: HeaderName = HeaderName::from_static("grpc-message");
pub(crate) const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
pub(crate) const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Returns the response's content type for a request of gRPC: the request's own for grpc-web.
pub(crate) fn content_type(headers: &HeaderMap) -> Option<HeaderValue> {
    const GRPC: &[u8] = b"application/grpc";
    let value = headers.get(CONTENT_TYPE)?;
    let (kind, rest) = value.as_bytes().split_at_checked(GRPC.len())?;
    if !kind.eq_ignore_ascii_case(GRPC) {
        return None;
    }
    match rest.first() {
        None | Some(b'+' | b';' | b' ' | b'\t') => Some(HeaderValue::from_static("application/grpc")),
        Some(b'-') => Some(value.clone()),
        Some(_) => None,
    }
}

/// Returns the headers of the response. `None` as a wait tells the client never to try again.
pub(crate) fn headers(content_type: HeaderValue, code: Code, wait: Option<Duration>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(5);
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(STATUS, code.number().into());
    headers.insert(TEXT, HeaderValue::from_static(code.message()));
    match wait {
        Some(wait) => {
            headers.insert(PUSHBACK, millis(wait).into());
            let details =
                HeaderValue::try_from(base64(&status(code, wait))).expect("base64 is visible ASCII");
            headers.insert(DETAILS, details);
        }
        None => {
            headers.insert(PUSHBACK, HeaderValue::from_static("-1"));
        }
    }
    headers
}

/// Returns the milliseconds of a wait, rounded up so that no client is early. They fit into an
/// `i32`, as clients read them.
pub(crate) fn millis(wait: Duration) -> u32 {
    u32::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX).min(i32::MAX as u32)
}

/// Encodes a `google.rpc.Status` with a `google.rpc.RetryInfo`.
pub(crate) fn status(code: Code, wait: Duration) -> Vec<u8> {
    // A protobuf duration has 10,000 years at most.
    let seconds = wait.as_secs().min(315_576_000_000);
    let mut delay = Vec::new();
    number(&mut delay, 1, seconds);
    number(&mut delay, 2, wait.subsec_nanos().into());
    let (mut retry, mut any, mut status) = (Vec::new(), Vec::new(), Vec::new());
    bytes(&mut retry, 1, &delay);
    bytes(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    bytes(&mut any, 2, &retry);
    number(&mut status, 1, code.number());
    bytes(&mut status, 2, code.message().as_bytes());
    bytes(&mut status, 3, &any);
    status
}

/// Writes a number field. A field of value 0 is left out.
fn number(message: &mut Vec<u8>, field: u8, value: u64) {
    if value > 0 {
        message.push(field << 3);
        varint(message, value);
    }
}

/// Writes a field that is a string or a message.
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

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes the bytes in base64 without padding (RFC 4648, 4 and 3.2), as for binary metadata.
pub(crate) fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 4 / 3 + 3);
    for three in bytes.chunks(3) {
        let byte = |index| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        // As many digits as have at least one bit of the bytes.
        for digit in 0..=three.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * digit)) as usize & 63]));
        }
    }
    text
}

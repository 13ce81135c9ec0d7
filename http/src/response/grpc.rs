//! A refusal as a gRPC client reads it: `RESOURCE_EXHAUSTED` with the wait.
//!
//! A client of gRPC gets trailers only, in the head. One of grpc-web gets them in the body: a
//! script of another origin reads few headers.
//!
//! A limit on the requests in flight refuses by `UNAVAILABLE`, and so does a limit whose store does
//! not answer.
//! The code for a request without a key says whether the request or the server is at fault.
//! Formats: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>,
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md>, and for the pushback
//! <https://github.com/grpc/proposal/blob/master/A6-client-retries.md>.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, Version};

use crate::request::key::Head;

/// A code of <https://grpc.github.io/grpc/core/md_doc_statuscodes.html>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidArgument = 3,
    ResourceExhausted = 8,
    Internal = 13,
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

/// The form of a response to a request of gRPC.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use http::Request;
/// use tollgate_http::{GrpcForm, Head};
///
/// let request = Request::post("/helloworld.Greeter/SayHello")
///     .header("content-type", "application/grpc-web")
///     .body(())?;
/// let form = GrpcForm::of(Head::from(&request)).expect("the request is of gRPC");
/// let response = form.unavailable(Duration::from_secs(1));
/// assert_eq!(response.headers()["content-type"], "application/grpc-web");
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcForm {
    /// Trailers only: they are in the head, and the body is empty.
    Grpc,
    /// The trailers are in a frame of the body.
    Web,
    /// The same, in base64.
    WebText,
}

impl GrpcForm {
    /// Returns the form for a request. `None` if the request is not gRPC.
    ///
    /// It reads the content type, without its parameters and without the form of its messages, such
    /// as `+proto`. Any client can write the content type. So the method has to be POST, since
    /// caches store responses to GET, and gRPC itself needs HTTP/2.
    pub fn of(head: Head<'_>) -> Option<GrpcForm> {
        if *head.method != Method::POST {
            return None;
        }
        let value = head.headers.get(CONTENT_TYPE)?.as_bytes();
        // Parameters do not count, nor does the form of the messages, such as `+proto`.
        let end = value.iter().position(|byte| b"+; \t".contains(byte)).unwrap_or(value.len());
        let kind = &value[..end];
        let form = [GrpcForm::Grpc, GrpcForm::Web, GrpcForm::WebText]
            .into_iter()
            .find(|form| form.content_type().as_bytes().eq_ignore_ascii_case(kind))?;
        (form != GrpcForm::Grpc || head.version >= Version::HTTP_2).then_some(form)
    }

    /// Returns the response to a request that found the service overloaded: `UNAVAILABLE`, and the
    /// time after which the client may try again.
    ///
    /// The HTTP status is 200, and no cache may store the response.
    #[must_use]
    pub fn unavailable(self, retry_after: Duration) -> Response<Bytes> {
        response(self, Code::Unavailable, Some(retry_after))
    }

    const fn content_type(self) -> &'static str {
        match self {
            GrpcForm::Grpc => "application/grpc",
            GrpcForm::Web => "application/grpc-web",
            GrpcForm::WebText => "application/grpc-web-text",
        }
    }
}

/// The value of `Cache-Control` in each answer of a limit: no cache may store it.
///
/// The status is no protection: caches store a 200, and a server may send any status.
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Returns the response in a form. `None` as a wait tells the client never to try again.
pub(crate) fn response(form: GrpcForm, code: Code, wait: Option<Duration>) -> Response<Bytes> {
    let trailers = trailers(code, wait);
    let mut response = match form {
        GrpcForm::Grpc => {
            let mut response = Response::new(Bytes::new());
            *response.headers_mut() = trailers;
            response
        }
        GrpcForm::Web => Response::new(frame(&trailers).into()),
        GrpcForm::WebText => Response::new(padded(base64(&frame(&trailers))).into()),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
    headers.insert(CACHE_CONTROL, NO_STORE);
    response
}

/// Returns the trailers of the response.
pub(crate) fn trailers(code: Code, wait: Option<Duration>) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(6);
    trailers.insert(STATUS, code.number().into());
    trailers.insert(TEXT, HeaderValue::from_static(code.message()));
    match wait {
        Some(wait) => {
            trailers.insert(PUSHBACK, millis(wait).into());
            let details =
                HeaderValue::try_from(base64(&status(code, wait))).expect("base64 is visible ASCII");
            trailers.insert(DETAILS, details);
        }
        None => {
            trailers.insert(PUSHBACK, HeaderValue::from_static("-1"));
        }
    }
    trailers
}

/// Returns the frame of trailers of grpc-web: its kind, its length, and a block of header lines.
fn frame(trailers: &HeaderMap) -> Vec<u8> {
    const TRAILERS: u8 = 0x80;
    let mut block = Vec::new();
    for (name, value) in trailers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            block.extend_from_slice(part);
        }
    }
    // The block has some hundred bytes.
    let length = (block.len() as u32).to_be_bytes();
    [&[TRAILERS][..], &length, &block].concat()
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

/// Pads a text of base64 to whole groups of four digits (RFC 4648, 4).
fn padded(mut text: String) -> String {
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

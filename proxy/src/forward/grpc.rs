//! The answers of the proxy itself, as a client of gRPC reads them: trailers only.

use futures_util::FutureExt;
use h2::Reason;
use http_body_util::{BodyExt, Either};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};

use super::answers::Body;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The mark of a response in whose place the client's stream is reset.
#[derive(Clone, Copy)]
pub(crate) struct Reset(pub(crate) Reason);

/// Returns whether a request of HTTP/2 is one of gRPC, which has the method `POST`.
pub(crate) fn is_grpc<B>(request: &Request<B>) -> bool {
    if request.method() != Method::POST {
        return false;
    }
    let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let rest = kind.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| rest.first().is_none_or(|byte| b"+; \t".contains(byte)))
}

/// Returns an answer of the proxy as trailers in the head, with the line as the message.
///
/// The answer to a stream that the upstream has reset is marked as a [`Reset`].
/// The refusal of a limit has this form already.
pub(crate) fn as_grpc(mut response: Response<Body>) -> Response<Body> {
    if response.headers().contains_key(STATUS) {
        return response;
    }
    if let Some(reason) = response.extensions_mut().remove() {
        response.extensions_mut().insert(Reset(reason));
        return response;
    }
    let mut trailers = Response::new(Body::from(""));
    let headers = trailers.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(STATUS, code(response.status()).into());
    if let Some(wait) = response.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()) {
        // It is in whole seconds.
        let wait = HeaderValue::try_from(format!("{wait}000"));
        headers.extend(wait.ok().map(|wait| (PUSHBACK, wait)));
    }
    headers.extend(message(response.into_body()).map(|line| (MESSAGE, line)));
    trailers
}

/// Returns the code of gRPC for a status, by
/// <https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md>.
fn code(status: StatusCode) -> u16 {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => 8,
        StatusCode::NOT_IMPLEMENTED => 12,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => 14,
        _ => 13,
    }
}

/// Returns the line of an answer of the proxy. It has no percent sign, which would be an escape.
fn message(body: Body) -> Option<HeaderValue> {
    let Either::Left(line) = body.bytes else { return None };
    let line = line.collect().now_or_never()?.ok()?.to_bytes();
    HeaderValue::from_bytes(line.trim_ascii_end()).ok()
}

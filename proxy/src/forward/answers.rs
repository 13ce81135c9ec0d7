//! The answers of the proxy itself, and the body of each response.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use tollgate_adaptive::OwnedFlight;

use super::bodies::{Held, Returned};
use super::pool::Used;

/// The body of a response, and what is known of its upstream.
pub(crate) struct Body {
    pub(crate) bytes: Returned,
    /// `None` in an answer of the proxy itself.
    pub(crate) served: Option<Box<Served>>,
}

/// The parts of an upstream's response, to be held until its body has ended.
#[derive(Default)]
pub(crate) struct Served {
    /// The places of the request.
    pub(crate) flight: Option<Held>,
    /// The upstream that responded.
    pub(crate) upstream: Option<Arc<str>>,
    /// The place at the upstream.
    pub(crate) entered: Option<OwnedFlight>,
    /// The connection to the upstream, unless it is a tunnel now.
    pub(crate) used: Option<Used>,
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Body {
        Body { bytes: Either::Left(Full::new(bytes.into())), served: None }
    }
}

/// Returns an answer of the proxy itself: one line. No cache may store it: a client chooses some of
/// these by its headers, and caches may store a 501 that does not forbid it (RFC 9110, 15.1).
pub(crate) fn text(status: StatusCode, line: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(line.into());
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, plain);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(crate) fn retry_later(status: StatusCode, line: impl Into<Body>) -> Response<Body> {
    let mut response = text(status, line);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

//! A request that found no place in flight, and the responses to it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use crate::http::grpc::{self, Code};
use crate::http::{Head, Problem};
use crate::inflight::gate::Overloaded;
use crate::inflight::priority::Priority;

/// The wait that a refused client is told. The time until a place is free is not known.
const WAIT: Duration = Duration::from_secs(1);

/// A request that found no place, from which its response is made.
///
/// For the closure of [`reject_with`](super::InflightLayerBuilder::reject_with).
#[derive(Clone, Debug)]
pub struct Unavailable<'a> {
    head: Head<'a>,
    priority: Priority,
    overloaded: Overloaded,
    grpc: Option<HeaderValue>,
}

impl<'a> Unavailable<'a> {
    pub(super) fn new(head: Head<'a>, priority: Priority, overloaded: Overloaded) -> Unavailable<'a> {
        Unavailable { head, priority, overloaded, grpc: grpc::content_type(head.headers) }
    }

    /// Returns the head of the request.
    #[must_use]
    pub fn head(&self) -> Head<'a> {
        self.head
    }

    /// Returns the priority of the request.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Returns the limit and the requests in flight, as of the refusal.
    pub fn overloaded(&self) -> Overloaded {
        self.overloaded
    }

    /// Returns the wait that the client is told: a second.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        WAIT
    }

    /// Returns whether the request is one of gRPC: the response is HTTP 200, the refusal in
    /// headers.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        self.grpc.is_some()
    }

    /// Returns a response of 503 Service Unavailable.
    ///
    /// A gRPC request needs [`grpc_response`](Unavailable::grpc_response) instead.
    pub fn response<B>(&self, body: B) -> Response<B> {
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
    }

    /// Returns a gRPC response of `UNAVAILABLE` with the wait; `None` if the request is not gRPC.
    ///
    /// It has trailers only, so the body has to be empty. The wait is in `grpc-retry-pushback-ms`,
    /// and in the details as `RetryInfo`.
    pub fn grpc_response<B>(&self, empty: impl FnOnce() -> B) -> Option<Response<B>> {
        let mut response = Response::new(empty());
        *response.headers_mut() = grpc::headers(self.grpc.clone()?, Code::Unavailable, Some(WAIT));
        Some(response)
    }

    /// Returns a response with a [`Problem`], or that of gRPC.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Inflight;
    /// use tollgate::http::Problem;
    /// use tollgate::tower::InflightLayer;
    ///
    /// let layer = InflightLayer::builder(Inflight::fixed(64))
    ///     .reject_with(|refusal| refusal.problem(Problem::TEMPORARY_REDUCED_CAPACITY))
    ///     .build();
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn problem(&self, problem: Problem) -> Response<Bytes> {
        self.grpc_response(Bytes::new).unwrap_or_else(|| problem.response())
    }

    /// Returns the response of a layer without options.
    pub(super) fn bare(&self) -> Response<Bytes> {
        self.grpc_response(Bytes::new).unwrap_or_else(|| self.response(Bytes::new()))
    }

    /// Adds the wait to a response that does not tell one.
    pub(super) fn tell_wait<B>(&self, response: &mut Response<B>) {
        if !self.is_grpc() {
            response.headers_mut().entry(RETRY_AFTER).or_insert(WAIT.as_secs().into());
        }
    }
}

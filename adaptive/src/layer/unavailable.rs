//! A request that found no place in flight, and the responses to it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use crate::count::priority::Priority;
use crate::gate::overloaded::Overloaded;
use tollgate_http::{GrpcForm, Head, Problem};

/// No cache may store an answer of a limit.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// The wait that a refused client is told. The time until a place is free is not known.
const WAIT: Duration = Duration::from_secs(1);

/// A request that found no place, from which its response is made.
///
/// For the closure of [`reject_with`](crate::InflightLayerBuilder::reject_with).
#[derive(Clone, Debug)]
pub struct Unavailable<'a> {
    head: Head<'a>,
    priority: Priority,
    overloaded: Overloaded,
    grpc: Option<GrpcForm>,
}

impl<'a> Unavailable<'a> {
    pub(super) fn new(head: Head<'a>, priority: Priority, overloaded: Overloaded) -> Unavailable<'a> {
        Unavailable { head, priority, overloaded, grpc: GrpcForm::of(head) }
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
    /// trailers. [`Refusal::is_grpc`](tollgate_http::Refusal::is_grpc) has the rule.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        self.grpc.is_some()
    }

    /// Returns a response of 503 Service Unavailable, with `Cache-Control: no-store`.
    ///
    /// A gRPC request needs [`grpc_response`](Unavailable::grpc_response) instead.
    pub fn response<B>(&self, body: B) -> Response<B> {
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
        response
    }

    /// Returns a gRPC response of `UNAVAILABLE` with the wait; `None` if the request is not gRPC.
    ///
    /// To gRPC it has trailers only, and no body; to grpc-web it has the trailers as its body. The
    /// wait is in `grpc-retry-pushback-ms`, and in the details as `RetryInfo`.
    #[must_use]
    pub fn grpc_response<B: From<Bytes>>(&self) -> Option<Response<B>> {
        Some(self.grpc?.unavailable(WAIT).map(B::from))
    }

    /// Returns a response with a [`Problem`], or that of gRPC.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_adaptive::Inflight;
    /// use tollgate_http::Problem;
    /// use tollgate_adaptive::InflightLayer;
    ///
    /// let layer = InflightLayer::builder(Inflight::fixed(64))
    ///     .reject_with(|refusal| refusal.problem(Problem::TEMPORARY_REDUCED_CAPACITY))
    ///     .build();
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn problem(&self, problem: Problem) -> Response<Bytes> {
        self.grpc_response().unwrap_or_else(|| problem.response())
    }

    /// Returns the response of a layer without options.
    pub(super) fn bare(&self) -> Response<Bytes> {
        self.grpc_response().unwrap_or_else(|| self.response(Bytes::new()))
    }

    /// Completes a response: the wait, unless it tells one, and `no-store`, unless it has a rule
    /// for caches.
    pub(super) fn complete<B>(&self, response: &mut Response<B>) {
        let headers = response.headers_mut();
        headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
        if !self.is_grpc() {
            headers.entry(RETRY_AFTER).or_insert(WAIT.as_secs().into());
        }
    }
}

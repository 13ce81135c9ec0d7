//! The responses to refused requests.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};

use super::grpc::{self, Code, GrpcForm, NO_STORE};
use super::policy::Policy;
use crate::request::check::Check;
use crate::request::key::Head;
use tollgate::{Denied, Reason};

/// A refused request, from which its response is made.
#[derive(Clone, Debug)]
pub struct Refusal<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) why: Option<&'a Denied>,
    pub(crate) check: Option<Check>,
    pub(crate) ban: bool,
    pub(crate) policy: &'a Policy,
    pub(crate) grpc: Option<GrpcForm>,
    /// The gRPC code for a request without a key.
    pub(crate) keyless: Code,
}

impl<'a> Refusal<'a> {
    /// Creates the refusal of a request by a limit. `None` as `why` means that it had no key.
    ///
    /// # Examples
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Request;
    /// use tollgate_http::{Bare, Policy, Refusal, Reject};
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let quota = Quota::per_second(1);
    /// let (bucket, policy) = (TokenBucket::new(quota), Policy::new("default", quota)?);
    /// let request = Request::new(());
    /// let response = |denied| -> http::Response<Bytes> {
    ///     Bare.reject(&Refusal::new(&request, Some(denied), &policy))
    /// };
    /// assert!(bucket.try_acquire().is_ok());
    /// assert_eq!(response(&bucket.try_acquire().unwrap_err()).status(), 429);
    /// # Ok::<(), tollgate_http::InvalidName>(())
    /// ```
    pub fn new(head: impl Into<Head<'a>>, why: Option<&'a Denied>, policy: &'a Policy) -> Refusal<'a> {
        let head = head.into();
        let grpc = GrpcForm::of(head);
        Refusal { head, why, check: None, ban: false, policy, grpc, keyless: Code::InvalidArgument }
    }

    /// Returns the same refusal with another gRPC code for a missing key: `UNAUTHENTICATED`.
    ///
    /// This is for keys that name an identity; the default code is `INVALID_ARGUMENT`. A refusal by
    /// a limit stays `RESOURCE_EXHAUSTED`, and [`Check::NoPeer`] stays `INTERNAL`. A response that
    /// is not gRPC does not change: 401 needs a `WWW-Authenticate` header (RFC 9110, 15.5.2), which
    /// only the server can write.
    ///
    /// # Examples
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Request, Response, Version};
    /// use tollgate::Quota;
    /// use tollgate_http::{Bare, Policy, Refusal, Reject};
    ///
    /// // To be given to `reject_with` of a layer.
    /// let reject = |refusal: &Refusal<'_>| -> Response<Bytes> {
    ///     Bare.reject(&refusal.unauthenticated())
    /// };
    ///
    /// let policy = Policy::new("default", Quota::per_second(1))?;
    /// let request = Request::post("/").version(Version::HTTP_2);
    /// let request = request.header("content-type", "application/grpc").body(()).unwrap();
    /// let refusal = Refusal::new(&request, None, &policy);
    /// assert_eq!(reject(&refusal).headers()["grpc-status"], "16");
    /// # Ok::<(), tollgate_http::InvalidName>(())
    /// ```
    #[must_use]
    pub fn unauthenticated(&self) -> Refusal<'a> {
        Refusal { keyless: Code::Unauthenticated, ..self.clone() }
    }

    /// Notes the fault that [`KeyFrom::check`](crate::KeyFrom::check) returned for the request.
    #[must_use]
    pub fn with_check(self, check: Option<Check>) -> Refusal<'a> {
        Refusal { check, ..self }
    }

    /// Returns whether the key is banned, by
    /// [`ban_after`](crate::LimitBy::ban_after) of a layer.
    ///
    /// # Examples
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Response;
    /// use tollgate_http::{Problem, Refusal, Reject};
    ///
    /// // To be given to `reject_with` of a layer.
    /// let reject = |refusal: &Refusal<'_>| -> Response<Bytes> {
    ///     match refusal.is_ban() {
    ///         true => Problem::ABNORMAL_USAGE_DETECTED.reject(refusal),
    ///         false => Problem::QUOTA_EXCEEDED.reject(refusal),
    ///     }
    /// };
    /// # let _ = reject;
    /// ```
    #[must_use]
    pub fn is_ban(&self) -> bool {
        self.ban
    }

    /// Returns the fault of the server's setup that left the request without a key, if any.
    #[must_use]
    pub fn check(&self) -> Option<Check> {
        self.check
    }

    /// Returns the HTTP status and the gRPC code.
    fn codes(&self) -> (StatusCode, Code) {
        match (self.why, self.check) {
            (Some(_), _) if self.is_unavailable() => {
                (StatusCode::SERVICE_UNAVAILABLE, Code::LimitUnavailable)
            }
            (Some(_), _) => (StatusCode::TOO_MANY_REQUESTS, Code::ResourceExhausted),
            (None, Some(Check::NoPeer)) => (StatusCode::INTERNAL_SERVER_ERROR, Code::Internal),
            (None, _) => (StatusCode::BAD_REQUEST, self.keyless),
        }
    }

    /// Returns the head of the request.
    #[must_use]
    pub fn head(&self) -> Head<'a> {
        self.head
    }

    /// Returns the decision. `None` if the request had no key, and needs one.
    #[must_use]
    pub fn denied(&self) -> Option<&'a Denied> {
        self.why
    }

    /// Returns the policy of the limit that refused.
    #[must_use]
    pub fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// Returns the `Retry-After` of the refusal, if it has one, in whole seconds.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.why?.retry_after().map(|wait| Duration::from_secs(self.policy.wait(wait)))
    }

    /// Returns whether the request cost more than the limit ever grants, so that no retry succeeds.
    #[must_use]
    pub fn is_over_capacity(&self) -> bool {
        self.why.is_some_and(|denied| denied.reason() == Reason::TooMany)
    }

    /// Returns whether the store of the limit did not answer, and its policy refuses then: the
    /// client may be within its quota.
    ///
    /// Only a limiter that is not [at hand](crate::LayerLimiter::is_at_hand) has a store.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.why.is_some_and(|denied| denied.reason() == Reason::Unavailable)
    }

    /// Returns whether the request is one of gRPC: the response is HTTP 200, the refusal in
    /// trailers.
    ///
    /// | request | `Content-Type` |
    /// |---|---|
    /// | gRPC: POST over HTTP/2 | `application/grpc` |
    /// | grpc-web: POST | `application/grpc-web`, `application/grpc-web-text` |
    ///
    /// A suffix such as `+proto` and parameters may follow. Any other request is refused by its
    /// status: a client can write any content type, and caches store the 200 of a GET.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        self.grpc.is_some()
    }

    /// Returns a response of 429 Too Many Requests, or of 503 Service Unavailable if the store of
    /// the limit [did not answer](Refusal::is_unavailable).
    ///
    /// Without a key it is 400 Bad Request, or 500 Internal Server Error for [`Check::NoPeer`]. It
    /// has `Cache-Control: no-store`. A gRPC request needs
    /// [`grpc_response`](Refusal::grpc_response) instead.
    pub fn response<B>(&self, body: B) -> Response<B> {
        let mut response = Response::new(body);
        *response.status_mut() = self.codes().0;
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
        response
    }

    /// Returns a gRPC response of `RESOURCE_EXHAUSTED` with the wait; `None` if the request is not
    /// [gRPC](Refusal::is_grpc).
    ///
    /// To gRPC it has trailers only, and no body; to grpc-web it has the trailers as its body. If
    /// the store of the limit did not answer, the code is `UNAVAILABLE`. Without a key the code is
    /// `INVALID_ARGUMENT` or [`UNAUTHENTICATED`](Refusal::unauthenticated), or `INTERNAL` for
    /// [`Check::NoPeer`].
    ///
    /// The wait is in `grpc-retry-pushback-ms`, and in the details as `RetryInfo`, without which
    /// some clients never try again.
    #[must_use]
    pub fn grpc_response<B: From<Bytes>>(&self) -> Option<Response<B>> {
        let form = self.grpc?;
        let wait = self.why.and_then(Denied::retry_after);
        Some(grpc::response(form, self.codes().1, wait).map(B::from))
    }
}

/// A maker of responses to refused requests, such as a closure.
///
/// The headers that report the limit are added to the response, and `Cache-Control: no-store` if it
/// has no `Cache-Control`. A server of gRPC begins with [`grpc_response`](Refusal::grpc_response),
/// as [`Bare`] and [`Problem`] do.
///
/// # Examples
///
/// A cost in bytes that no bucket holds:
///
/// ```
/// use http::{Response, StatusCode};
/// use tollgate_http::Refusal;
///
/// let reject = |refusal: &Refusal<'_>| {
///     let mut response = refusal.response("Too many requests.\n");
///     if refusal.is_over_capacity() {
///         *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
///     }
///     response
/// };
/// # fn takes(_: impl tollgate_http::Reject<&'static str>) {}
/// # takes(reject);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` makes no response to a refused request with a body of `{B}`",
    label = "neither `Bare` nor `Problem` nor a closure from `&Refusal<'_>` to `Response<{B}>`",
    note = "`LayerBuilder::reject_with` takes a closure whose body is bytes, a text, or a whole body of a framework"
)]
pub trait Reject<B>: Send + Sync {
    /// Returns the response to a refused request.
    fn reject(&self, refusal: &Refusal<'_>) -> Response<B>;
}

impl<B, F: Fn(&Refusal<'_>) -> Response<B> + Send + Sync> Reject<B> for F {
    fn reject(&self, refusal: &Refusal<'_>) -> Response<B> {
        self(refusal)
    }
}

/// A response with an empty body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bare;

impl<B: From<Bytes>> Reject<B> for Bare {
    fn reject(&self, refusal: &Refusal<'_>) -> Response<B> {
        refusal.grpc_response().unwrap_or_else(|| refusal.response(Bytes::new().into()))
    }
}

/// A response with a body of `application/problem+json` (RFC 9457) that names the policy.
///
/// Status, type and title are for refusals by a limit over HTTP. If the store of the limit
/// [did not answer](Refusal::is_unavailable), they are those of
/// [`TEMPORARY_REDUCED_CAPACITY`](Problem::TEMPORARY_REDUCED_CAPACITY), and no policy is named. A
/// request without a key gets 400 or 500 without a type. A gRPC request gets the gRPC code of its
/// refusal and no body.
///
/// # Examples
///
/// ```
/// use bytes::Bytes;
/// use http::Request;
/// use tollgate_http::{Policy, Problem, Refusal, Reject};
/// use tollgate::{Quota, TokenBucket};
///
/// let quota = Quota::per_second(1);
/// let (bucket, policy) = (TokenBucket::new(quota), Policy::new("default", quota)?);
/// let _ = bucket.try_acquire();
/// let denied = bucket.try_acquire().unwrap_err();
/// let request = Request::new(());
/// let response: http::Response<Bytes> =
///     Problem::QUOTA_EXCEEDED.reject(&Refusal::new(&request, Some(&denied), &policy));
/// assert_eq!(response.headers()["content-type"], "application/problem+json");
/// assert!(response.body().ends_with(br#""violated-policies":["default"]}"#));
/// # Ok::<(), tollgate_http::InvalidName>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    kind: &'static str,
    title: &'static str,
    status: StatusCode,
}

impl Problem {
    /// 429: the client is over its quota.
    pub const QUOTA_EXCEEDED: Problem = Problem {
        kind: "https://iana.org/assignments/http-problem-types#quota-exceeded",
        title: "Request cannot be satisfied as assigned quota has been exceeded",
        status: StatusCode::TOO_MANY_REQUESTS,
    };

    /// 503: the server has less capacity for a while, for all clients.
    pub const TEMPORARY_REDUCED_CAPACITY: Problem = Problem {
        kind: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        title: "Request cannot be satisfied due to temporary server capacity constraints",
        status: StatusCode::SERVICE_UNAVAILABLE,
    };

    /// 429: the client behaves abnormally.
    pub const ABNORMAL_USAGE_DETECTED: Problem = Problem {
        kind: "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
        title: "Request not satisfied due to detection of abnormal request pattern",
        status: StatusCode::TOO_MANY_REQUESTS,
    };

    /// Returns a response with this problem, which names no policy.
    #[must_use]
    pub fn response(self) -> Response<Bytes> {
        let (kind, title, status) = (quoted(self.kind), quoted(self.title), self.status.as_u16());
        let body = format!(r#"{{"type":{kind},"title":{title},"status":{status}}}"#);
        let mut response = Response::new(body.into());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, NO_STORE);
        response
    }
}

impl Default for Problem {
    fn default() -> Problem {
        Problem::QUOTA_EXCEEDED
    }
}

impl<B: From<Bytes>> Reject<B> for Problem {
    fn reject(&self, refusal: &Refusal<'_>) -> Response<B> {
        refusal.grpc_response().unwrap_or_else(|| {
            if refusal.is_unavailable() {
                return Problem::TEMPORARY_REDUCED_CAPACITY.response().map(B::from);
            }
            let mut response = refusal.response(());
            if refusal.why.is_some() {
                *response.status_mut() = self.status;
            }
            let status = response.status().as_u16();
            let (kind, title, policy) = (quoted(self.kind), quoted(self.title), refusal.policy.quoted());
            let body = match refusal.why {
                Some(_) => {
                    format!(r#"{{"type":{kind},"title":{title},"status":{status},"violated-policies":[{policy}]}}"#)
                }
                None => format!(r#"{{"title":"Request has nothing to limit it by","status":{status}}}"#),
            };
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
            response.map(|()| B::from(Bytes::from(body)))
        })
    }
}

/// Returns a string of JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

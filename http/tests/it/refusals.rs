// promise: layer
//! Answers of the layers themselves: no header of a client makes one a success, and no cache may
//! store one.

mod bodies;

use std::future::Future;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Version};
use http_body::Body;
use tollgate::{Clock, Denied, Quota, RateLimiter, Reason};
use tollgate_http::{
    Bare, ClientIp, Headers, LimitBy, OnMissingKey, Policy, Problem, RateLimitLayer, Refusal, Reject,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::serving::{A, Echo, from};

const HOUR: Duration = Duration::from_secs(3_600);

/// Returns the response of a service, which is ready at once, with its whole body.
fn answer<S, B>(service: &mut S, request: Request<()>) -> Response<Bytes>
where
    S: Service<Request<()>, Response = Response<B>, Error = std::convert::Infallible>,
    B: Body<Data = Bytes, Error: std::fmt::Debug> + Unpin,
{
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(response) = pin!(service.call(request)).poll(&mut context) else {
        panic!("the response is not ready")
    };
    response.unwrap().map(|mut body| {
        let mut bytes = Vec::new();
        while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut context) {
            bytes.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        bytes.into()
    })
}

/// A service with an empty body.
#[derive(Clone)]
struct Empty(Echo);

/// A body of no frame.
struct NoBody;

impl Body for NoBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        Poll::Ready(None)
    }
}

impl Service<Request<()>> for Empty {
    type Response = Response<NoBody>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let answered = pin!(self.0.call(request)).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Ok(response)) = answered else { panic!("it is ready") };
        std::future::ready(Ok(response.map(|()| NoBody)))
    }
}

fn asks(method: &Method, version: Version, content_type: &str) -> Request<()> {
    let mut request = from(A, "/logo.png");
    *request.method_mut() = method.clone();
    *request.version_mut() = version;
    request.headers_mut().insert("content-type", content_type.parse().unwrap());
    request
}

/// Returns the refusals of a request by each layer and each response of this crate.
fn refusals(request: impl Fn() -> Request<()>) -> Vec<(&'static str, Response<Bytes>)> {
    let limiter = || {
        let limiter = RateLimiter::<IpAddr>::builder(Quota::per_hour(1)).clock(Clock::mock().0).build();
        limiter.try_acquire(&IpAddr::from([192, 0, 2, 1])).unwrap();
        RateLimitLayer::builder(limiter).key(ClientIp::peer())
    };
    let of = |layer: RateLimitLayer<IpAddr>| answer(&mut layer.layer(Empty(Echo::default())), request());
    let banned = || limiter().ban_after(1, HOUR).for_(HOUR).unwrap();
    let keyless = || {
        RateLimitLayer::builder(RateLimiter::<IpAddr>::new(Quota::per_hour(1))).key_async(|_| async { None })
    };
    let refused = vec![
        ("bare", of(limiter().build())),
        ("a problem", of(limiter().reject_as(Problem::QUOTA_EXCEEDED).build())),
        ("without headers", of(limiter().headers(Headers::None).build())),
        (
            "two limits",
            of(limiter()
                .and(LimitBy::new(RateLimiter::<IpAddr>::new(Quota::per_hour(1))).key(ClientIp::peer()))
                .build()),
        ),
        ("a ban", of(banned().reject_as(Problem::ABNORMAL_USAGE_DETECTED).build())),
        ("without a key", of(keyless().on_missing_key(OnMissingKey::Reject).build())),
        ("a problem without a key", of(keyless().reject_as(Problem::QUOTA_EXCEEDED).build())),
    ];
    refused
}

/// The codes of gRPC of these refusals.
const CODES: [&str; 7] = ["8", "8", "8", "8", "8", "3", "3"];

const V11: Version = Version::HTTP_11;
const V2: Version = Version::HTTP_2;

/// Requests that are none of gRPC.
fn plain() -> Vec<(Method, Version, &'static str)> {
    let mut plain = Vec::new();
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::OPTIONS, Method::DELETE, Method::PATCH] {
        for version in [Version::HTTP_10, V11, V2] {
            for kind in [
                "application/grpc",
                "application/grpc+proto",
                "application/grpc-web",
                "application/grpc-web-text",
            ] {
                plain.push((method.clone(), version, kind));
            }
        }
    }
    // gRPC itself is spoken over HTTP/2 alone.
    plain.extend([
        (Method::POST, V11, "application/grpc"),
        (Method::POST, Version::HTTP_10, "application/grpc+proto"),
    ]);
    for kind in [
        "application/grpc-ANYTHING",
        "application/grpc-webx",
        "application/grpc-web-",
        "application/grpc-web-html",
        "application/grpcx",
        "application/grp",
        "application/json",
        "text/html",
        "x-application/grpc",
    ] {
        plain.extend([(Method::POST, V2, kind), (Method::POST, V11, kind)]);
    }
    plain
}

#[test]
fn a_refusal_of_a_request_that_is_none_of_grpc_has_the_status_of_a_refusal() {
    for (method, version, kind) in plain() {
        for (by, response) in refusals(|| asks(&method, version, kind)) {
            let text = format!("{by}: {method} {version:?} {kind}: {response:?}");
            assert!(response.status().is_client_error() || response.status().is_server_error(), "{text}");
            assert!(!response.headers().contains_key("grpc-status"), "{text}");
            let told = response.headers().get("content-type").map(|kind| kind.to_str().unwrap());
            assert!(matches!(told, None | Some("application/problem+json")), "{text}");
        }
    }
}

#[test]
fn a_refusal_of_grpc_has_trailers_only_and_a_content_type_of_ours() {
    for kind in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc+json",
        "application/grpc+<script>",
        "application/grpc;charset=x",
        "Application/GRPC",
        "application/grpc ;a=b",
    ] {
        for ((by, response), code) in refusals(|| asks(&Method::POST, V2, kind)).into_iter().zip(CODES) {
            let says = |name| response.headers().get(name).map(|value| value.to_str().unwrap());
            let text = format!("{by}: {kind}: {response:?}");
            assert_eq!((response.status().as_u16(), says("grpc-status")), (200, Some(code)), "{text}");
            assert_eq!(
                (says("content-type"), response.body().len()),
                (Some("application/grpc"), 0),
                "{text}"
            );
            assert!(says("retry-after").is_none() && says("ratelimit").is_none(), "{text}");
        }
    }
}

/// Returns the fields of the trailer frame, which is the whole body.
fn trailers(body: &[u8]) -> Vec<(String, String)> {
    let (head, block) = body.split_at(5);
    assert_eq!(head[0], 0x80, "an uncompressed frame of trailers");
    assert_eq!(u32::from_be_bytes(head[1..].try_into().unwrap()) as usize, block.len());
    let block = std::str::from_utf8(block).unwrap();
    let lines = block.strip_suffix("\r\n").unwrap().split("\r\n");
    lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Decodes base64 with padding.
fn decoded(text: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    assert!(text.len().is_multiple_of(4));
    let mut bytes = Vec::new();
    for four in text.chunks(4) {
        let digits: Vec<u32> = four
            .iter()
            .filter(|byte| **byte != b'=')
            .map(|byte| DIGITS.iter().position(|digit| digit == byte).unwrap() as u32)
            .collect();
        let bits = digits.iter().enumerate().fold(0, |bits, (at, digit)| bits | digit << (18 - 6 * at));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..digits.len()]);
    }
    bytes
}

#[test]
fn a_refusal_of_grpc_web_has_its_status_in_a_frame_of_the_body() {
    for version in [V11, V2] {
        for (kind, told, is_text) in [
            ("application/grpc-web", "application/grpc-web", false),
            ("application/grpc-web+proto", "application/grpc-web", false),
            ("APPLICATION/grpc-Web", "application/grpc-web", false),
            ("application/grpc-web; charset=x", "application/grpc-web", false),
            ("application/grpc-web-text", "application/grpc-web-text", true),
            ("application/grpc-web-text+proto", "application/grpc-web-text", true),
        ] {
            for ((by, response), code) in
                refusals(|| asks(&Method::POST, version, kind)).into_iter().zip(CODES)
            {
                let says = |name| response.headers().get(name).map(|value| value.to_str().unwrap());
                let text = format!("{by}: {version:?} {kind}: {response:?}");
                assert_eq!((response.status().as_u16(), says("content-type")), (200, Some(told)), "{text}");
                assert!(says("grpc-status").is_none() && says("ratelimit").is_none(), "{text}");
                let body = if is_text { decoded(response.body()) } else { response.body().to_vec() };
                let trailers = trailers(&body);
                assert_eq!(trailers[0], ("grpc-status".to_owned(), code.to_owned()), "{text}");
                let names: Vec<_> = trailers.iter().map(|(name, _)| &**name).collect();
                assert_eq!(names[..3], ["grpc-status", "grpc-message", "grpc-retry-pushback-ms"], "{text}");
                assert_eq!(names.len() > 3, code != "3", "the details have the wait: {text}");
            }
        }
    }
}

#[test]
fn no_cache_may_store_an_answer_of_a_layer() {
    let mut kinds = plain();
    kinds.extend([(Method::POST, V2, "application/grpc"), (Method::POST, V11, "application/grpc-web")]);
    for (method, version, kind) in kinds {
        for (by, response) in refusals(|| asks(&method, version, kind)) {
            let told: Vec<_> = response.headers().get_all("cache-control").iter().collect();
            assert_eq!(told, ["no-store"], "{by}: {method} {version:?} {kind}");
        }
    }
    // A response of the user that says nothing of caches, and one that does.
    let own = |told: Option<&'static str>| {
        let limiter = RateLimiter::<IpAddr>::builder(Quota::per_hour(1)).clock(Clock::mock().0).build();
        limiter.try_acquire(&IpAddr::from([192, 0, 2, 1])).unwrap();
        let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).reject_with(move |_| {
            let mut response = Response::new("later");
            told.map(|told| response.headers_mut().insert("cache-control", told.parse().unwrap()));
            response
        });
        let response = answer(&mut layer.build().layer(Empty(Echo::default())), from(A, "/"));
        response.headers()["cache-control"].to_str().unwrap().to_owned()
    };
    assert_eq!((own(None), own(Some("private"))), ("no-store".to_owned(), "private".to_owned()));
}

#[test]
fn no_cache_may_store_a_refusal_that_is_made_without_a_layer() {
    let policy = Policy::new("default", Quota::per_second(1)).unwrap();
    let denied = Denied::from_parts(Reason::Unavailable, 1, 0, Some(HOUR));
    let request = Request::new(());
    for why in [None, Some(&denied)] {
        let refusal = Refusal::new(&request, why, &policy);
        let made: [Response<Bytes>; 3] =
            [Bare.reject(&refusal), Problem::QUOTA_EXCEEDED.reject(&refusal), refusal.response(Bytes::new())];
        for response in made {
            assert_eq!(response.headers()["cache-control"], "no-store", "{response:?}");
        }
    }
}

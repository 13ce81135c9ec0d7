// promise: layer
//! The decision on a head is that of the layer's service, in random requests.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::net::IpAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Extensions, HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tollgate::{Clock, MockClock, Quota, RateLimiter};
use tollgate_http::{
    ClientIp, Cost, Deciding, Exempt, Head, HeaderKey, Headers, LayerBuilder, LimitBy, OnMissingKey, Passed,
    Problem, RateLimitLayer, ResponseBody, Verdict,
};
use tollgate_testing::Random;
use tower_layer::Layer;
use tower_service::Service;

use crate::serving::{A, B, ip};

const EXCEEDED: &str = "x-ratelimit-exceeded";

/// Answers with the response that the head of a request names: a status, and fields. It notes
/// whether the request is over a limit.
fn inner(headers: &HeaderMap) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from("a body"));
    *response.status_mut() = StatusCode::from_bytes(headers["x-status"].as_bytes()).unwrap();
    for name in ["x-cost", "x-ratelimit-remaining", EXCEEDED] {
        if let Some(value) = headers.get(name) {
            response.headers_mut().insert(http::HeaderName::from_static(name), value.clone());
        }
    }
    response.headers_mut().insert(CONTENT_LENGTH, 6.into());
    response
}

#[derive(Clone)]
struct Inner;

impl Service<Request<()>> for Inner {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        ready(Ok(inner(request.headers())))
    }
}

fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it is ready at its first poll"),
    }
}

/// Returns the request that is passed on, or the status of its refusal.
fn decided(deciding: Deciding<'_>) -> Result<Passed, u16> {
    match now(deciding) {
        Verdict::Passed(passed) => Ok(passed),
        Verdict::Refused(refusal) => Err(refusal.status().as_u16()),
    }
}

/// The parts of a response that a client sees.
type Seen = (StatusCode, HeaderMap, Bytes);

fn seen(response: Response<ResponseBody<Full<Bytes>>>) -> Seen {
    let (head, body) = response.into_parts();
    (head.status, head.headers, now(body.collect()).unwrap().to_bytes())
}

fn by_service(layer: &RateLimitLayer<IpAddr>, peer: IpAddr, mut request: Request<()>) -> Seen {
    request.extensions_mut().insert(peer);
    seen(now(layer.layer(Inner).call(request)).unwrap())
}

fn by_head(layer: &RateLimitLayer<IpAddr>, peer: IpAddr, request: Request<()>) -> Seen {
    let (mut head, ()) = request.into_parts();
    let passed = match now(layer.decide(Head::from(&head).with_peer(peer))) {
        Verdict::Passed(passed) => passed,
        Verdict::Refused(refusal) => return seen(refusal.map(ResponseBody::from)),
    };
    match passed.upstream_field() {
        Some((name, Some(value))) => _ = head.headers.insert(name, value),
        Some((name, None)) => _ = head.headers.remove(name),
        None => {}
    }
    let mut response = inner(&head.headers);
    let meter = passed.respond(&mut response);
    seen(response.map(|body| ResponseBody::metered(body, meter)))
}

type Options = fn(LayerBuilder<IpAddr>, &Clock) -> LayerBuilder<IpAddr>;

/// The options of a layer, each by itself, and all.
const OPTIONS: [(&str, Options); 13] = [
    ("none", |layer, _| layer),
    ("several limits", |layer, clock| {
        let by_key = RateLimiter::builder(Quota::per_second(3).burst(2)).clock(clock.clone()).build();
        let header = HeaderKey::new("x-api-key").unwrap();
        layer.and(LimitBy::new(by_key).key(header).on_missing_key(OnMissingKey::Allow).name("key").unwrap())
    }),
    ("a needed key", |layer, clock| {
        let by_key = RateLimiter::builder(Quota::per_second(3)).clock(clock.clone()).build();
        layer.and(LimitBy::new(by_key).key(HeaderKey::new("x-api-key").unwrap()))
    }),
    ("a cost", |layer, _| layer.cost(|head| head.uri.path().len() as u64)),
    ("exempt", |layer, _| layer.exempt(Exempt::paths(["/free"]).unwrap())),
    ("a ban", |layer, _| layer.ban_after(2, Duration::from_secs(9)).for_(Duration::from_secs(3)).unwrap()),
    ("shadow", |layer, _| layer.enforce(0).tell_upstream()),
    ("half", |layer, _| layer.enforce(50).tell_upstream()),
    ("a refund", |layer, _| layer.refund_on(|status| status.is_client_error())),
    ("a settled cost", |layer, _| {
        layer.settle_on(|head| {
            match head.headers.get("x-cost").and_then(|cost| cost.to_str().ok()?.parse().ok()) {
                Some(tokens) => Cost::tokens(tokens),
                None => Cost::bytes(),
            }
        })
    }),
    ("old fields", |layer, _| layer.headers(Headers::Both).expose_headers()),
    ("a problem", |layer, _| layer.reject_as(Problem::QUOTA_EXCEEDED)),
    ("all", |layer, clock| OPTIONS[1..12].iter().fold(layer, |layer, (_, set)| set(layer, clock))),
];

fn layer(set: Options, clock: &Clock) -> RateLimitLayer<IpAddr> {
    let limiter = RateLimiter::builder(Quota::per_second(2).burst(4)).clock(clock.clone()).build();
    set(RateLimitLayer::builder(limiter).key(ClientIp::peer()), clock).build()
}

fn request(random: &mut Random) -> Request<()> {
    let mut pick = |of: &[&'static str]| random.pick(of);
    let mut request = Request::builder()
        .method(pick(&["GET", "POST", "HEAD"]))
        .uri(pick(&["/", "/a", "/free"]))
        .version(http::Version::HTTP_2)
        .header("x-status", pick(&["200", "301", "404", "503"]));
    for (name, values) in [
        ("x-cost", &["", "", "0", "3"][..]),
        ("x-api-key", &["", "k", "l"]),
        ("origin", &["", "https://a.example"]),
        ("content-type", &["", "application/grpc", "application/grpc-web"]),
        ("x-ratelimit-remaining", &["", "", "1"]),
        (EXCEEDED, &["", "1"]),
    ] {
        let value = pick(values);
        if !value.is_empty() {
            request = request.header(name, value);
        }
    }
    request.body(()).unwrap()
}

#[test]
fn a_decision_on_a_head_is_that_of_the_service() {
    for (name, set) in OPTIONS {
        let (clock, mock): (Clock, MockClock) = Clock::mock();
        let (of_service, of_heads) = (layer(set, &clock), layer(set, &clock));
        let mut random = Random(name.len() as u64);
        for step in 0..400 {
            mock.advance(Duration::from_millis(random.below(300)));
            let peer = ip(random.pick(&[A, B]));
            let request = request(&mut random);
            let asked = format!("{name}, {step}: {request:?}");
            let by_service = by_service(&of_service, peer, request.clone());
            assert_eq!(by_head(&of_heads, peer, request), by_service, "{asked}");
            assert_eq!(of_heads.stats(), of_service.stats(), "{asked}");
        }
        let stats = of_heads.stats();
        let over = stats.refused + stats.banned + stats.shadow_refused + stats.rejected;
        assert!(stats.granted > 20 && over > 20, "{name}: {stats:?}");
    }
}

/// The peer of a head is the client, whatever the extensions say.
#[test]
fn a_peer_beside_the_request_is_before_its_extensions() {
    let layer = layer(|layer, _| layer, &Clock::mock().0);
    let mut request = Request::new(());
    request.extensions_mut().insert(ip(A));
    for _ in 0..4 {
        assert!(decided(layer.decide(Head::from(&request).with_peer(ip(B)))).is_ok());
    }
    assert!(decided(layer.decide(Head::from(&request).with_peer(ip(B)))).is_err());
    assert!(decided(layer.decide(&request)).is_ok());
    *request.extensions_mut() = Extensions::new();
    assert_eq!(decided(layer.decide(&request)).unwrap_err(), 500);
    // A boxed layer is the same one.
    assert!(decided(layer.boxed().decide(Head::from(&request).with_peer(ip(B)))).is_err());
}

#[test]
fn a_request_without_a_response_has_spent_its_tokens() {
    let layer = layer(|layer, _| layer.refund_on(|_| true), &Clock::mock().0);
    let head = Request::new(());
    let head = || Head::from(&head).with_peer(ip(A));
    // A decision that is not polled takes nothing.
    for _ in 0..9 {
        drop(layer.decide(head()));
    }
    for left in (0..4).rev() {
        let passed = decided(layer.decide(head())).unwrap();
        assert_eq!(passed.decision().unwrap().result().unwrap().remaining(), left);
    }
    assert!(decided(layer.decide(head())).is_err());
    assert_eq!((layer.stats().granted, layer.stats().refunded), (4, 0));
}

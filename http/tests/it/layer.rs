// promise: layer
//! The layer of tower: requests that it passes on and refuses, and their counts.

#[cfg(feature = "metrics")]
#[path = "layer/facade.rs"]
mod facade;
#[path = "layer/keys.rs"]
mod keys;
#[path = "layer/responses.rs"]
mod responses;
#[cfg(feature = "tracing")]
#[path = "layer/said.rs"]
mod said;
#[path = "layer/several.rs"]
mod several;

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tollgate_http::{
    ClientIp, Decision, Digest, Head, HeaderKey, Headers, LimitBy, OnMissingKey, Problem, RateLimitLayer,
    ResponseBody, key_fn, prometheus,
};

use crate::serving::{answers_at_once, by_address_and_key};
use tollgate::{Clock, MockClock, Quota, RateLimiter, Reason, Window};
use tower_layer::Layer;
use tower_service::Service;

/// Answers with the status that the path names, and tells the decision.
#[derive(Clone, Default)]
struct Echo {
    calls: Arc<AtomicU64>,
}

answers_at_once!(Echo => Bytes);

impl Echo {
    fn answer(&self, request: Request<()>) -> Response<Bytes> {
        self.calls.fetch_add(1, Relaxed);
        let status = request.uri().path()[1..].parse().unwrap_or(StatusCode::OK);
        let decision = request.extensions().get::<Decision>().map(|decision| decision.result().is_ok());
        let mut response = Response::new(Bytes::from(format!("{decision:?}")));
        *response.status_mut() = status;
        response
    }
}

/// A body of bytes, behind some limits.
trait Whole: From<Bytes> {
    fn whole(self) -> Bytes;
}

impl Whole for Bytes {
    fn whole(self) -> Bytes {
        self
    }
}

impl<B: Whole> Whole for ResponseBody<B> {
    fn whole(self) -> Bytes {
        self.into_inner_or_else(B::from).whole()
    }
}

/// Its response, which is ready at once.
fn call<S, B: Whole>(service: &mut S, request: Request<()>) -> Response<Bytes>
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_ready());
    match pin!(service.call(request)).poll(&mut context) {
        Poll::Ready(response) => response.unwrap().map(Whole::whole),
        Poll::Pending => panic!("nothing is waited for"),
    }
}

fn from(peer: &str, path: &str) -> Request<()> {
    let mut request = Request::get(path).body(()).unwrap();
    request.extensions_mut().insert(peer.parse::<IpAddr>().unwrap());
    request
}

const A: &str = "192.0.2.1";
const B: &str = "192.0.2.2";

fn limiter(quota: Quota) -> (Arc<RateLimiter<IpAddr>>, MockClock) {
    let (clock, mock) = Clock::mock();
    (Arc::new(RateLimiter::builder(quota).clock(clock).max_keys(10_000).build()), mock)
}

fn status(response: &Response<Bytes>) -> u16 {
    response.status().as_u16()
}

fn says<'a>(response: &'a Response<Bytes>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

#[test]
fn each_address_has_its_own_bucket_and_all_clones_count_together() {
    let (limiter, mock) = limiter(Quota::per_second(2));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
    let echo = Echo::default();
    // As axum does: a service for each route, and a clone for each connection.
    let (mut one, mut two) = (layer.layer(echo.clone()), layer.layer(echo.clone()));
    let mut clone = one.clone();
    assert_eq!(says(&call(&mut one, from(A, "/")), "ratelimit"), Some(r#""default";r=1;t=1"#));
    assert_eq!(status(&call(&mut two, from(A, "/"))), 200);
    let refused = call(&mut clone, from(A, "/"));
    assert_eq!((status(&refused), says(&refused, "retry-after")), (429, Some("1")));
    assert_eq!(says(&refused, "ratelimit-policy"), Some(r#""default";q=2;w=1"#));
    assert_eq!(says(&refused, "ratelimit"), Some(r#""default";r=0;t=1"#));
    assert_eq!(status(&call(&mut clone, from(B, "/"))), 200);
    assert_eq!(echo.calls.load(Relaxed), 3);
    mock.advance(Duration::from_millis(500));
    assert_eq!(status(&call(&mut one, from(A, "/"))), 200);
    let stats = layer.stats();
    assert_eq!((stats.granted, stats.refused, stats.keys, stats.skipped), (4, 1, 2, 0));
    assert_eq!(layer.top_refused(10), [(A.parse().unwrap(), 1)]);
}

#[test]
fn the_decision_is_told_to_those_behind() {
    let (limiter, _mock) = limiter(Quota::per_second(1));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
    assert_eq!(call(&mut layer.layer(Echo::default()), from(A, "/")).body(), "Some(true)");
    let applies = |head: Head<'_>| head.uri.path() != "/health";
    let layer = RateLimitLayer::builder(RateLimiter::<IpAddr>::builder(Quota::per_hour(1)).build())
        .shared()
        .when(applies)
        .build();
    let mut service = layer.layer(Echo::default());
    for _ in 0..3 {
        let response = call(&mut service, from(A, "/health"));
        assert_eq!((response.body().as_ref(), response.headers().len()), (&b"None"[..], 0));
    }
    assert_eq!(layer.stats().skipped, 3);
}

#[test]
fn two_layers_on_one_limiter_count_once() {
    let (limiter, _mock) = limiter(Quota::per_second(2));
    let outer = RateLimitLayer::builder(limiter.clone()).key(ClientIp::peer()).build();
    let inner = RateLimitLayer::builder(limiter.clone()).key(ClientIp::peer()).build();
    let other =
        RateLimitLayer::builder(RateLimiter::<IpAddr>::builder(Quota::per_hour(9)).build()).shared().build();
    let mut service = outer.layer(other.layer(inner.layer(Echo::default())));
    assert_eq!(status(&call(&mut service, from(A, "/"))), 200);
    assert_eq!(limiter.peek(&A.parse::<IpAddr>().unwrap()).remaining(), 1);
    assert_eq!((inner.stats().skipped, inner.stats().granted, other.stats().granted), (1, 0, 1));
    let response = call(&mut service, from(A, "/"));
    assert_eq!(response.headers().get_all("ratelimit-policy").iter().count(), 2);
    assert_eq!(status(&call(&mut service, from(A, "/"))), 429);
    assert_eq!(other.stats().granted, 2);
}

#[test]
fn shadow_mode_refuses_nobody_and_counts_what_enforcement_refuses() {
    let mut refused = Vec::new();
    for shadow in [false, true] {
        let (limiter, mock) = limiter(Quota::per_second(10).burst(3));
        let layer = RateLimitLayer::builder(limiter)
            .key(ClientIp::peer())
            .enforce(if shadow { 0 } else { 100 })
            .build();
        let mut service = layer.layer(Echo::default());
        for i in 0..1_000_u64 {
            let response = call(&mut service, from(if i % 3 == 0 { B } else { A }, "/"));
            assert!(!shadow || (status(&response) == 200 && response.headers().is_empty()));
            mock.advance(Duration::from_millis(i * 37 % 101));
        }
        let stats = layer.stats();
        refused.push(stats.refused + stats.shadow_refused);
        assert_eq!(if shadow { stats.refused } else { stats.shadow_refused }, 0);
    }
    assert_eq!(refused[0], refused[1]);
    assert!(refused[0] > 100, "{refused:?}");
}

#[test]
fn a_share_of_keys_is_enforced_and_always_the_same() {
    let (limiter, _mock) = limiter(Quota::per_hour(1));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).enforce(30).build();
    let mut service = layer.layer(Echo::default());
    let mut refused = 0;
    for i in 0..1_000_u32 {
        let peer = IpAddr::from(i.to_be_bytes()).to_string();
        assert_eq!(status(&call(&mut service, from(&peer, "/"))), 200);
        let twice = [(); 2].map(|()| status(&call(&mut service, from(&peer, "/"))));
        assert_eq!(twice[0], twice[1]);
        refused += u32::from(twice[0] == 429);
    }
    assert!((200..400).contains(&refused), "{refused}");
    let stats = layer.stats();
    assert_eq!(
        (stats.refused, stats.shadow_refused),
        (u64::from(2 * refused), u64::from(2_000 - 2 * refused))
    );
}

#[test]
fn what_succeeds_is_refunded() {
    let (limiter, _mock) = limiter(Quota::per_hour(2));
    let layer = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer())
        .refund_on(|status| status.is_success())
        .build();
    let mut service = layer.layer(Echo::default());
    for _ in 0..5 {
        assert_eq!(status(&call(&mut service, from(A, "/200"))), 200);
    }
    assert_eq!([(); 3].map(|()| status(&call(&mut service, from(A, "/401")))), [401, 401, 429]);
    assert_eq!(layer.stats().refunded, 5);
}

#[test]
fn a_cost_and_a_plan_for_each_request() {
    let builder = RateLimiter::<IpAddr>::builder(Quota::per_second(10)).clock(Clock::mock().0);
    let limiter = builder.headroom(Quota::per_second(100)).unwrap().build();
    let gold = limiter.plan(Quota::per_second(100)).unwrap();
    let layer = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer())
        .cost(|head| head.headers.get("cost").map_or(1, |cost| cost.to_str().unwrap().parse().unwrap()))
        .plan(move |head| head.headers.contains_key("gold").then_some(gold))
        .build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |peer: &str, cost: &'static str, gold: bool| {
        let mut request = from(peer, "/");
        request.headers_mut().insert("cost", cost.parse().unwrap());
        if gold {
            request.headers_mut().insert("gold", 1.into());
        }
        call(&mut service, request)
    };
    assert_eq!(says(&asks(A, "7", false), "ratelimit"), Some(r#""default";r=3;t=1"#));
    assert_eq!(status(&asks(A, "7", false)), 429);
    let rich = asks(B, "70", true);
    assert_eq!(says(&rich, "ratelimit-policy"), Some(r#""default";q=100;w=1"#));
    assert_eq!(says(&rich, "ratelimit"), Some(r#""default";r=30;t=1"#));
    // Never: no `Retry-After`.
    let never = asks(B, "101", true);
    assert_eq!((status(&never), says(&never, "retry-after")), (429, None));
}

#[test]
fn one_bucket_for_all_requests_has_to_be_said() {
    let (limiter, _mock) = limiter(Quota::per_hour(2));
    let layer = RateLimitLayer::builder(limiter.clone()).shared().build();
    let mut service = layer.layer(Echo::default());
    assert_eq!([A, B, A].map(|peer| status(&call(&mut service, from(peer, "/")))), [200, 200, 429]);
    assert_eq!((layer.stats().keys, layer.stats().keyless), (0, 3));
}

#[test]
fn a_closure_needs_no_type_for_its_argument() {
    let pairs = RateLimiter::<(IpAddr, String)>::builder(Quota::per_hour(1)).build();
    let by_path = key_fn(|head| Some(head.uri.path().to_owned()));
    let layer = RateLimitLayer::builder(pairs).key((ClientIp::peer(), by_path)).build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |path| status(&call(&mut service, from(A, path)));
    assert_eq!(["/201", "/202", "/201"].map(&mut asks), [201, 202, 429]);
}

#[test]
fn series_are_few_whatever_clients_do() {
    let (limiter, _mock) = limiter(Quota::per_second(1));
    let layer = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer())
        .name(r#"a "b" \c"#)
        .unwrap()
        .and(
            LimitBy::new(
                RateLimiter::<String>::builder(Quota::per_second(1_000_000)).max_keys(10_000).build(),
            )
            .shared(),
        )
        .build();
    let mut service = layer.layer(Echo::default());
    let lines = || prometheus(&[layer.stats()]).lines().count();
    let before = lines();
    for i in 0..2_000_u32 {
        call(&mut service, from(&IpAddr::from(i.to_be_bytes()).to_string(), &format!("/{i}")));
    }
    let text = prometheus(&[layer.stats()]);
    assert_eq!(lines(), before);
    assert!(
        text.contains("tollgate_decisions_total{policy=\"a \\\"b\\\" \\\\c\",result=\"granted\"} 2000\n"),
        "{text}"
    );
    assert!(text.contains("tollgate_keys{policy=\"a \\\"b\\\" \\\\c\"} 2000\n"), "{text}");
}

#[test]
fn who_is_refused_most_is_known_among_many() {
    let (limiter, _mock) = limiter(Quota::per_hour(1));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |peer: &str, times| (0..times).for_each(|_| drop(call(&mut service, from(peer, "/"))));
    asks(A, 301);
    asks(B, 201);
    let known = [A, B].map(|peer| peer.parse::<IpAddr>().unwrap());
    assert_eq!(layer.top_refused(9), [(known[0], 300), (known[1], 200)]);
    assert_eq!(layer.top_refused(1), [(known[0], 300)]);
    // Each of these is refused once, and takes the place of another of them.
    (0..5_000_u32).for_each(|i| asks(&IpAddr::from((i | 1 << 31).to_be_bytes()).to_string(), 2));
    let top = layer.top_refused(usize::MAX);
    assert!(top.len() <= 512 && top.iter().skip(2).all(|(_, count)| *count < 200), "{top:?}");
    assert_eq!(top[..2], [(known[0], 300), (known[1], 200)]);
    // None is lost: a count goes on from that of the key whose place it took.
    assert_eq!(top.iter().map(|(_, count)| count).sum::<u64>(), 5_500);
}

/// A service that says whether the one that was polled is the one that is called.
#[derive(Default)]
struct Polled(bool);

impl Clone for Polled {
    fn clone(&self) -> Polled {
        Polled(false)
    }
}

impl Service<Request<()>> for Polled {
    type Response = Response<Bytes>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Bytes>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0 = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(self.0, "another was polled");
        ready(Ok(Response::default()))
    }
}

#[test]
fn the_service_that_was_polled_is_called() {
    let layer = RateLimitLayer::builder(RateLimiter::<IpAddr>::builder(Quota::per_second(1)).build())
        .shared()
        .build();
    assert_eq!(status(&call(&mut layer.layer(Polled::default()), from(A, "/"))), 200);
}

#[test]
fn all_is_sent_and_shared() {
    fn is<T: Clone + Send + Sync + 'static>(_: &T) {}
    let layer = RateLimitLayer::builder(RateLimiter::<String>::builder(Quota::per_second(1)).build())
        .shared()
        .build();
    is(&layer);
    is(&layer.layer(Echo::default()));
}

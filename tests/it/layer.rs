// promise: layer
//! The layer of tower: what is passed on, what is refused, and what is said of it.

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
use tollgate::http::{ClientIp, Digest, Head, HeaderKey, Headers, Problem, key_fn};

use super::{InStore, Room};
use crate::serving::{answers_at_once, by_address_and_key};
use tollgate::tower::{Decision, LimitBy, OnMissingKey, RateLimitLayer, ResponseBody, prometheus};
use tollgate::{Clock, MockClock, Quota, RateLimiter, Reason, Window, WindowLimiter};
use tower_layer::Layer;
use tower_service::Service;

/// Answers with the status that the path names, and says what the decision was.
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
    (Arc::new(RateLimiter::stored(quota).clock(clock).room(10_000).build()), mock)
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
    let skip = |head: Head<'_>| head.uri.path() == "/health";
    let layer = RateLimitLayer::builder(RateLimiter::<IpAddr>::stored(Quota::per_hour(1)).build())
        .shared()
        .skip(skip)
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
        RateLimitLayer::builder(RateLimiter::<IpAddr>::stored(Quota::per_hour(9)).build()).shared().build();
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
        let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).shadow(shadow).build();
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
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).enforce_percent(30).build();
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
    let builder = RateLimiter::<IpAddr>::stored(Quota::per_second(10)).clock(Clock::mock().0);
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
fn requests_without_a_key() {
    let anonymous = || Request::get("/").body(()).unwrap();
    for (missing, expected) in [
        (OnMissingKey::Share, [200, 429]),
        (OnMissingKey::Allow, [200, 200]),
        (OnMissingKey::Reject, [500, 500]),
    ] {
        let (limiter, _mock) = limiter(Quota::per_hour(1));
        let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).on_missing_key(missing).build();
        let mut service = layer.layer(Echo::default());
        assert_eq!([(); 2].map(|()| status(&call(&mut service, anonymous()))), expected, "{missing:?}");
        let stats = layer.stats();
        assert_eq!(stats.keyless, 2);
        assert_eq!(stats.granted + stats.refused + stats.skipped + stats.rejected, 2, "{stats:?}");
        assert_eq!(stats.keys, 0);
        // It is about those without.
        assert_eq!([(); 2].map(|()| status(&call(&mut service, from(A, "/")))), [200, 429], "{missing:?}");
    }
    // In shadow mode not even these are rejected.
    let (limiter, _mock) = limiter(Quota::per_hour(1));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer());
    let layer = layer.on_missing_key(OnMissingKey::Reject).shadow(true).build();
    assert_eq!(status(&call(&mut layer.layer(Echo::default()), anonymous())), 200);
    assert_eq!((layer.stats().rejected, layer.stats().skipped), (0, 1));
}

#[test]
fn a_request_without_a_key_is_rejected_by_the_side_at_fault() {
    let anonymous = || Request::get("/").body(()).unwrap();
    // The peer's address is the server's to note, a header the client's to send.
    let (by_peer, _mock) = limiter(Quota::per_hour(1));
    let layer = RateLimitLayer::builder(by_peer).key(ClientIp::peer().xff_hops(1)).build();
    let mut service = layer.layer(Echo::default());
    assert_eq!([(); 2].map(|()| status(&call(&mut service, anonymous()))), [500, 500]);
    assert_eq!((layer.stats().rejected, layer.stats().keyless), (2, 2));
    let mut forwarded = anonymous();
    forwarded.headers_mut().insert("x-forwarded-for", A.parse().unwrap());
    assert_eq!(status(&call(&mut service, forwarded)), 200);

    let tenants = RateLimiter::<Digest>::stored(Quota::per_hour(1)).build();
    let layer = RateLimitLayer::builder(tenants).key(HeaderKey::new("x-tenant").unwrap()).build();
    assert_eq!(status(&call(&mut layer.layer(Echo::default()), anonymous())), 400);
    let (by_header, _mock) = limiter(Quota::per_hour(1));
    let header = http::HeaderName::from_static("cf-connecting-ip");
    let layer = RateLimitLayer::builder(by_header).key(ClientIp::peer().header(header)).build();
    assert_eq!(status(&call(&mut layer.layer(Echo::default()), anonymous())), 400);

    // Of a pair, by the half that is missing.
    let pairs = RateLimiter::<(IpAddr, Digest)>::stored(Quota::per_hour(1)).build();
    let pair = (ClientIp::peer(), HeaderKey::new("x-tenant").unwrap());
    let layer = RateLimitLayer::builder(pairs).key(pair).build();
    let mut service = layer.layer(Echo::default());
    let mut tenant_only = anonymous();
    tenant_only.headers_mut().insert("x-tenant", 7.into());
    assert_eq!(
        [from(A, "/"), tenant_only, anonymous()].map(|request| status(&call(&mut service, request))),
        [400, 500, 500]
    );
}

#[test]
fn a_request_without_a_key_has_no_plan() {
    let builder = RateLimiter::<IpAddr>::stored(Quota::per_second(10)).clock(Clock::mock().0);
    let limiter = builder.headroom(Quota::per_second(100)).unwrap().build();
    let gold = limiter.plan(Quota::per_second(100)).unwrap();
    let asked = Arc::new(AtomicU64::new(0));
    let layer = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer())
        .on_missing_key(OnMissingKey::Share)
        .plan({
            let asked = asked.clone();
            move |_| {
                asked.fetch_add(1, Relaxed);
                Some(gold)
            }
        })
        .build();
    let mut service = layer.layer(Echo::default());
    let response = call(&mut service, Request::get("/").body(()).unwrap());
    assert_eq!(says(&response, "ratelimit-policy"), Some(r#""default";q=10;w=1"#));
    assert_eq!((says(&response, "ratelimit"), asked.load(Relaxed)), (Some(r#""default";r=9;t=1"#), 0));
    let response = call(&mut service, from(A, "/"));
    assert_eq!((says(&response, "ratelimit"), asked.load(Relaxed)), (Some(r#""default";r=99;t=1"#), 1));
}

/// Which of 200 addresses a layer refuses, all of them being over their limit. The other limit has
/// a key for each request.
fn enforced(layer: &RateLimitLayer<IpAddr>, tenant: u32) -> Vec<bool> {
    let mut service = layer.layer(Echo::default());
    let refused = |i: u32| {
        let mut request = from(&IpAddr::from(i.to_be_bytes()).to_string(), "/");
        request.headers_mut().insert("x-tenant", (tenant + i).into());
        status(&call(&mut service, request)) == 429
    };
    (0..200).map(refused).collect()
}

#[test]
fn a_share_is_sampled_by_the_key_of_the_first_limit() {
    // A hasher that samples the same keys in each run.
    let limiter = RateLimiter::<IpAddr, BuildHasherDefault<DefaultHasher>>::stored(Quota::per_hour(1));
    let addresses = Arc::new(limiter.clock(Clock::mock().0).room(10_000).build());
    for i in 0..200_u32 {
        assert!(addresses.try_acquire(&IpAddr::from(i.to_be_bytes())).is_ok());
    }
    let plenty = || Arc::new(RateLimiter::<Digest>::stored(Quota::per_hour(1_000_000)).build());
    let tenant = || HeaderKey::new("x-tenant").unwrap();
    let first = || RateLimitLayer::builder(addresses.clone()).key(ClientIp::peer()).enforce_percent(30);
    let alone = enforced(&first().build(), 0);
    assert!((30..90).contains(&alone.iter().filter(|refused| **refused).count()), "{alone:?}");
    let both = first().and(LimitBy::new(plenty()).key(tenant())).build();
    assert_eq!(enforced(&both, 0), alone);
    assert_eq!(enforced(&both, 1_000), alone);
}

#[test]
fn a_request_that_an_earlier_layer_has_counted_is_sampled_by_the_same_key() {
    let (addresses, _mock) = limiter(Quota::per_hour(1));
    for i in 0..200_u32 {
        assert!(addresses.try_acquire(&IpAddr::from(i.to_be_bytes())).is_ok());
    }
    let first = || RateLimitLayer::builder(addresses.clone()).key(ClientIp::peer());
    let alone = enforced(&first().enforce_percent(30).build(), 0);
    // The outer layer counts by address. So in the inner one the other limit alone refuses: it has
    // no tokens left.
    let site = Arc::new(RateLimiter::<u8>::stored(Quota::per_hour(1)).build());
    assert!(site.try_acquire(&0).is_ok());
    let inner = first().and(LimitBy::new(site).key(key_fn(|_| Some(0)))).enforce_percent(30).build();
    let mut service = first().shadow(true).build().layer(inner.layer(Echo::default()));
    let refused =
        |i: u32| status(&call(&mut service, from(&IpAddr::from(i.to_be_bytes()).to_string(), "/"))) == 429;
    assert_eq!((0..200).map(refused).collect::<Vec<_>>(), alone);
    assert_eq!(inner.stats().keyless, 0);
}

#[test]
fn a_request_without_the_first_limits_key_is_not_sampled_by_another() {
    let (addresses, _mock) = limiter(Quota::per_hour(1));
    let tenants = Arc::new(RateLimiter::<Digest>::stored(Quota::per_hour(1)).room(1_000).build());
    let layer = RateLimitLayer::builder(addresses)
        .key(ClientIp::peer())
        .on_missing_key(OnMissingKey::Allow)
        .and(LimitBy::new(tenants).key(HeaderKey::new("x-tenant").unwrap()))
        .enforce_percent(30)
        .build();
    let mut service = layer.layer(Echo::default());
    for tenant in 0..200_u32 {
        let asks = || {
            let mut request = Request::get("/").body(()).unwrap();
            request.headers_mut().insert("x-tenant", tenant.into());
            request
        };
        assert_eq!([(); 2].map(|()| status(&call(&mut service, asks()))), [200, 429], "{tenant}");
    }
    assert_eq!(layer.stats().keyless, 400);
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
    let pairs = RateLimiter::<(IpAddr, String)>::stored(Quota::per_hour(1)).build();
    let by_path = key_fn(|head| Some(head.uri.path().to_owned()));
    let layer = RateLimitLayer::builder(pairs).key((ClientIp::peer(), by_path)).build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |path| status(&call(&mut service, from(A, path)));
    assert_eq!(["/201", "/202", "/201"].map(&mut asks), [201, 202, 429]);
}

#[test]
fn several_limits_are_taken_all_or_none() {
    let (addresses, _mock) = limiter(Quota::per_hour(5));
    let (clock, _mock) = Clock::mock();
    let keys = Arc::new(RateLimiter::<Digest>::stored(Quota::per_hour(2)).clock(clock).build());
    let layer = by_address_and_key(addresses.clone(), keys.clone()).build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |key: Option<&'static str>| {
        let mut request = from(A, "/");
        if let Some(key) = key {
            request.headers_mut().insert("x-api-key", key.parse().unwrap());
        }
        call(&mut service, request)
    };
    let left = || addresses.peek(&A.parse::<IpAddr>().unwrap()).remaining();
    let first = asks(Some("one"));
    // The one that has less left is told, and both policies.
    assert_eq!(says(&first, "ratelimit"), Some(r#""key";r=1;t=1800"#));
    let policies: Vec<_> = first.headers().get_all("ratelimit-policy").iter().collect();
    assert_eq!(policies, [r#""address";q=5;w=3600"#, r#""key";q=2;w=3600"#]);
    assert_eq!((status(&asks(Some("one"))), left()), (200, 3));
    let refused = asks(Some("one"));
    assert_eq!(
        (status(&refused), says(&refused, "ratelimit"), left()),
        (429, Some(r#""key";r=0;t=1800"#), 3)
    );
    // Whoever makes up keys is still one address; so is who has none.
    assert_eq!([(); 2].map(|()| status(&asks(None))), [200, 200]);
    assert_eq!([(status(&asks(Some("two")))), status(&asks(Some("three")))], [200, 429]);
    assert_eq!(keys.peek(&Digest::of(b"three")).remaining(), 2);
    assert_eq!(layer.stats().refused, 2);
}

#[test]
fn a_long_value_counts_by_its_beginning_and_its_length() {
    let of = |end: &str| Digest::of(["x".repeat(4_096).as_bytes(), end.as_bytes()].concat().as_slice());
    assert_eq!(of("a"), of("b"));
    assert_ne!(of("a"), of("ab"));
    assert_ne!(Digest::of(b"a"), Digest::of(b"b"));
}

#[test]
fn a_changed_quota_is_told_at_once() {
    let (limiter, _mock) = limiter(Quota::per_second(100));
    let layer = RateLimitLayer::builder(limiter.clone()).key(ClientIp::peer()).build();
    let mut service = layer.layer(Echo::default());
    limiter.set_quota(Quota::per_second(50).burst(10)).unwrap();
    let response = call(&mut service, from(A, "/"));
    assert_eq!(says(&response, "ratelimit-policy"), Some(r#""default";q=50;w=1"#));
    assert_eq!(says(&response, "ratelimit"), Some(r#""default";r=9;t=1"#));
}

/// A plan changes its rate in proportion, and keeps its burst.
#[test]
fn a_changed_quota_is_told_under_a_plan_as_well() {
    let (limiter, mock) = limiter(Quota::per_second(100));
    let plan = limiter.plan(Quota::per_second(20).burst(40)).unwrap();
    let layer =
        RateLimitLayer::builder(limiter.clone()).key(ClientIp::peer()).plan(move |_| Some(plan)).build();
    let mut service = layer.layer(Echo::default());
    for (quota, policy) in [(100, r#""default";q=40;w=2"#), (25, r#""default";q=40;w=8"#)] {
        limiter.set_quota(Quota::per_second(quota)).unwrap();
        assert_eq!(says(&call(&mut service, from(A, "/")), "ratelimit-policy"), Some(policy));
    }
    // A client that keeps to 40 requests in 8 seconds is not refused.
    for _ in 0..100 {
        mock.advance(Duration::from_millis(200));
        assert_eq!(status(&call(&mut service, from(A, "/"))), 200);
    }
}

#[test]
fn a_layer_of_windows_beside_a_bucket() {
    let (clock, mock) = Clock::mock();
    let window = Window::per_day(3).utc();
    let daily = WindowLimiter::<IpAddr>::builder(window).headroom(100).unwrap().clock(clock.clone()).build();
    let gold = daily.cap(5).unwrap();
    let service = RateLimiter::<()>::builder(Quota::per_second(10)).clock(clock).build();
    let layer = RateLimitLayer::builder(daily.clone())
        .key(ClientIp::peer())
        .name("daily")
        .unwrap()
        .cap(move |head: Head<'_>| (head.uri.path() == "/gold").then_some(gold))
        .spread_retries(Duration::from_secs(60))
        .and(LimitBy::new(service).shared().name("service").unwrap())
        .build();
    let mut echo = layer.layer(Echo::default());
    for left in [2, 1, 0] {
        let response = call(&mut echo, from("192.0.2.1", "/"));
        assert_eq!(says(&response, "ratelimit"), Some(&*format!("\"daily\";r={left};t=86400")));
        let policies: Vec<_> = response.headers().get_all("ratelimit-policy").iter().collect();
        assert_eq!(policies, ["\"service\";q=10;w=1", "\"daily\";q=3;w=86400"]);
    }
    mock.advance(Duration::from_secs(86_000));
    let refused = call(&mut echo, from("192.0.2.1", "/"));
    let wait: u64 = says(&refused, "retry-after").unwrap().parse().unwrap();
    assert_eq!((status(&refused), (400..=460).contains(&wait)), (429, true), "{wait}");
    // Under the cap the same tokens are counted, and other numbers are told.
    let more = call(&mut echo, from("192.0.2.1", "/gold"));
    assert_eq!(says(&more, "ratelimit"), Some("\"daily\";r=1;t=400"));
    assert!(
        more.headers().get_all("ratelimit-policy").iter().any(|policy| policy == "\"daily\";q=5;w=86400")
    );
    daily.set_limit(50).unwrap();
    assert_eq!(says(&call(&mut echo, from("192.0.2.1", "/")), "ratelimit"), Some("\"service\";r=8;t=1"));
    assert_eq!(daily.peek(&"192.0.2.1".parse::<IpAddr>().unwrap()).remaining(), 45);
    assert_eq!(layer.stats().limits[0].policy, "daily");
    // Alone, and without a key: all such requests share one window.
    let alone =
        RateLimitLayer::builder(Arc::new(WindowLimiter::<u8>::new(Window::per_hour(1)))).shared().build();
    let mut echo = alone.layer(Echo::default());
    assert_eq!([(); 2].map(|()| status(&call(&mut echo, from("192.0.2.1", "/")))), [200, 429]);
}

#[test]
fn forms_of_headers() {
    let told = |form| {
        let (limiter, _mock) = limiter(Quota::per_second(2).burst(7));
        let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).headers(form).build();
        let mut service = layer.layer(Echo::default());
        let names = |response: Response<Bytes>| {
            let mut names: Vec<_> = response.headers().keys().map(|name| name.as_str().to_owned()).collect();
            names.sort();
            names
        };
        let granted = names(call(&mut service, from(A, "/")));
        (0..6).for_each(|_| drop(call(&mut service, from(A, "/"))));
        (granted, names(call(&mut service, from(A, "/"))))
    };
    let ietf = ["ratelimit", "ratelimit-policy"];
    let legacy = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    for (form, with) in [
        (Headers::None, vec![]),
        (Headers::RetryAfterOnly, vec![]),
        (Headers::Ietf, ietf.to_vec()),
        (Headers::Legacy, legacy.to_vec()),
        (Headers::Both, [&ietf[..], &legacy].concat()),
    ] {
        let (granted, refused) = told(form);
        assert_eq!(granted, with, "{form:?}");
        let mut with = with;
        // No cache may store a refusal, whatever it reports.
        with.push("cache-control");
        if form != Headers::None {
            with.push("retry-after");
        }
        with.sort();
        assert_eq!(refused, with, "{form:?}");
    }
}

#[test]
fn a_redirection_is_not_delayed() {
    let (limiter, _mock) = limiter(Quota::per_second(2));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
    let mut service = layer.layer(Echo::default());
    assert!(says(&call(&mut service, from(A, "/302")), "ratelimit").is_some());
    let last = call(&mut service, from(A, "/302"));
    assert_eq!((status(&last), says(&last, "ratelimit")), (302, None));
    assert!(says(&last, "ratelimit-policy").is_some());
}

#[test]
fn refusals_have_the_response_that_was_asked_for() {
    let (limiter, _mock) = limiter(Quota::per_second(1));
    let problem = RateLimitLayer::builder(limiter.clone())
        .key(ClientIp::peer())
        .reject_as(Problem::QUOTA_EXCEEDED)
        .build();
    let own = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer())
        .reject_with(|refusal| {
            assert_eq!(refusal.denied().unwrap().reason(), Reason::Empty);
            refusal.response(Bytes::from(format!("wait {:?}", refusal.retry_after().unwrap())))
        })
        .build();
    let (mut problem, mut own) = (problem.layer(Echo::default()), own.layer(Echo::default()));
    assert_eq!(status(&call(&mut problem, from(A, "/"))), 200);
    let response = call(&mut problem, from(A, "/"));
    assert_eq!(says(&response, "content-type"), Some("application/problem+json"));
    let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!((&body["status"], &body["violated-policies"][0]), (&429.into(), &"default".into()));
    let response = call(&mut own, from(A, "/"));
    assert_eq!((response.body().as_ref(), says(&response, "retry-after")), (&b"wait 1s"[..], Some("1")));
}

#[test]
fn grpc_is_refused_in_its_own_way() {
    let (limiter, _mock) = limiter(Quota::every(Duration::from_millis(1_250)));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
    let mut service = layer.layer(Echo::default());
    let grpc = || crate::serving::grpc(from(A, "/"));
    assert_eq!(status(&call(&mut service, grpc())), 200);
    let refused = call(&mut service, grpc());
    assert_eq!((status(&refused), refused.body().len()), (200, 0));
    assert_eq!(says(&refused, "content-type"), Some("application/grpc"));
    assert_eq!(
        (says(&refused, "grpc-status"), says(&refused, "grpc-retry-pushback-ms")),
        (Some("8"), Some("1250"))
    );
    // Decoded by googleapis-common-protos as RetryInfo of 1.25 s.
    let details = "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaNQoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIJCgcIARCA5Zp3";
    assert_eq!(says(&refused, "grpc-status-details-bin"), Some(details));
    assert!(says(&refused, "ratelimit").is_none() && says(&refused, "retry-after").is_none());
}

#[test]
fn decisions_are_shown() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (limiter, _mock) = limiter(Quota::per_second(1));
    let layer = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer())
        .on_decision({
            let seen = seen.clone();
            move |head, decision| {
                seen.lock().unwrap().push((
                    head.uri.path().to_owned(),
                    decision.result().is_ok(),
                    decision.cost(),
                ));
            }
        })
        .build();
    let mut service = layer.layer(Echo::default());
    call(&mut service, from(A, "/a"));
    call(&mut service, from(A, "/b"));
    assert_eq!(*seen.lock().unwrap(), [("/a".to_owned(), true, 1), ("/b".to_owned(), false, 1)]);
}

#[test]
fn series_are_few_whatever_clients_do() {
    let (limiter, _mock) = limiter(Quota::per_second(1));
    let layer = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer())
        .name(r#"a "b" \c"#)
        .unwrap()
        .and(
            LimitBy::new(RateLimiter::<String>::stored(Quota::per_second(1_000_000)).room(10_000).build())
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
    let layer =
        RateLimitLayer::builder(RateLimiter::<IpAddr>::stored(Quota::per_second(1)).build()).shared().build();
    assert_eq!(status(&call(&mut layer.layer(Polled::default()), from(A, "/"))), 200);
}

#[test]
fn all_is_sent_and_shared() {
    fn is<T: Clone + Send + Sync + 'static>(_: &T) {}
    let layer =
        RateLimitLayer::builder(RateLimiter::<String>::stored(Quota::per_second(1)).build()).shared().build();
    is(&layer);
    is(&layer.layer(Echo::default()));
}

/// Which faults of a setup are said, and when.
#[cfg(feature = "tracing")]
mod said {
    use std::fmt::Debug;

    use tollgate::http::Check;
    use tollgate::tower::LayerBuilder;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;

    /// The codes of the events of this crate.
    #[derive(Clone, Default)]
    struct Codes(Arc<Mutex<Vec<String>>>);

    impl Visit for Codes {
        fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}

        fn record_str(&mut self, field: &Field, value: &str) {
            if field.name() == "code" {
                self.0.lock().unwrap().push(value.to_owned());
            }
        }
    }

    impl Subscriber for Codes {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "tollgate" && *metadata.level() == Level::WARN
        }

        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// The codes that are said when a layer is built, by its first request, and by three more.
    fn codes(
        key: ClientIp,
        peer: &str,
        header: Option<(&'static str, &str)>,
        setup: fn(LayerBuilder<IpAddr>) -> LayerBuilder<IpAddr>,
    ) -> [Vec<String>; 3] {
        let request = || {
            let mut request = if peer.is_empty() { Request::new(()) } else { from(peer, "/") };
            if let Some((name, value)) = header {
                request.headers_mut().insert(name, value.parse().unwrap());
            }
            request
        };
        let (said, (limiter, _mock)) = (Codes::default(), limiter(Quota::per_hour(1)));
        let so_far = || std::mem::take(&mut *said.0.lock().unwrap());
        tracing::subscriber::with_default(said.clone(), || {
            let layer = setup(RateLimitLayer::builder(limiter).key(key)).build();
            let built = so_far();
            let mut service = layer.layer(Echo::default());
            call(&mut service, request());
            let first = so_far();
            (0..3).for_each(|_| drop(call(&mut service, request())));
            [built, first, so_far()]
        })
    }

    const XFF: &str = "x-forwarded-for";
    const NONE: [&[&str]; 3] = [&[], &[], &[]];

    #[test]
    fn each_fault_is_said_once_and_not_of_a_granted_request() {
        let refused = |code| [&[][..], &[], code];
        let rejected = |code| [&[][..], code, &[]];
        let by_header = || ClientIp::peer().header(http::HeaderName::from_static("x-real-ip"));
        let untrusting = || ClientIp::peer().xff_trusted_by(|_| false);
        let trusting = || ClientIp::peer().xff_trusted_by(|_| true);
        for (key, peer, header, expected) in [
            (ClientIp::peer(), "", None, rejected(&["no-peer"])),
            (ClientIp::peer_from(|peer: &Option<IpAddr>| *peer), A, None, rejected(&["no-peer"])),
            (untrusting(), "", Some((XFF, B)), rejected(&["no-peer"])),
            (ClientIp::peer().xff_hops(1), "", None, rejected(&["no-peer"])),
            (ClientIp::peer(), A, None, NONE),
            // A proxy in front, and no word of it.
            (ClientIp::peer(), "10.0.0.1", Some((XFF, B)), refused(&["peer-is-proxy"])),
            (ClientIp::peer(), "::ffff:127.0.0.1", Some((XFF, B)), refused(&["peer-is-proxy"])),
            (ClientIp::peer(), "100.64.0.1", Some((XFF, B)), refused(&["peer-is-proxy"])),
            (ClientIp::peer(), "169.254.0.1", Some((XFF, B)), refused(&["peer-is-proxy"])),
            (ClientIp::peer(), "fd00::1", Some(("forwarded", "for=_a")), refused(&["peer-is-proxy"])),
            (ClientIp::peer(), "fe80::1", Some((XFF, B)), refused(&["peer-is-proxy"])),
            (ClientIp::peer(), "::1", Some((XFF, B)), refused(&["peer-is-proxy"])),
            // No hop is the peer.
            (ClientIp::peer().xff_hops(0), "10.0.0.1", Some((XFF, B)), refused(&["peer-is-proxy"])),
            // No proxy, as far as can be told.
            (ClientIp::peer(), A, Some((XFF, B)), NONE),
            (ClientIp::peer(), "100.128.0.1", Some((XFF, B)), NONE),
            (ClientIp::peer(), "10.0.0.1", None, NONE),
            (ClientIp::peer().xff_hops(1), "10.0.0.1", Some((XFF, B)), NONE),
            // A list, and the peer that it is believed of.
            (untrusting(), "10.0.0.1", Some((XFF, B)), refused(&["untrusted-peer"])),
            (untrusting(), "10.0.0.1", None, NONE),
            (trusting(), "10.0.0.1", Some((XFF, B)), NONE),
            (trusting(), "10.0.0.1", Some((XFF, "unknown")), refused(&["unreadable-hop"])),
            (ClientIp::peer().xff_hops(1), "10.0.0.1", Some((XFF, "")), refused(&["unreadable-hop"])),
            (ClientIp::peer().xff_hops(2), "10.0.0.1", Some((XFF, B)), refused(&["too-few-hops"])),
            // One header.
            (by_header(), "10.0.0.1", Some(("x-real-ip", B)), NONE),
            (by_header(), "10.0.0.1", Some(("x-real-ip", "a")), rejected(&["unreadable-hop"])),
            (by_header(), "10.0.0.1", None, NONE),
        ] {
            let about = format!("{key:?} {peer} {header:?}");
            assert_eq!(codes(key.clone(), peer, header, |layer| layer), expected, "{about}");
            assert_eq!(codes(key, peer, header, |layer| layer.shadow(true)), expected, "shadow {about}");
        }
    }

    #[test]
    fn a_fault_is_silenced_by_its_name_and_said_whatever_becomes_of_the_request() {
        assert_eq!(codes(ClientIp::peer(), "", None, |layer| layer.silence(Check::NoPeer)), NONE);
        let other = codes(ClientIp::peer(), "", None, |layer| layer.silence(Check::PeerIsProxy));
        assert_eq!(other, [&[][..], &["no-peer"], &[]]);
        for missing in [OnMissingKey::Share, OnMissingKey::Allow] {
            let (said, (limiter, _mock)) = (Codes::default(), limiter(Quota::per_hour(9)));
            tracing::subscriber::with_default(said.clone(), || {
                let layer =
                    RateLimitLayer::builder(limiter).key(ClientIp::peer()).on_missing_key(missing).build();
                let mut service = layer.layer(Echo::default());
                (0..5).for_each(|_| assert_eq!(status(&call(&mut service, Request::new(()))), 200));
            });
            assert_eq!(*said.0.lock().unwrap(), ["no-peer"], "{missing:?}");
        }
    }

    #[test]
    fn every_check_is_explained() {
        let page = include_str!("../../docs/checks.md");
        for check in Check::ALL {
            let row = format!("| `{}` | `{check:?}` | ", check.code());
            let title = format!("\n## `{}`\n", check.code());
            assert!(page.contains(&row) && page.contains(&title), "{check}");
        }
        assert_eq!(page.matches("\n## `").count(), Check::ALL.len());
    }
}

#[cfg(feature = "metrics")]
mod facade {
    use super::*;
    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
        with_local_recorder,
    };

    /// What was published, as Prometheus has it.
    #[derive(Clone, Default)]
    struct Book(Arc<Mutex<Vec<String>>>);

    struct Line(Book, Key);

    impl Line {
        fn write(&self, value: impl std::fmt::Display) {
            let labels: Vec<_> =
                self.1.labels().map(|label| format!("{}=\"{}\"", label.key(), label.value())).collect();
            self.0.0.lock().unwrap().push(format!("{}{{{}}} {value}", self.1.name(), labels.join(",")));
        }
    }

    impl CounterFn for Line {
        fn increment(&self, _: u64) {
            panic!("counts are absolute");
        }

        fn absolute(&self, value: u64) {
            self.write(value);
        }
    }

    impl GaugeFn for Line {
        fn increment(&self, _: f64) {
            panic!("levels are absolute");
        }

        fn decrement(&self, _: f64) {
            panic!("levels are absolute");
        }

        fn set(&self, value: f64) {
            self.write(value);
        }
    }

    impl Recorder for Book {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(Arc::new(Line(self.clone(), key.clone())))
        }

        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(Arc::new(Line(self.clone(), key.clone())))
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            panic!("there are none")
        }
    }

    #[test]
    fn the_facade_is_told_what_prometheus_is() {
        let (limiter, _mock) = limiter(Quota::per_second(1));
        let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
        let mut service = layer.layer(Echo::default());
        (0..3).for_each(|_| drop(call(&mut service, from(A, "/"))));
        let book = Book::default();
        with_local_recorder(&book, || layer.stats().publish());
        let text = prometheus(&[layer.stats()]);
        let mut lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let mut told = book.0.lock().unwrap().clone();
        lines.sort_unstable();
        told.sort();
        assert_eq!(told, lines);
    }
}

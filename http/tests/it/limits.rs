// promise: layer
//! The limits of one layer: the requests to which each applies, several at once, shadow mode of one
//! of them, keys that take time, and the parts of a layer together.

mod all_options;
mod beside_models;
mod found_later;
mod told;

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, ORIGIN};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use tokio::sync::oneshot;
use tollgate::{Clock, Quota, RateLimiter, Window};
use tollgate_http::{
    BoxRateLimitLayer, Check, Cost, Decision, DelayLayer, Exempt, Head, Headers, KeyFrom, LayerBuilder,
    LayerStats, LimitBy, OnMissingKey, Problem, RateLimit, RateLimitLayer, ResponseFuture, key_fn,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::serving::{answers_at_once, call};
use tollgate_testing::Random;

/// A service that keeps the heads of the requests that it is passed, and answers with the status
/// that the path names.
#[derive(Clone, Default)]
pub(crate) struct Upstream {
    passed: Arc<Mutex<Vec<Parts>>>,
}

impl Upstream {
    pub(crate) fn calls(&self) -> usize {
        self.passed.lock().unwrap().len()
    }

    fn last(&self) -> Parts {
        self.passed.lock().unwrap().last().expect("a request was passed on").clone()
    }

    fn answer(&self, request: Request<()>) -> Response<Bytes> {
        let (head, ()) = request.into_parts();
        let status = head.uri.path()[1..].parse().unwrap_or(StatusCode::OK);
        self.passed.lock().unwrap().push(head);
        let mut response = Response::new(Bytes::from_static(b"eight by"));
        *response.status_mut() = status;
        response
    }
}

answers_at_once!(Upstream => Bytes);

pub(crate) fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

pub(crate) fn status<B>(response: &Response<B>) -> u16 {
    response.status().as_u16()
}

/// Returns a request with these headers.
pub(crate) fn asks(path: &str, headers: &[(&'static str, &str)]) -> Request<()> {
    let mut request = Request::get(path).body(()).unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    request
}

/// Returns the number in a header as the key.
pub(crate) fn by(header: &'static str) -> impl KeyFrom<Key = u64> + 'static {
    key_fn(move |head| head.headers.get(header)?.to_str().ok()?.parse().ok())
}

pub(crate) fn buckets(quota: Quota, clock: &Clock) -> Arc<RateLimiter<u64>> {
    Arc::new(RateLimiter::builder(quota).clock(clock.clone()).build())
}

pub(crate) fn hourly(n: u64) -> Arc<RateLimiter<u64>> {
    buckets(Quota::per_hour(n), &Clock::mock().0)
}

fn windows(window: Window, clock: &Clock) -> RateLimiter<u64, Window> {
    RateLimiter::builder(window).clock(clock.clone()).build()
}

/// Returns the names of the limits that a response reports.
fn named<B>(response: &Response<B>) -> Vec<String> {
    let policies = response.headers().get_all("ratelimit-policy").iter();
    let name = |policy: &http::HeaderValue| policy.to_str().unwrap().split('"').nth(1).unwrap().to_owned();
    let mut names: Vec<_> = policies.map(name).collect();
    names.sort();
    names
}

/// Returns the number of requests by the sum of all outcomes.
fn requests(stats: &LayerStats) -> u64 {
    let LayerStats { granted, refused, banned, shadow_refused, skipped, exempt, rejected, .. } = stats;
    granted + refused + banned + shadow_refused + skipped + exempt + rejected
}

/// The route that a server has found, as axum's `MatchedPath`.
#[derive(Clone)]
struct MatchedPath(&'static str);

/// A hasher that spares the same keys in each run.
type Fixed = BuildHasherDefault<DefaultHasher>;

const EXCEEDED: &str = "x-ratelimit-exceeded";

#[test]
fn a_limit_applies_to_the_requests_of_its_closure_only() {
    let mut router = matchit::Router::new();
    router.insert("/users/{id}/orders", ()).unwrap();
    let limit = || LimitBy::new(hourly(1)).key(by("k"));
    let limits = [
        limit().when(|head| head.method == Method::POST),
        limit().when(|head| {
            head.extensions.get().is_some_and(|MatchedPath(route)| *route == "/users/{id}/orders")
        }),
        limit().when(move |head| router.at(head.uri.path()).is_ok()),
    ];
    for (at, limit) in limits.into_iter().enumerate() {
        let layer = LayerBuilder::from(limit).build();
        let upstream = Upstream::default();
        let mut service = layer.layer(upstream.clone());
        let mut other = || {
            let mut request = asks("/users/7/friends", &[("k", "1")]);
            request.extensions_mut().insert(MatchedPath("/users/{id}/friends"));
            let response = call(&mut service, request);
            (status(&response), response.headers().len())
        };
        assert_eq!([(); 5].map(|()| other()), [(200, 0); 5], "{at}");
        let mut applies = |id: u32| {
            let path = format!("/users/{id}/orders");
            let mut request = asks(if at == 2 { &path } else { "/" }, &[("k", "1")]);
            if at == 0 {
                *request.method_mut() = Method::POST;
            }
            if at == 1 {
                request.extensions_mut().insert(MatchedPath("/users/{id}/orders"));
            }
            status(&call(&mut service, request))
        };
        assert_eq!([7, 8].map(&mut applies), [200, 429], "{at}");
        let stats = layer.stats();
        assert_eq!((stats.skipped, stats.granted, stats.refused), (5, 1, 1), "{at}");
        assert_eq!((requests(&stats), upstream.calls()), (7, 6), "{at}");
    }
}

#[test]
fn a_repeated_when_needs_both_closures() {
    for (method, path, applies) in [
        (Method::POST, "/login", true),
        (Method::POST, "/", false),
        (Method::GET, "/login", false),
        (Method::GET, "/", false),
    ] {
        let layer = RateLimitLayer::builder(hourly(1))
            .key(by("k"))
            .when(|head| head.method == Method::POST)
            .when(|head| head.uri.path() == "/login")
            .build();
        let mut service = layer.layer(Upstream::default());
        let mut twice = || {
            let mut request = asks(path, &[("k", "1")]);
            *request.method_mut() = method.clone();
            status(&call(&mut service, request))
        };
        let expected = if applies { [200, 429] } else { [200, 200] };
        assert_eq!([(); 2].map(|()| twice()), expected, "{method} {path}");
        assert_eq!(layer.stats().skipped, if applies { 0 } else { 2 }, "{method} {path}");
    }
}

#[test]
fn a_limit_that_does_not_apply_needs_no_key_and_no_token() {
    let (first, second) = (hourly(9), hourly(9));
    let layer = RateLimitLayer::builder(first.clone())
        .key(by("a"))
        .when(|head| head.method == Method::POST)
        .and(LimitBy::new(second.clone()).key(by("b")).name("second").unwrap())
        .build();
    let mut service = layer.layer(Upstream::default());
    let response = call(&mut service, asks("/", &[("b", "1")]));
    assert_eq!((status(&response), named(&response)), (200, vec!["second".to_owned()]));
    assert_eq!((first.len(), second.peek(&1).remaining()), (0, 8));
    let mut post = asks("/", &[("b", "1")]);
    *post.method_mut() = Method::POST;
    assert_eq!(status(&call(&mut service, post)), 400);
    assert_eq!(second.peek(&1).remaining(), 8);
    let stats = layer.stats();
    assert_eq!((stats.limits[0].keyless, stats.limits[0].rejected, requests(&stats)), (1, 1, 2));
}

#[test]
fn a_share_of_the_layer_is_sampled_by_the_first_limit_where_it_applies() {
    let first = RateLimiter::<u64>::builder(Quota::per_hour(1))
        .hasher(Fixed::default())
        .clock(Clock::mock().0)
        .build();
    let (first, site) = (Arc::new(first), hourly(1));
    let is_post = |head: Head<'_>| head.method == Method::POST;
    let all = LimitBy::new(site.clone()).key(key_fn(|_| Some(0)));
    let layer =
        RateLimitLayer::builder(first.clone()).key(by("k")).when(is_post).and(all).enforce(30).build();
    let mut service = layer.layer(Upstream::default());
    assert!(site.try_acquire(&0).is_ok());
    let mut refused = |method: &Method| -> Vec<bool> {
        let mut refuses = |key: u32| {
            let mut request = asks("/", &[("k", &key.to_string())]);
            *request.method_mut() = method.clone();
            status(&call(&mut service, request)) == 429
        };
        (0..300).map(&mut refuses).collect()
    };
    let posts = refused(&Method::POST);
    assert!((50..130).contains(&posts.iter().filter(|refused| **refused).count()), "{posts:?}");
    // The sample is that of the first limit alone.
    (0..300).for_each(|key| assert!(first.try_acquire(&key).is_ok()));
    let alone = RateLimitLayer::builder(first).key(by("k")).enforce(30).build();
    let mut alone = alone.layer(Upstream::default());
    let alone =
        (0..300).map(|key: u32| status(&call(&mut alone, asks("/", &[("k", &key.to_string())]))) == 429);
    assert_eq!(posts, alone.collect::<Vec<_>>());
    // Where it does not apply, there is no key to sample by, and refusals are enforced.
    assert!(refused(&Method::GET).iter().all(|refused| *refused));
    let stats = layer.stats();
    assert_eq!((stats.refused + stats.shadow_refused, requests(&stats)), (600, 600));
}

#[test]
fn a_window_that_refuses_takes_no_token_of_the_bucket_and_the_other_window() {
    let (clock, mock) = Clock::mock();
    for (first, waits) in [(0, false), (1, false), (2, false), (0, true), (1, true), (2, true)] {
        let bucket = buckets(Quota::per_second(5), &clock);
        let (hour, day) = (windows(Window::per_hour(3), &clock), windows(Window::per_day(8), &clock));
        let mut limits = [
            LimitBy::new(bucket.clone()).key(by("k")).name("second").unwrap(),
            LimitBy::new(hour.clone()).key(by("k")).name("hour").unwrap(),
            LimitBy::new(day.clone()).key(by("k")).name("day").unwrap(),
        ];
        limits.rotate_left(first);
        let [one, two, three] = limits;
        let layer = LayerBuilder::from(one).and(two).and(three);
        let layer = layer.build();
        let upstream = Upstream::default();
        // A wait of at most 0 is none.
        let delay = DelayLayer::by_timer(Duration::from_secs(if waits { 9 } else { 0 }), |_| ready(()));
        let mut service = delay.layer(layer.layer(upstream.clone()));
        let left = || {
            let left = [bucket.peek(&1).remaining(), hour.peek(&1).remaining(), day.peek(&1).remaining()];
            left.map(|left| left as i64)
        };
        let names = ["day", "hour", "second"];
        let mut ask = || {
            let response = call(&mut service, asks("/", &[("k", "1")]));
            let told = response.headers()["ratelimit"].to_str().unwrap().to_owned();
            // The places in line end with the limit that refuses.
            if status(&response) == 200 || !waits {
                assert_eq!(named(&response), names, "{first} {waits}");
            } else {
                assert!(named(&response).iter().any(|name| told.starts_with(&format!("\"{name}\""))));
            }
            (status(&response), told.split(';').next().unwrap().to_owned())
        };
        let granted = |name: &str| (200, format!("\"{name}\""));
        for taken in 1..=3 {
            assert_eq!(ask(), granted("hour"));
            assert_eq!(left(), [5 - taken, 3 - taken, 8 - taken], "{first} {waits}");
        }
        for _ in 0..4 {
            assert_eq!(ask(), (429, "\"hour\"".to_owned()));
            assert_eq!(left(), [2, 0, 5], "{first} {waits}");
        }
        // Then the bucket refuses, or the request waits for it.
        mock.advance(Duration::from_secs(3_601));
        assert_eq!(left(), [5, 3, 5]);
        assert!(bucket.try_acquire_n(&1, 5).is_ok());
        if !waits {
            assert_eq!(ask(), (429, "\"second\"".to_owned()));
            assert_eq!(left(), [0, 3, 5], "{first}");
        }
        mock.advance(Duration::from_secs(1));
        (0..3).for_each(|_| assert_eq!(ask().0, 200));
        mock.advance(Duration::from_secs(3_601));
        (0..2).for_each(|_| assert_eq!(ask().0, 200));
        assert_eq!(left(), [3, 1, 0], "{first} {waits}");
        for _ in 0..3 {
            assert_eq!(ask(), (429, "\"day\"".to_owned()));
            assert_eq!(left(), [3, 1, 0], "{first} {waits}");
        }
        let stats = layer.stats();
        assert_eq!((stats.granted, upstream.calls()), (8, 8));
        assert_eq!((stats.refused, requests(&stats)), (7 + u64::from(!waits), 15 + u64::from(!waits)));
        mock.advance(Duration::from_secs(90_000));
    }
}

/// The last of several shares of keys counts.
#[test]
fn a_limit_in_shadow_mode_enforces_no_share_of_its_keys() {
    let limit = || LimitBy::new(hourly(1)).key(by("k"));
    for (limit, refused) in [
        (limit().enforce(0), 0),
        (limit().enforce(100).enforce(0), 0),
        (limit().enforce(100), 1),
        (limit().enforce(0).enforce(100), 1),
    ] {
        let layer = LayerBuilder::from(limit).build();
        let mut service = layer.layer(Upstream::default());
        let statuses = [(); 2].map(|()| status(&call(&mut service, asks("/", &[("k", "1")]))));
        assert_eq!(
            (statuses[0], u64::from(statuses[1] == 429), layer.stats().refused),
            (200, refused, refused)
        );
    }
}

/// Each closure of an allow list lets requests pass.
#[test]
fn a_request_is_exempt_by_any_closure() {
    let layer = LayerBuilder::from(LimitBy::new(hourly(1)).key(by("k")))
        .exempt(Exempt::when(|head| head.uri.path() == "/a"))
        .exempt(Exempt::when(|head| head.uri.path() == "/b"))
        .build();
    let mut service = layer.layer(Upstream::default());
    for path in ["/a", "/b", "/a", "/b"] {
        assert_eq!(status(&call(&mut service, asks(path, &[("k", "1")]))), 200, "{path}");
    }
    assert_eq!((layer.stats().exempt, layer.stats().granted), (4, 0));
}

#[test]
fn a_limit_in_shadow_mode_rejects_no_request_without_a_key() {
    let limit = |shadow| LimitBy::new(hourly(1)).key(by("k")).enforce(if shadow { 0 } else { 100 });
    for (shadow, expected) in [(true, (200, 1, 0)), (false, (400, 0, 1))] {
        let layer = LayerBuilder::from(limit(shadow)).build();
        let response = call(&mut layer.layer(Upstream::default()), asks("/", &[]));
        let stats = layer.stats();
        assert_eq!((status(&response), stats.skipped, stats.rejected), expected);
        // A refusal is `no-store`, and tells no limit.
        let names: Vec<_> = response.headers().keys().map(|name| name.as_str()).collect();
        assert_eq!((names, stats.keyless), (if shadow { vec![] } else { vec!["cache-control"] }, 1));
    }
    // The other limit decides.
    let other = hourly(1);
    let layer = LayerBuilder::from(limit(true)).and(LimitBy::new(other).key(by("other"))).build();
    let mut service = layer.layer(Upstream::default());
    let other = [(); 2].map(|()| status(&call(&mut service, asks("/", &[("other", "1")]))));
    assert_eq!((other, requests(&layer.stats())), ([200, 429], 2));
}

#[test]
fn refusals_by_a_ban_of_a_limit_in_shadow_mode_do_not_count() {
    let (clock, mock) = Clock::mock();
    let bans = |shadow| {
        let limit = LimitBy::new(buckets(Quota::per_hour(1), &clock)).key(by("k")).enforce(if shadow {
            0
        } else {
            100
        });
        let limit = limit.ban_after(3, Duration::from_secs(10)).for_(Duration::from_secs(100)).unwrap();
        LayerBuilder::from(limit).build()
    };
    let layers = [bans(true), bans(false)];
    let mut services = layers.each_ref().map(|layer| layer.layer(Upstream::default()));
    let mut ask = || services.each_mut().map(|service| status(&call(service, asks("/", &[("k", "1")]))));
    let rest = |at: usize| layers[at].banned(&1).map(|rest| rest.as_secs());
    // The third refusal bans for 100 s.
    assert_eq!(ask(), [200, 200]);
    (0..3).for_each(|_| assert_eq!(ask(), [200, 429]));
    assert_eq!([rest(0), rest(1)], [Some(100), Some(100)]);
    // None of these counts for the next ban, though the first refusals are long past.
    mock.advance(Duration::from_secs(95));
    (0..9).for_each(|_| assert_eq!(ask(), [200, 429]));
    assert_eq!([rest(0), rest(1)], [Some(5), Some(5)]);
    mock.advance(Duration::from_secs(5));
    for _ in 0..2 {
        assert_eq!(ask(), [200, 429]);
        assert_eq!([rest(0), rest(1)], [None, None]);
    }
    ask();
    assert_eq!([rest(0), rest(1)], [Some(100), Some(100)]);
    assert_eq!(layers.map(|layer| layer.stats().bans), [2, 2]);
}

/// A part of an application, without a type parameter.
struct App {
    limits: BoxRateLimitLayer,
}

fn limited<S>(layer: impl Layer<S, Service = RateLimit<S>>, inner: S) -> RateLimit<S> {
    layer.layer(inner)
}

#[test]
fn a_boxed_layer_is_the_same_layer() {
    let (first, second) = (hourly(2), Arc::new(RateLimiter::<String>::new(Quota::per_hour(9))));
    let by_name = key_fn(|head: Head<'_>| Some(head.headers.get("name")?.to_str().ok()?.to_owned()));
    let limit = LimitBy::new(first).key(by("k")).name("number").unwrap();
    let limit = limit.ban_after(2, Duration::from_secs(60)).for_(Duration::from_secs(600)).unwrap();
    let layer =
        LayerBuilder::from(limit).and(LimitBy::new(second).key(by_name).name("name").unwrap()).build();
    let app = App { limits: layer.boxed() };
    let clone = app.limits.clone();
    let mut services = [
        limited(app.limits, Upstream::default()),
        limited(clone.clone(), Upstream::default()),
        limited(layer.clone(), Upstream::default()),
    ];
    let mut ask = |at: usize| status(&call(&mut services[at], asks("/", &[("k", "7"), ("name", "n")])));
    assert_eq!([0, 1, 2, 0, 1].map(&mut ask), [200, 200, 429, 429, 429]);
    assert_eq!(clone.stats(), layer.stats());
    let stats = clone.stats();
    assert_eq!((stats.granted, stats.refused, stats.banned, stats.bans), (2, 2, 1, 1));
    assert_eq!(clone.limit::<u64>("number").map(|limit| limit.top_refused(9)), Some(vec![(7, 3)]));
    assert_eq!(clone.limit::<String>("name").map(|limit| limit.top_refused(9)), Some(vec![]));
    // Another type of keys, and another name.
    assert_eq!(clone.limit::<u32>("number").map(|limit| limit.top_refused(9)), None);
    assert_eq!(clone.limit::<u64>("name").map(|limit| limit.top_refused(9)), None);
    assert_eq!(clone.limit::<u64>("none").map(|limit| limit.top_refused(9)), None);
    assert_eq!(clone.limit("number").map(|limit| limit.banned(&7_u64)), Some(Some(Duration::from_secs(600))));
    assert_eq!(
        (
            clone.limit("number").map(|limit| limit.banned(&7_u32)),
            clone.limit("name").map(|limit| limit.unban(&7_u64))
        ),
        (None, None)
    );
    assert_eq!(
        (clone.limit("number").map(|limit| limit.unban(&7_u64)), layer.banned(&7)),
        (Some(true), None)
    );
    assert_eq!(clone.limit("number").map(|limit| limit.banned(&7_u64)), Some(None));
}

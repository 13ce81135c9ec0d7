// promise: layer
//! The limits of one layer: the requests to which each applies, several at once, shadow mode of one
//! of them, keys that take time, and the parts of a layer together.

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
use tollgate::http::{Check, Exempt, Head, Headers, KeyFrom, Problem, key_fn};
use tollgate::tower::{
    BoxRateLimitLayer, Cost, Decision, LayerBuilder, LayerStats, LimitBy, OnMissingKey, RateLimit,
    RateLimitLayer, ResponseFuture,
};
use tollgate::{Clock, Quota, RateLimiter, Window, WindowLimiter};
use tower_layer::Layer;
use tower_service::Service;

use crate::serving::{answers_at_once, call};
use crate::support::Random;

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

fn windows(window: Window, clock: &Clock) -> WindowLimiter<u64> {
    WindowLimiter::builder(window).clock(clock.clone()).build()
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
    let layer = RateLimitLayer::builder(first.clone())
        .key(by("k"))
        .when(is_post)
        .and(all)
        .enforce_percent(30)
        .build();
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
    let alone = RateLimitLayer::builder(first).key(by("k")).enforce_percent(30).build();
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
        let layer = if waits { layer.delay_with(Duration::from_secs(9), |_| ready(())) } else { layer };
        let layer = layer.build();
        let upstream = Upstream::default();
        let mut service = layer.layer(upstream.clone());
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

/// A hasher that spares the same keys in each run.
type Fixed = BuildHasherDefault<DefaultHasher>;

/// The tokens of one limit, in tenths: one tenth each 10 ms.
struct Model {
    limiter: RateLimiter<u64, Fixed>,
    /// The first of its keys.
    first: u64,
    burst: u64,
    tenths: [u64; KEYS],
    /// Whether refusals of a key are enforced.
    enforced: [bool; KEYS],
}

const KEYS: usize = 3;
const HEADERS: [&str; 3] = ["k0", "k1", "k2"];
const UNLESS: [&str; 3] = ["unless0", "unless1", "unless2"];

impl Model {
    fn new(burst: u64, percent: u8, first: u64, clock: &Clock) -> Model {
        let builder = RateLimiter::builder(Quota::per_second(10).burst(burst)).hasher(Fixed::default());
        let limiter = builder.clock(clock.clone()).build();
        // A cost over the burst is refused if refusals are enforced, and takes no token.
        let probe = LimitBy::new(limiter.clone()).key(by("k")).enforce_percent(percent);
        let probe = LayerBuilder::from(probe).cost(|_| 1_000).build();
        let mut probe = probe.layer(Upstream::default());
        let mut enforces = |key: usize| {
            let key = (first + key as u64).to_string();
            status(&call(&mut probe, asks("/", &[("k", &key)]))) == 429
        };
        let enforced = std::array::from_fn(&mut enforces);
        assert!(percent > 0 || enforced == [false; KEYS]);
        assert!(percent < 100 || enforced == [true; KEYS]);
        Model { limiter, first, burst, tenths: [10 * burst; KEYS], enforced }
    }

    fn pass(&mut self, tenths: u64) {
        self.tenths = self.tenths.map(|before| (before + tenths).min(10 * self.burst));
    }
}

/// Counts of the outcomes of a random run.
#[derive(Debug, Default)]
struct Seen {
    refused: u32,
    over: u32,
    several_over: u32,
    granted: u32,
    skipped: u32,
    silent: u32,
}

/// Runs random requests on a layer of random limits, each beside its model.
fn run_beside_models(random: &mut Random, steps: u64, seen: &mut Seen) {
    let (clock, mock) = Clock::mock();
    let count = 1 + random.below(3) as usize;
    let percents: Vec<u8> = (0..count).map(|_| [0, 0, 40, 100, 100][random.below(5) as usize]).collect();
    let mut models: Vec<_> = percents
        .iter()
        .map(|percent| Model::new(2 + random.below(5), *percent, random.below(1 << 40), &clock))
        .collect();
    let mut limits = models.iter().zip(&percents).enumerate().map(|(i, (model, percent))| {
        let limit = LimitBy::new(model.limiter.clone())
            .key(by(HEADERS[i]))
            .on_missing_key(OnMissingKey::Allow)
            .name(&i.to_string())
            .unwrap();
        let limit = limit.when(move |head| !head.headers.contains_key(UNLESS[i]));
        if *percent == 0 { limit.shadow(true) } else { limit.enforce_percent(*percent) }
    });
    let decided = Arc::new(Mutex::new(None));
    let note = decided.clone();
    let first = LayerBuilder::from(limits.next().unwrap());
    let layer = limits
        .fold(first, LayerBuilder::and)
        .cost(|head| head.headers["cost"].to_str().unwrap().parse().unwrap())
        .on_decision(move |_, decision| *note.lock().unwrap() = Some(decision.result().is_ok()))
        .build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    let mut stats = layer.stats();
    for step in 1..=steps {
        let cost = 1 + random.below(3);
        let mut request = asks("/", &[("cost", &cost.to_string())]);
        let mut keys = [None; 3];
        for (i, key) in keys.iter_mut().enumerate().take(count) {
            let (chosen, how) = (random.below(KEYS as u64) as usize, random.below(8));
            if how > 0 {
                request.headers_mut().insert(HEADERS[i], (models[i].first + chosen as u64).into());
            }
            if how == 1 {
                request.headers_mut().insert(UNLESS[i], 1.into());
            }
            *key = (how > 1).then_some(chosen);
        }
        // The reference: an enforced limit refuses alone, all that grant take, one in shadow mode
        // takes last.
        let applies = |i: usize| keys[i].map(|key| (key, models[i].enforced[key]));
        let is_over = |i: usize| keys[i].is_some_and(|key| models[i].tenths[key] < 10 * cost);
        let enforced: Vec<usize> =
            (0..count).filter(|i| applies(*i).is_some_and(|(_, enforced)| enforced)).collect();
        let silent: Vec<usize> =
            (0..count).filter(|i| applies(*i).is_some_and(|(_, enforced)| !enforced)).collect();
        let refuses: Vec<usize> = enforced.iter().copied().filter(|i| is_over(*i)).collect();
        let over: Vec<usize> = silent.iter().copied().filter(|i| is_over(*i)).collect();
        let takes: Vec<usize> = match refuses[..] {
            [] => (0..count).filter(|i| keys[*i].is_some() && !is_over(*i)).collect(),
            _ => Vec::new(),
        };
        for i in takes {
            models[i].tenths[keys[i].unwrap()] -= 10 * cost;
        }

        let response = call(&mut service, request);
        let about = format!("step {step}, {percents:?}, {keys:?}, refuses {refuses:?}, over {over:?}");
        assert_eq!(status(&response) == 429, !refuses.is_empty(), "{about}");
        for model in &models {
            for key in 0..KEYS {
                let left = model.limiter.peek(&(model.first + key as u64)).remaining();
                assert_eq!(left, model.tenths[key] / 10, "{about}, key {key}");
            }
        }
        let names: Vec<_> = enforced.iter().map(usize::to_string).collect();
        assert_eq!(named(&response), names, "{about}");
        assert_eq!(response.headers().contains_key("ratelimit"), !enforced.is_empty(), "{about}");
        let is_ok =
            (!enforced.is_empty() || !silent.is_empty()).then_some(refuses.is_empty() && over.is_empty());
        assert_eq!(decided.lock().unwrap().take(), is_ok, "{about}");
        if refuses.is_empty() {
            let extensions = upstream.last().extensions;
            assert_eq!(extensions.get().map(|said: &Decision| said.result().is_ok()), is_ok, "{about}");
        }
        // One counter has one more: that of a limit with this outcome.
        let now = layer.stats();
        assert_eq!((requests(&now), upstream.calls() as u64), (step, step - now.refused), "{about}");
        let more = |of: fn(&tollgate::tower::LimitStats) -> u64| -> Vec<usize> {
            (0..count).filter(|i| of(&now.limits[*i]) > of(&stats.limits[*i])).collect()
        };
        let (granted, refused, shadow) =
            (more(|limit| limit.granted), more(|limit| limit.refused), more(|limit| limit.shadow_refused));
        match (&granted[..], &refused[..], &shadow[..]) {
            ([at], [], []) => {
                assert_eq!(is_ok, Some(true), "{about}");
                assert!(if enforced.is_empty() { &silent } else { &enforced }.contains(at), "{about} {at}");
                seen.granted += 1;
                seen.silent += u32::from(enforced.is_empty());
            }
            ([], [at], []) => {
                assert!(refuses.contains(at), "{about} {at}");
                seen.refused += 1;
            }
            ([], [], [at]) => {
                assert!(refuses.is_empty() && over.contains(at), "{about} {at}");
                seen.over += 1;
                seen.several_over += u32::from(over.len() > 1);
            }
            ([], [], []) => {
                assert_eq!((is_ok, now.skipped), (None, stats.skipped + 1), "{about}");
                seen.skipped += 1;
            }
            all => panic!("{about}: {all:?}"),
        }
        stats = now;
        let pause = random.below(8);
        mock.advance(Duration::from_millis(10 * pause));
        models.iter_mut().for_each(|model| model.pass(pause));
    }
}

#[test]
fn a_request_is_refused_exactly_if_an_enforced_limit_refuses() {
    let (mut random, mut seen) = (Random(22), Seen::default());
    for _ in 0..80 {
        run_beside_models(&mut random, 100, &mut seen);
    }
    let Seen { refused, over, several_over, granted, skipped, silent } = seen;
    let rare = [refused, over, several_over, granted, skipped, silent];
    assert!(rare.iter().all(|count| *count > 100), "{seen:?}");
    assert_eq!(refused + over + granted + skipped, 8_000);
}

/// Shadow mode of a limit, and the share of its keys, in either order.
#[test]
fn a_limit_in_shadow_mode_enforces_no_share_of_its_keys() {
    let limit = || LimitBy::new(hourly(1)).key(by("k"));
    for (limit, refused) in [
        (limit().shadow(true).enforce_percent(100), 0),
        (limit().enforce_percent(100).shadow(true), 0),
        (limit().enforce_percent(0).shadow(false), 0),
        (limit().shadow(false).enforce_percent(100), 1),
        (limit().shadow(true).shadow(false), 1),
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

/// Each closure of a layer that lets requests pass does.
#[test]
fn a_request_is_skipped_by_any_closure() {
    let layer = LayerBuilder::from(LimitBy::new(hourly(1)).key(by("k")))
        .skip(|head| head.uri.path() == "/a")
        .skip(|head| head.uri.path() == "/b")
        .build();
    let mut service = layer.layer(Upstream::default());
    for path in ["/a", "/b", "/a", "/b"] {
        assert_eq!(status(&call(&mut service, asks(path, &[("k", "1")]))), 200, "{path}");
    }
    assert_eq!((layer.stats().skipped, layer.stats().granted), (4, 0));
}

#[test]
fn a_limit_in_shadow_mode_rejects_no_request_without_a_key() {
    let limit = |shadow| LimitBy::new(hourly(1)).key(by("k")).shadow(shadow);
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
        let limit = LimitBy::new(buckets(Quota::per_hour(1), &clock)).key(by("k")).shadow(shadow);
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

const EXCEEDED: &str = "x-ratelimit-exceeded";

#[test]
fn the_upstream_is_told_of_a_request_over_a_limit_and_of_no_other() {
    let first = || LimitBy::new(hourly(1)).key(by("k"));
    let plenty = || LimitBy::new(hourly(9)).key(by("k"));
    let spared = |limiter: &Arc<RateLimiter<u64>>| {
        let layer = RateLimitLayer::builder(limiter.clone()).key(by("k")).enforce_percent(50);
        let mut probe = layer.cost(|_| 9).build().layer(Upstream::default());
        let is_spared = |key: &u64| status(&call(&mut probe, asks("/", &[("k", &key.to_string())]))) == 200;
        (0..100).find(is_spared).expect("half of the keys are spared")
    };
    let limiter = hourly(1);
    let key = spared(&limiter).to_string();
    let sampled = RateLimitLayer::builder(limiter).key(by("k")).enforce_percent(50);
    let limits = [
        (first().into(), "1", false),
        (LayerBuilder::from(first()).shadow(true), "1", true),
        (LayerBuilder::from(first().shadow(true)), "1", true),
        (LayerBuilder::from(plenty()).and(first().shadow(true)), "1", true),
        (LayerBuilder::from(first().enforce_percent(0)).and(plenty()), "1", true),
        (sampled, key.as_str(), true),
    ];
    for (at, (layer, key, passes)) in limits.into_iter().enumerate() {
        let layer = layer
            .tell_upstream()
            .exempt(Exempt::paths(["/exempt"]).unwrap())
            .skip(|head| head.uri.path() == "/skipped")
            .build();
        let upstream = Upstream::default();
        let mut service = layer.layer(upstream.clone());
        let mut told = |path: &str, claim: Option<&str>| {
            let mut request = asks(path, &[("k", key)]);
            if let Some(claim) = claim {
                request.headers_mut().append(EXCEEDED, claim.parse().unwrap());
                request.headers_mut().append(EXCEEDED, "another".parse().unwrap());
            }
            assert_eq!(status(&call(&mut service, request)), if passes { 200 } else { 429 }, "{at}");
            let values: Vec<_> = upstream.last().headers.get_all(EXCEEDED).iter().cloned().collect();
            values
        };
        for path in ["/exempt", "/skipped", "/"] {
            // The first request is granted by each layer.
            let mut request = asks(path, &[("k", key)]);
            request.headers_mut().insert(EXCEEDED, 1.into());
            assert_eq!(status(&call(&mut layer.layer(upstream.clone()), request)), 200, "{at}");
            assert!(!upstream.last().headers.contains_key(EXCEEDED), "{at} {path}");
        }
        for claim in [None, Some("0"), Some("1")] {
            let values = told("/", claim);
            assert_eq!(values, if passes { vec!["1"] } else { vec![] }, "{at} {claim:?}");
        }
        let stats = layer.stats();
        assert_eq!((stats.exempt, stats.skipped, stats.granted), (1, 1, 1), "{at}");
        assert_eq!(if passes { stats.shadow_refused } else { stats.refused }, 3, "{at}");
    }
}

#[test]
fn the_upstream_is_not_told_unless_the_layer_is_made_so() {
    let layer = RateLimitLayer::builder(hourly(1)).key(by("k")).shadow(true).build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    for _ in 0..2 {
        assert_eq!(status(&call(&mut service, asks("/", &[("k", "1")]))), 200);
        assert!(!upstream.last().headers.contains_key(EXCEEDED));
    }
    assert_eq!(status(&call(&mut service, asks("/", &[("k", "1"), (EXCEEDED, "mine")]))), 200);
    assert_eq!(upstream.last().headers[EXCEEDED], "mine");
    assert_eq!(layer.stats().shadow_refused, 2);
}

/// The end of a search for a key, in the extensions of the request.
#[derive(Clone)]
struct Search<const N: usize>(Arc<Mutex<Option<oneshot::Receiver<Option<u64>>>>>);

type Found = oneshot::Sender<Option<u64>>;

/// Adds a search to a request.
fn searched<const N: usize>(request: &mut Request<()>) -> Found {
    let (found, search) = oneshot::channel();
    request.extensions_mut().insert(Search::<N>(Arc::new(Mutex::new(Some(search)))));
    found
}

fn found_in<const N: usize>(
    searches: &Arc<AtomicU64>,
) -> impl Fn(Head<'_>) -> Pin<Box<dyn Future<Output = Option<u64>> + Send>> + Send + Sync + 'static {
    let searches = searches.clone();
    move |head| {
        searches.fetch_add(1, Relaxed);
        let search = head.extensions.get().and_then(|Search::<N>(search)| search.lock().unwrap().take());
        Box::pin(async { search?.await.ok()? })
    }
}

/// A waker that notes that it was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_request_waits_for_its_key_and_takes_no_token_until_then() {
    let (limiter, searches) = (hourly(2), Arc::<AtomicU64>::default());
    let layer = RateLimitLayer::builder(limiter.clone()).key_async(found_in::<1>(&searches)).build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    let mut statuses = Vec::new();
    for asked in 1..=3 {
        let mut request = asks("/", &[]);
        let found = searched::<1>(&mut request);
        let mut response = Box::pin(service.call(request));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        assert!(response.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!((searches.load(Relaxed), requests(&layer.stats())), (asked, asked - 1));
        assert!(!woken.0.load(Relaxed));
        found.send(Some(7)).unwrap();
        assert!(woken.0.load(Relaxed));
        let Poll::Ready(Ok(response)) = poll(&mut response) else { panic!("the key is there") };
        statuses.push(status(&response));
        assert_eq!(
            response.headers()["ratelimit"],
            format!("\"default\";r={};t=1800", 2_u64.saturating_sub(asked))
        );
        assert_eq!(requests(&layer.stats()), asked);
    }
    assert_eq!((statuses, upstream.calls()), (vec![200, 200, 429], 2));
    assert_eq!((limiter.len(), layer.top_refused(9)), (1, vec![(7, 1)]));
}

#[test]
fn a_request_whose_search_finds_no_key_has_none() {
    for (missing, expected) in [
        (OnMissingKey::Reject, [400, 400, 400]),
        (OnMissingKey::Allow, [200, 200, 200]),
        (OnMissingKey::Share, [200, 429, 429]),
    ] {
        let limiter = hourly(1);
        let layer = RateLimitLayer::builder(limiter.clone())
            .key_async(found_in::<1>(&Arc::default()))
            .on_missing_key(missing)
            .build();
        let mut service = layer.layer(Upstream::default());
        // A search that finds none, one that fails, and a request without one.
        let mut ends: [Box<dyn FnMut(Option<Found>)>; 3] = [
            Box::new(|found| found.unwrap().send(None).unwrap()),
            Box::new(|found| drop(found.unwrap())),
            Box::new(|found| assert!(found.is_none())),
        ];
        let mut statuses = [0; 3];
        for (at, end) in ends.iter_mut().enumerate() {
            let mut request = asks("/", &[]);
            let found = (at < 2).then(|| searched::<1>(&mut request));
            let mut response = Box::pin(service.call(request));
            if at < 2 {
                assert!(poll(&mut response).is_pending());
            }
            end(found);
            let Poll::Ready(Ok(response)) = poll(&mut response) else { panic!("the search has ended") };
            statuses[at] = status(&response);
        }
        assert_eq!(statuses, expected, "{missing:?}");
        let stats = layer.stats();
        assert_eq!((stats.keyless, requests(&stats), limiter.len()), (3, 3, 0), "{missing:?}");
    }
}

#[test]
fn two_searches_of_one_layer_find_their_own_keys() {
    let (one, two) = (hourly(5), hourly(5));
    let searches = Arc::<AtomicU64>::default();
    let layer = RateLimitLayer::builder(one.clone())
        .key_async(found_in::<1>(&searches))
        .and(LimitBy::new(two.clone()).key_async(found_in::<2>(&searches)).name("two").unwrap())
        .build();
    let mut service = layer.layer(Upstream::default());
    for first_ends in [true, false] {
        let mut request = asks("/", &[]);
        let (a, b) = (searched::<1>(&mut request), searched::<2>(&mut request));
        let mut response = Box::pin(service.call(request));
        assert!(poll(&mut response).is_pending());
        let (before, after) = if first_ends { ((a, 10), (b, 20)) } else { ((b, 20), (a, 10)) };
        before.0.send(Some(before.1)).unwrap();
        assert!(poll(&mut response).is_pending());
        assert_eq!(one.len() + two.len(), if first_ends { 0 } else { 2 });
        after.0.send(Some(after.1)).unwrap();
        let Poll::Ready(Ok(response)) = poll(&mut response) else { panic!("both keys are there") };
        assert_eq!(
            (status(&response), named(&response)),
            (200, vec!["default".to_owned(), "two".to_owned()])
        );
    }
    assert_eq!([one.peek(&10).remaining(), two.peek(&20).remaining()], [3, 3]);
    assert_eq!([one.peek(&20).remaining(), two.peek(&10).remaining()], [5, 5]);
    assert_eq!((searches.load(Relaxed), layer.stats().granted), (4, 2));
}

#[test]
fn a_search_that_is_given_up_takes_no_token_and_counts_no_request() {
    let limiter = hourly(1);
    let searches = Arc::<AtomicU64>::default();
    let layer = RateLimitLayer::builder(limiter.clone()).key_async(found_in::<1>(&searches)).build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    for polls in 0..50 {
        let mut request = asks("/", &[]);
        let found = searched::<1>(&mut request);
        let mut response = Box::pin(service.call(request));
        for _ in 0..polls % 3 {
            assert!(poll(&mut response).is_pending());
        }
        if polls % 2 == 0 {
            found.send(Some(1)).unwrap();
            drop(response);
        } else {
            drop(response);
            assert!(found.is_closed());
        }
        assert_eq!((limiter.len(), requests(&layer.stats()), upstream.calls()), (0, 0, 0));
    }
    assert_eq!(searches.load(Relaxed), 50);
    assert!(limiter.try_acquire(&1).is_ok());
}

#[test]
fn exempt_and_skipped_requests_and_those_of_other_routes_are_not_searched_for() {
    let searches = Arc::<AtomicU64>::default();
    let layer = RateLimitLayer::builder(hourly(9))
        .key_async(found_in::<1>(&searches))
        .when(|head| head.uri.path() != "/other")
        .exempt(Exempt::paths(["/exempt"]).unwrap())
        .skip(|head| head.uri.path() == "/skipped")
        .build();
    let mut service = layer.layer(Upstream::default());
    for path in ["/exempt", "/skipped", "/other"] {
        let mut request = asks(path, &[]);
        let _found = searched::<1>(&mut request);
        assert_eq!(status(&call(&mut service, request)), 200, "{path}");
        assert_eq!(searches.load(Relaxed), 0, "{path}");
    }
    let stats = layer.stats();
    assert_eq!((stats.exempt, stats.skipped, requests(&stats)), (1, 2, 3));
    let mut request = asks("/", &[]);
    searched::<1>(&mut request).send(Some(1)).unwrap();
    assert_eq!((status(&call(&mut service, request)), searches.load(Relaxed)), (200, 1));
}

#[test]
fn searches_of_clones_end_in_any_order_and_count_together() {
    let limiter = hourly(2);
    let layer = RateLimitLayer::builder(limiter.clone()).key_async(found_in::<1>(&Arc::default())).build();
    let mut services = [layer.layer(Upstream::default()), layer.clone().layer(Upstream::default())];
    let mut third = services[0].clone();
    let (mut ends, mut responses) = (Vec::new(), Vec::new());
    for i in 0..9 {
        let mut request = asks("/", &[]);
        ends.push((searched::<1>(&mut request), i % 3));
        let service = services.get_mut(i % 3).unwrap_or(&mut third);
        responses.push(Box::pin(service.call(request)));
    }
    assert!(responses.iter_mut().all(|response| poll(response).is_pending()));
    let mut granted = [0; 3];
    while let Some((found, key)) = ends.pop() {
        found.send(Some(key as u64)).unwrap();
        let Poll::Ready(Ok(response)) = poll(&mut responses[ends.len()]) else { panic!("it was found") };
        granted[key] += u32::from(status(&response) == 200);
        // The later requests were found first, two of each key.
        assert_eq!(status(&response) == 200, ends.len() >= 3, "{}", ends.len());
    }
    assert_eq!((granted, limiter.len()), ([2; 3], 3));
    let stats = layer.stats();
    assert_eq!((stats.granted, stats.refused), (6, 3));
}

/// A service that is not ready until it is told so.
#[derive(Clone, Default)]
struct Busy {
    free: Arc<AtomicBool>,
    upstream: Upstream,
}

impl Service<Request<()>> for Busy {
    type Response = Response<Bytes>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Bytes>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.free.load(Relaxed) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        assert!(self.free.load(Relaxed), "it was ready");
        self.upstream.call(request)
    }
}

/// The timers of a layer, which end when the test says so.
type Timers = Arc<Mutex<Vec<(Duration, oneshot::Sender<()>)>>>;

fn timer(timers: &Timers) -> impl Fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + use<> {
    let timers = timers.clone();
    move |delay| {
        let (end, ended) = oneshot::channel();
        timers.lock().unwrap().push((delay, end));
        Box::pin(async { drop(ended.await) })
    }
}

#[test]
fn a_request_waits_for_its_key_then_its_turn_then_the_service() {
    let builder = RateLimiter::<u64>::builder(Quota::per_second(1)).clock(Clock::mock().0);
    let limiter = Arc::new(builder.max_debt(2).unwrap().build());
    let timers = Timers::default();
    let layer = RateLimitLayer::builder(limiter.clone())
        .key_async(found_in::<1>(&Arc::default()))
        .delay_with(Duration::from_secs(2), timer(&timers))
        .build();
    let busy = Busy::default();
    let mut service = layer.layer(busy.clone());
    let mut ask = || {
        let mut request = asks("/", &[]);
        let found = searched::<1>(&mut request);
        (found, Box::pin(service.call(request)))
    };
    // The first one has a token, and the service is busy.
    let (found, mut first) = ask();
    assert!(poll(&mut first).is_pending());
    found.send(Some(1)).unwrap();
    assert!(poll(&mut first).is_pending());
    assert_eq!((layer.stats().granted, timers.lock().unwrap().len()), (1, 0));
    // The second one and the third wait for their turns, the fourth would wait for too long.
    let (found, mut second) = ask();
    assert!(poll(&mut second).is_pending());
    assert_eq!(layer.stats().waiting, 0);
    found.send(Some(1)).unwrap();
    assert!(poll(&mut second).is_pending());
    let (found, mut third) = ask();
    found.send(Some(1)).unwrap();
    assert!(poll(&mut third).is_pending());
    assert_eq!((layer.stats().waiting, layer.stats().delayed), (2, 2));
    let (found, mut fourth) = ask();
    found.send(Some(1)).unwrap();
    let Poll::Ready(Ok(refused)) = poll(&mut fourth) else { panic!("the wait is too long") };
    assert_eq!(status(&refused), 429);
    let mut ended = std::mem::take(&mut *timers.lock().unwrap());
    assert_eq!(ended.iter().map(|(delay, _)| delay.as_secs()).collect::<Vec<_>>(), [1, 2]);
    // The third client goes away: its token comes back.
    drop(third);
    assert_eq!(layer.stats().waiting, 1);
    ended.remove(0).1.send(()).unwrap();
    assert!(poll(&mut second).is_pending());
    assert_eq!((layer.stats().waiting, busy.upstream.calls()), (0, 0));
    busy.free.store(true, Relaxed);
    for (response, timing) in [(&mut first, None), (&mut second, Some("ratelimit;dur=1000"))] {
        let Poll::Ready(Ok(response)) = poll(response) else { panic!("the service is free") };
        let told = response.headers().get("server-timing").map(|value| value.to_str().unwrap());
        assert_eq!((status(&response), told), (200, timing));
    }
    assert_eq!(busy.upstream.last().extensions.get::<Decision>().unwrap().delay(), Duration::from_secs(1));
    let (stats, next) = (layer.stats(), limiter.try_acquire(&1).unwrap_err());
    assert_eq!((stats.granted, stats.refused, requests(&stats)), (3, 1, 4));
    assert_eq!(next.retry_after(), Some(Duration::from_secs(2)));
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
    assert_eq!(clone.top_refused_of::<u64>("number", 9), Some(vec![(7, 3)]));
    assert_eq!(clone.top_refused_of::<String>("name", 9), Some(vec![]));
    // Another type of keys, and another name.
    assert_eq!(clone.top_refused_of::<u32>("number", 9), None);
    assert_eq!(clone.top_refused_of::<u64>("name", 9), None);
    assert_eq!(clone.top_refused_of::<u64>("none", 9), None);
    assert_eq!(clone.banned_of("number", &7_u64), Some(Some(Duration::from_secs(600))));
    assert_eq!((clone.banned_of("number", &7_u32), clone.unban_of("name", &7_u64)), (None, None));
    assert_eq!((clone.unban_of("number", &7_u64), layer.banned(&7)), (Some(true), None));
    assert_eq!(clone.banned_of("number", &7_u64), Some(None));
}

#[test]
fn scripts_of_another_origin_may_read_the_fields_that_are_there() {
    const EXPOSED: &str = "access-control-expose-headers";
    let legacy = "x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset";
    let ietf = "ratelimit-policy, ratelimit";
    let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
    for (form, granted, refused) in [
        (Headers::None, None, None),
        (Headers::RetryAfterOnly, None, Some(String::new())),
        (Headers::Ietf, Some(ietf.to_owned()), Some(ietf.to_owned())),
        (Headers::Legacy, Some(legacy.to_owned()), Some(legacy.to_owned())),
        (Headers::Both, Some(format!("{ietf}, {legacy}")), Some(format!("{ietf}, {legacy}"))),
    ] {
        for (origin, exposes) in [(true, true), (false, true), (true, false)] {
            let layer = RateLimitLayer::builder(hourly(1)).key(by("k")).headers(form);
            let layer = if exposes { layer.expose_headers().build() } else { layer.build() };
            let mut service = layer.layer(Upstream::default());
            for (expected, is_granted) in [(&granted, true), (&refused, false)] {
                let mut request = asks("/", &[("k", "1")]);
                if origin {
                    request.headers_mut().insert(ORIGIN, "https://example.org".parse().unwrap());
                }
                let response = call(&mut service, request);
                assert_eq!(status(&response) == 200, is_granted);
                let fields: Vec<_> = response.headers().get_all(EXPOSED).iter().map(text).collect();
                let named = |fields: &String| {
                    let fields = if fields.is_empty() { String::new() } else { format!("{fields}, ") };
                    format!("retry-after, {fields}server-timing")
                };
                let expected = expected.as_ref().filter(|_| origin && exposes).map(named);
                assert_eq!(fields, Vec::from_iter(expected.clone()), "{form:?} {origin} {exposes}");
                // Each field that reports the limit is named.
                for name in response
                    .headers()
                    .keys()
                    .filter(|name| ![EXPOSED, "cache-control"].contains(&name.as_str()))
                {
                    let is_named =
                        expected.as_ref().is_some_and(|list| list.split(", ").any(|one| one == name));
                    assert!(is_named || !origin || !exposes, "{form:?} {name}");
                }
            }
        }
    }
}

#[test]
fn the_fields_that_the_service_exposes_stay() {
    #[derive(Clone)]
    struct Exposing;

    impl Exposing {
        fn answer(&self, _: Request<()>) -> Response<()> {
            Response::builder().header("access-control-expose-headers", "etag").body(()).unwrap()
        }
    }

    answers_at_once!(Exposing => ());

    let layer = RateLimitLayer::builder(hourly(1)).key(by("k")).expose_headers().build();
    let mut service = layer.layer(Exposing);
    let response = call(&mut service, asks("/", &[("k", "1"), ("origin", "null")]));
    let fields: Vec<_> = response.headers().get_all("access-control-expose-headers").iter().collect();
    assert_eq!(fields, ["etag", "retry-after, ratelimit-policy, ratelimit, server-timing"]);
}

/// A static assertion: the parts of a layer cross threads if the inner service does.
const _: () = {
    const fn crosses<T: Send + Sync>() {}
    crosses::<RateLimitLayer<u64>>();
    crosses::<BoxRateLimitLayer>();
    crosses::<LayerBuilder<u64>>();
    crosses::<LimitBy<u64>>();
    crosses::<RateLimit<Upstream>>();
    crosses::<ResponseFuture<Upstream, ()>>();
    crosses::<ResponseFuture<Busy, ()>>();
    crosses::<tollgate::tower::ResponseBody<Bytes>>();
    crosses::<Decision>();
};

/// A timer by the time of the test.
struct Sleep {
    until: u64,
    now: Arc<AtomicU64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.now.load(Relaxed) >= self.until { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Returns a layer with all of its options.
fn everything(clock: &Clock, now: &Arc<AtomicU64>) -> (RateLimitLayer<u64>, Arc<AtomicU64>) {
    let builder =
        RateLimiter::<u64>::builder(Quota::per_second(2)).hasher(Fixed::default()).clock(clock.clone());
    let limiter = builder.headroom(Quota::per_second(100)).unwrap().build();
    let gold = limiter.plan(Quota::per_second(20)).unwrap();
    let minutely = WindowLimiter::<u64>::builder(Window::per_minute(30).sliding()).hasher(Fixed::default());
    let minutely = minutely.headroom(1_000).unwrap().clock(clock.clone()).build();
    let cap = minutely.cap(600).unwrap();
    let seen = Arc::<AtomicU64>::default();
    let (count, now) = (seen.clone(), now.clone());
    let limit = LimitBy::new(minutely)
        .key(by("k1"))
        .name("minute")
        .unwrap()
        .on_missing_key(OnMissingKey::Allow)
        .cap(move |head| head.headers.contains_key("gold").then_some(cap))
        .enforce_percent(50)
        .ban_after(20, Duration::from_secs(5))
        .for_(Duration::from_secs(1))
        .unwrap();
    let shadow = LimitBy::new(buckets(Quota::per_minute(6), clock))
        .key_async(found_in::<2>(&Arc::default()))
        .name("silent")
        .unwrap()
        .on_missing_key(OnMissingKey::Share)
        .when(|head| head.method == Method::POST)
        .shadow(true);
    let layer = RateLimitLayer::builder(limiter)
        .key_async(found_in::<1>(&Arc::default()))
        .name("second")
        .unwrap()
        .plan(move |head| head.headers.contains_key("gold").then_some(gold))
        .on_missing_key(OnMissingKey::Reject)
        .cost(|head| 1 + u64::from(head.method == Method::POST))
        .skip(|head| head.uri.path() == "/skipped")
        .exempt(Exempt::paths(["/exempt"]).unwrap())
        .exempt(Exempt::methods([Method::TRACE]))
        .exempt(Exempt::preflights())
        .exempt(Exempt::when(|head| head.headers.contains_key("exempt")))
        .when(|head| head.method != Method::DELETE)
        .ban_after(6, Duration::from_secs(2))
        .for_(Duration::from_secs(3))
        .unwrap()
        .delay_with(Duration::from_millis(300), move |delay| {
            let until = now.load(Relaxed) + delay.as_nanos() as u64;
            Sleep { until, now: now.clone() }
        })
        .max_waiting(4)
        .settle_on(|answer| match answer.status.as_u16() {
            201 => Cost::bytes(),
            202 => Cost::tokens(3),
            203 => Cost::trailer(HeaderName::from_static("cost")),
            204 => Cost::of_body(4, |last| Some(last.len() as u64)),
            _ => Cost::ESTIMATE,
        })
        .refund_on(|status| status.is_server_error())
        .tell_upstream()
        .expose_headers()
        .enforce_percent(80)
        .headers(Headers::Both)
        .only_below(90)
        .spread_retries(Duration::from_secs(2))
        .silence(Check::NoPeer)
        .reject_as(Problem::QUOTA_EXCEEDED)
        .on_decision(move |_, _| _ = count.fetch_add(1, Relaxed))
        .and(limit)
        .and(shadow);
    #[cfg(feature = "tracing")]
    let layer = layer.log_refusals(Quota::per_second(5)).record_in_span();
    #[cfg(feature = "metrics")]
    let layer = layer.measure_waits();
    (layer.build(), seen)
}

#[test]
fn a_layer_with_all_options_decides_each_request_once() {
    let ((clock, mock), now) = (Clock::mock(), Arc::<AtomicU64>::default());
    let (layer, seen) = everything(&clock, &now);
    let upstream = Upstream::default();
    // The outer layer has counted each request by the same limiters, so the inner one skips it.
    let mut service = layer.boxed().layer(layer.layer(upstream.clone()));
    let mut random = Random(7);
    let mut open = Vec::new();
    let (mut given_up, mut dropped) = (0, 0);
    let mut statuses = [0; 600];
    for asked in 1..=1_000 {
        let paths = ["/201", "/202", "/203", "/204", "/500", "/302", "/", "/skipped", "/exempt"];
        let mut request = asks(paths[random.below(9) as usize], &[("k1", &random.below(6).to_string())]);
        let methods =
            [Method::GET, Method::GET, Method::POST, Method::DELETE, Method::TRACE, Method::OPTIONS];
        *request.method_mut() = methods[random.below(6) as usize].clone();
        for header in ["gold", "exempt", "origin", EXCEEDED, "access-control-request-method"] {
            if random.below(8) == 0 {
                request.headers_mut().insert(header, 1.into());
            }
        }
        if random.below(9) == 0 {
            request.headers_mut().remove("k1");
        }
        let (one, two) = (searched::<1>(&mut request), searched::<2>(&mut request));
        let before = requests(&layer.stats()) - upstream.calls() as u64;
        let mut response = Box::pin(service.call(request));
        let mut keep = |response: &mut Pin<Box<ResponseFuture<RateLimit<Upstream>, ()>>>| {
            let Poll::Ready(response) = poll(response) else { return true };
            statuses[usize::from(status(&response.unwrap()))] += 1;
            false
        };
        if keep(&mut response) {
            // It waits for its keys.
            assert_eq!(requests(&layer.stats()) - upstream.calls() as u64, before);
            if random.below(20) == 0 {
                given_up += 1;
                drop(response);
            } else {
                let mut key = || (random.below(6) > 0).then(|| random.below(5));
                // The search of a limit that does not apply was not begun.
                let _ = (one.send(key()), two.send(key()));
                open.push(response);
            }
        }
        let pause = random.below(30) * 1_000_000;
        now.fetch_add(pause, Relaxed);
        mock.advance(Duration::from_nanos(pause));
        open.retain_mut(|response| {
            let waits = keep(response);
            let drops = waits && random.below(10) == 0;
            dropped += u64::from(drops);
            waits && !drops
        });
        let stats = layer.stats();
        assert!(stats.waiting <= 4 && stats.waiting == open.len(), "{stats:?}");
        assert_eq!(requests(&stats) - upstream.calls() as u64, asked - given_up, "{stats:?}");
    }
    now.fetch_add(1_000_000_000, Relaxed);
    for mut response in open {
        let Poll::Ready(Ok(response)) = poll(&mut response) else { panic!("the turn has come") };
        statuses[usize::from(status(&response))] += 1;
    }
    let stats = layer.stats();
    assert_eq!(stats.waiting, 0);
    assert_eq!(statuses[429], stats.refused + stats.banned);
    assert_eq!(statuses[400], stats.rejected);
    assert_eq!(statuses.iter().sum::<u64>() + given_up + dropped, 1_000);
    assert_eq!(seen.load(Relaxed), stats.granted + stats.refused + stats.banned + stats.shadow_refused);
    let LayerStats { granted, refused, banned, shadow_refused, skipped, exempt, rejected, .. } = stats;
    let LayerStats { delayed, bans, keyless, refunded, .. } = stats;
    let rare = [granted, refused, banned, shadow_refused, skipped, exempt, rejected];
    assert!(rare.iter().chain(&[delayed, bans, keyless, refunded]).all(|count| *count > 5), "{stats:?}");
    assert!(given_up > 5 && dropped > 5, "{given_up} {dropped}");
    assert!(stats.limits.iter().all(|limit| limit.shadow_refused > 0), "{stats:?}");
}

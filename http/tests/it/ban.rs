// promise: layer
//! Bans: the law beside plain lists of times, and all that may not change a ban.

mod counts;
mod law;
mod limits;
mod waits;
mod without_room;

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tollgate::{Clock, Denied, Granted, MockClock, Quota, RateLimiter, Reason, WhenFull, Window};
use tollgate_http::{
    BanAfter, ClientIp, Decision, DelayLayer, Digest, Extension, HeaderKey, KeyFrom, LayerBuilder,
    LayerStats, LimitBy, OnMissingKey, Problem, RateLimitLayer, Refusal, Reject, key_fn, prometheus,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::serving::{A, B, Echo, call, from, ip, noted, says, status};
use tollgate_testing::Random;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

fn limiter<K: std::hash::Hash + Eq>(quota: Quota) -> (Arc<RateLimiter<K>>, MockClock) {
    let (clock, mock) = Clock::mock();
    (Arc::new(RateLimiter::builder(quota).clock(clock).build()), mock)
}

/// Returns a layer of one request an hour for each peer, before its bans.
fn one_an_hour() -> (LayerBuilder<IpAddr>, MockClock) {
    let (limiter, mock) = limiter(Quota::per_hour(1));
    (RateLimitLayer::builder(limiter).key(ClientIp::peer()), mock)
}

fn requests(stats: &LayerStats) -> u64 {
    let LayerStats { granted, refused, banned, shadow_refused, skipped, exempt, rejected, .. } = stats;
    granted + refused + banned + shadow_refused + skipped + exempt + rejected
}

/// Whether a refusal is by a ban, an extension of its response.
#[derive(Clone, Copy)]
struct IsBan(bool);

fn reject(refusal: &Refusal<'_>) -> Response<Bytes> {
    let mut response = refusal.response(Bytes::new());
    response.extensions_mut().insert(IsBan(refusal.is_ban()));
    response
}

fn is_ban(response: &Response<()>) -> Option<bool> {
    response.extensions().get::<IsBan>().map(|is_ban| is_ban.0)
}

/// The result of a layer's last decision.
type Last = Arc<Mutex<Option<Result<Granted, Denied>>>>;

fn last() -> (Last, impl Fn(tollgate_http::Head<'_>, &Decision) + Send + Sync + 'static) {
    let last = Last::default();
    (last.clone(), move |_, decision| *last.lock().unwrap() = Some(decision.result()))
}

/// Returns the whole seconds of a wait, rounded up.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Asserts that a ban is told as long as its duration, to a tick: the tick in which it began counts
/// as a whole one.
fn assert_whole(told: Option<Duration>, duration: Duration, text: &str) -> Duration {
    let told = told.expect("a wait");
    let ticks = if duration < 100 * MS { 1 << 12 } else { 1 << 16 };
    let tick = duration / ticks + Duration::from_nanos(1);
    assert!(told <= duration && told + tick >= duration, "{text}: {told:?} of {duration:?}");
    told
}

fn with_key(peer: &str, key: Option<&'static str>) -> Request<()> {
    let mut request = from(peer, "/");
    if let Some(key) = key {
        request.headers_mut().insert("x-api-key", key.parse().unwrap());
    }
    request
}

#[test]
fn a_ban_ends_to_the_nanosecond() {
    let nano = Duration::from_nanos(1);
    for duration in [
        MS,
        SECOND + nano,
        Duration::from_nanos(999_999_937),
        HOUR - nano,
        24 * HOUR,
        30 * 24 * HOUR + 7 * nano,
        365 * 24 * HOUR,
    ] {
        let (limiter, mock) = limiter::<IpAddr>(Quota::every(MS / 2));
        let layer = RateLimitLayer::builder(limiter)
            .key(ClientIp::peer())
            .ban_after(1, SECOND)
            .for_(duration)
            .unwrap()
            .reject_with(reject)
            .build();
        let mut service = layer.layer(Echo::default());
        mock.advance(Duration::from_nanos(123_456_789));
        assert_eq!([(); 2].map(|()| status(&call(&mut service, from(A, "/")))), [200, 429], "{duration:?}");
        let told = assert_whole(layer.banned(&ip(A)), duration, "it begins");
        mock.advance(told - nano);
        assert_eq!(layer.banned(&ip(A)), Some(nano), "{duration:?}");
        let refused = call(&mut service, from(A, "/"));
        assert_eq!((status(&refused), is_ban(&refused)), (429, Some(true)), "{duration:?}");
        assert_eq!(says(&refused, "retry-after"), Some("1"), "{duration:?}");
        mock.advance(nano);
        assert_eq!(layer.banned(&ip(A)), None, "{duration:?}");
        assert_eq!(status(&call(&mut service, from(A, "/"))), 200, "{duration:?}");
        assert_eq!((layer.stats().bans, layer.stats().banned), (1, 1));
    }
}

#[test]
fn the_refusal_that_begins_a_ban_is_told_as_the_later_ones_are() {
    let (builder, mock) = one_an_hour();
    let layer = builder.ban_after(3, MINUTE).for_(2 * HOUR).unwrap().reject_with(reject).build();
    let mut service = layer.layer(Echo::default());
    let mut asks = || {
        let response = call(&mut service, from(A, "/"));
        let wait = says(&response, "retry-after").map(|wait| wait.parse::<u64>().unwrap());
        (status(&response), is_ban(&response), wait)
    };
    assert_eq!(asks(), (200, None, None));
    assert_eq!([asks(), asks()], [(429, Some(false), Some(3_600)); 2]);
    assert_eq!(asks(), (429, Some(true), Some(7_200)));
    let stats = layer.stats();
    assert_eq!((stats.refused, stats.banned, stats.bans), (3, 0, 1));
    mock.advance(HOUR);
    // The limit itself has a token again.
    assert_eq!([asks(), asks()], [(429, Some(true), Some(3_600)); 2]);
    let stats = layer.stats();
    assert_eq!((stats.refused, stats.banned, stats.bans), (3, 2, 1));
    assert_eq!(layer.top_refused(9), [(ip(A), 5)]);
    mock.advance(HOUR);
    assert_eq!(asks(), (200, None, None));
    // Nor did the refusals by the ban count.
    assert_eq!([asks(), asks()], [(429, Some(false), Some(3_600)); 2]);
    assert_eq!(layer.stats().bans, 1);
}

#[test]
fn refusals_by_a_ban_do_not_count_for_the_next() {
    let (builder, mock) = one_an_hour();
    // The window is longer than the ban.
    let layer = builder.ban_after(2, HOUR).for_(90 * MINUTE).unwrap().build();
    let mut service = layer.layer(Echo::default());
    let mut asks = || status(&call(&mut service, from(A, "/")));
    assert_eq!([asks(), asks(), asks()], [200, 429, 429]);
    for minute in 1..90 {
        mock.advance(MINUTE);
        assert_eq!(asks(), 429, "{minute}");
    }
    assert_eq!((layer.stats().bans, layer.stats().banned), (1, 89));
    mock.advance(MINUTE);
    assert_eq!([asks(), asks()], [200, 429]);
    assert_eq!((layer.banned(&ip(A)), layer.stats().bans), (None, 1));
    assert_eq!(asks(), 429);
    assert_eq!((layer.banned(&ip(A)), layer.stats().bans), (Some(90 * MINUTE), 2));
}

#[test]
fn a_ban_refuses_what_costs_nothing_and_begins_by_what_costs_too_much() {
    let (builder, _mock) = one_an_hour();
    let cost = |head: tollgate_http::Head<'_>| head.uri.path()[1..].parse().unwrap_or(1);
    let layer = builder.cost(cost).ban_after(2, MINUTE).for_(HOUR).unwrap().build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |path| {
        let response = call(&mut service, from(A, path));
        (status(&response), says(&response, "retry-after").map(str::to_owned))
    };
    assert_eq!(asks("/0"), (200, None));
    // More than the limit ever grants: without a ban there is no wait.
    assert_eq!(asks("/2"), (429, None));
    assert_eq!(asks("/2"), (429, Some("3600".to_owned())));
    assert_eq!(asks("/0"), (429, Some("3600".to_owned())));
    assert_eq!(asks("/1"), (429, Some("3600".to_owned())));
    assert_eq!((layer.stats().granted, layer.stats().refused, layer.stats().banned), (1, 2, 2));
}

#[test]
fn other_keys_neither_share_a_ban_nor_its_refusals() {
    let (builder, _mock) = one_an_hour();
    let layer = builder.ban_after(3, MINUTE).for_(HOUR).unwrap().build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |peer| status(&call(&mut service, from(peer, "/")));
    assert_eq!([A, A, A, B, B, B].map(&mut asks), [200, 429, 429, 200, 429, 429]);
    assert_eq!((layer.banned(&ip(A)), layer.banned(&ip(B))), (None, None));
    assert_eq!(asks(A), 429);
    assert_eq!((layer.banned(&ip(A)), layer.banned(&ip(B))), (Some(HOUR), None));
    assert_eq!(asks(A), 429);
    assert_eq!((layer.banned(&ip(B)), layer.stats().bans, layer.stats().banned), (None, 1, 1));
    assert_eq!((asks(B), layer.stats().bans), (429, 2));
}

#[test]
fn numbers_out_of_bounds_are_named() {
    let error = |refusals, window, duration| {
        let of_layer = one_an_hour().0.ban_after(refusals, window).for_(duration).map(drop);
        let (limiter, _mock) = limiter::<IpAddr>(Quota::per_hour(1));
        let limit = LimitBy::new(limiter).key(ClientIp::peer());
        let of_limit = limit.ban_after(refusals, window).for_(duration).map(drop);
        assert_eq!(of_layer, of_limit);
        of_layer.unwrap_err().to_string()
    };
    let long = Duration::from_nanos((1 << 62) + 1);
    assert_eq!(error(0, MINUTE, HOUR), "a ban after 0 refusals bans every key: the least is 1");
    assert_eq!(
        error(2, Duration::ZERO, HOUR),
        "the window of a ban: a window of 0 ns is under the bound of 1 ms"
    );
    assert_eq!(
        error(2, MS / 2, HOUR),
        "the window of a ban: a window of 500000 ns is under the bound of 1 ms"
    );
    assert_eq!(
        error(2, long, HOUR),
        "the window of a ban: a window of 4611686018427387905 ns is over the bound of 2^62 ns (146 years)"
    );
    assert_eq!(
        error(2, Duration::MAX, HOUR),
        "the window of a ban: a window of 18446744073709551615999999999 ns is over the bound of 2^62 ns (146 years)"
    );
    assert_eq!(
        error((1 << 40) + 2, MINUTE, HOUR),
        "the window of a ban: a limit of 1099511627777 is over the bound of 2^40 = 1099511627776 tokens"
    );
    assert_eq!(
        error(1, MINUTE, Duration::ZERO),
        "the duration of a ban: a period of 0 ns has no rate: the least is 1 ns"
    );
    assert_eq!(
        error(5, MINUTE, long),
        "the duration of a ban: a period of 4611686018427387905 ns is over the bound of 2^62 ns (146 years)"
    );
    assert!(error(1, MINUTE, Duration::MAX).starts_with("the duration of a ban: a period of"));
    // The bounds themselves.
    let (builder, _mock) = one_an_hour();
    assert!(builder.ban_after(2, Duration::from_nanos(1 << 62)).for_(Duration::from_nanos(1 << 62)).is_ok());
    let (builder, _mock) = one_an_hour();
    assert!(builder.ban_after(2, MS).for_(Duration::from_nanos(1)).is_ok());
}

#[test]
fn requests_without_a_key_are_not_banned() {
    for (missing, expected) in [
        (OnMissingKey::Share, [200, 429]),
        (OnMissingKey::Allow, [200, 200]),
        (OnMissingKey::Reject, [500, 500]),
    ] {
        let (builder, _mock) = one_an_hour();
        let layer = builder.on_missing_key(missing).ban_after(1, MINUTE).for_(HOUR).unwrap();
        let layer = layer.reject_with(reject).build();
        let mut service = layer.layer(Echo::default());
        let mut asks = || call(&mut service, Request::get("/").body(()).unwrap());
        assert_eq!([(); 2].map(|()| status(&asks())), expected, "{missing:?}");
        for _ in 0..10 {
            let response = asks();
            assert_eq!(status(&response), expected[1], "{missing:?}");
            assert_ne!(is_ban(&response), Some(true), "{missing:?}");
        }
        let stats = layer.stats();
        assert_eq!((stats.bans, stats.banned, stats.ban_keys), (0, 0, 0), "{missing:?}");
        assert_eq!((stats.keyless, requests(&stats)), (12, 12), "{missing:?}");
    }
    // One bucket for all.
    let (limiter, _mock) = limiter::<IpAddr>(Quota::per_hour(1));
    let layer = RateLimitLayer::builder(limiter).shared().ban_after(1, MINUTE).for_(HOUR).unwrap().build();
    let mut service = layer.layer(Echo::default());
    assert_eq!([(); 4].map(|()| status(&call(&mut service, from(A, "/")))), [200, 429, 429, 429]);
    assert_eq!((layer.stats().bans, layer.stats().banned, layer.stats().refused), (0, 0, 3));
}

#[test]
fn a_decision_hook_sees_the_wait_of_a_ban() {
    let (builder, mock) = one_an_hour();
    let (last, hook) = last();
    let layer = builder.ban_after(1, MINUTE).for_(2 * HOUR).unwrap().on_decision(hook).build();
    let mut service = layer.layer(Echo::default());
    let mut asks = || {
        call(&mut service, from(A, "/"));
        last.lock().unwrap().take().unwrap().map_err(|denied| (denied.reason(), denied.retry_after()))
    };
    assert!(asks().is_ok());
    assert_eq!(asks().unwrap_err(), (Reason::Empty, Some(2 * HOUR)));
    mock.advance(MINUTE);
    assert_eq!(asks().unwrap_err(), (Reason::Empty, Some(2 * HOUR - MINUTE)));
}

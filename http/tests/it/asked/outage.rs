// promise: layer
//! Refusals of a limiter whose store does not answer: 503, and no mark on the key.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tollgate::{Clock, Quota};
use tollgate_http::{Bare, Headers, LimitBy, OnMissingKey, Problem, RateLimitLayer, Refusal, Reject};
use tower_layer::Layer;

use super::store::{Shared, shared};
use crate::limits::{Upstream, asks, buckets, by, status};
use crate::serving::call;

fn down() -> Shared {
    let limiter = shared(Quota::per_second(5), &Clock::mock().0);
    limiter.set_down(true);
    limiter
}

fn of(key: u64) -> Request<()> {
    asks("/", &[("k", &key.to_string())])
}

#[test]
fn a_refusal_for_want_of_the_store_is_503_with_the_wait() {
    let limiter = down();
    let layer = RateLimitLayer::builder(limiter.any()).key(by("k")).headers(Headers::Both).build();
    let mut service = layer.layer(Upstream::default());
    let response = call(&mut service, of(1));
    let says = |name| response.headers()[name].to_str().unwrap();
    assert_eq!(
        (status(&response), says("retry-after"), says("ratelimit")),
        (503, "1", "\"default\";r=0;t=1")
    );
    assert_eq!(layer.stats().refused, 1);
    limiter.set_down(false);
    assert_eq!(status(&call(&mut service, of(1))), 200);
}

#[test]
fn a_problem_tells_that_the_server_has_less_capacity() {
    let response = refused_by(Problem::ABNORMAL_USAGE_DETECTED, false);
    assert_eq!(
        (response.status(), &response.headers()["content-type"]),
        (503.try_into().unwrap(), &"application/problem+json".parse().unwrap())
    );
    let body = std::str::from_utf8(response.body()).unwrap();
    assert!(body.contains("temporary-reduced-capacity") && !body.contains("violated-policies"), "{body}");
}

#[test]
fn grpc_is_told_that_the_limit_is_not_available() {
    for response in [refused_by(Bare, true), refused_by(Problem::default(), true)] {
        let says = |name| response.headers()[name].to_str().unwrap();
        assert_eq!((response.status().as_u16(), says("grpc-status")), (200, "14"));
        assert_eq!(
            (says("grpc-message"), says("grpc-retry-pushback-ms")),
            ("the limit is not available", "300")
        );
        assert!(response.body().is_empty());
    }
}

/// Returns the response that is made of a refusal for want of the store.
fn refused_by(reject: impl Reject<Bytes>, is_grpc: bool) -> Response<Bytes> {
    let denied =
        tollgate::Denied::from_parts(tollgate::Reason::Unavailable, 1, 0, Some(Duration::from_millis(300)));
    let policy = tollgate_http::Policy::new("a", Quota::per_second(1)).unwrap();
    let request = asks("/", &[]);
    let request = if is_grpc { crate::serving::grpc(request) } else { request };
    let refusal = Refusal::new(&request, Some(&denied), &policy);
    assert!(refusal.is_unavailable() && !refusal.is_over_capacity());
    reject.reject(&refusal)
}

#[test]
fn a_refusal_for_want_of_the_store_bans_no_key() {
    let limiter = down();
    let ban = RateLimitLayer::builder(limiter.any()).key(by("k")).ban_after(1, Duration::from_secs(60));
    let layer = ban.for_(Duration::from_secs(60)).unwrap().build();
    let mut service = layer.layer(Upstream::default());
    assert_eq!([(); 3].map(|()| status(&call(&mut service, of(1)))), [503; 3]);
    limiter.set_down(false);
    assert_eq!(status(&call(&mut service, of(1))), 200);
    assert_eq!(layer.stats().bans, 0);
}

#[test]
fn in_shadow_mode_an_outage_refuses_no_request() {
    let (limiter, clock) = (down(), Clock::mock().0);
    let layers = [
        RateLimitLayer::builder(limiter.any()).key(by("k")).enforce(0).build(),
        RateLimitLayer::builder(buckets(Quota::per_second(9), &clock))
            .key(by("k"))
            .and(LimitBy::new(limiter.any()).key(by("k")).enforce(0))
            .build(),
        RateLimitLayer::builder(limiter.any())
            .shared()
            .on_missing_key(OnMissingKey::Share)
            .enforce(0)
            .build(),
    ];
    for layer in layers {
        assert_eq!(status(&call(&mut layer.layer(Upstream::default()), of(1))), 200);
        assert_eq!(layer.stats().shadow_refused, 1);
    }
}

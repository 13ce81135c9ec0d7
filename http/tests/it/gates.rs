// promise: headers, layer
//! A rule that grants all or none, in a layer and in the headers.

use http::{HeaderMap, Request};
use tollgate::{Clock, Denied, Granted, Quota, RateLimiter, TokenBucket, Window, WindowCounter};
use tollgate_http::{ClientIp, Headers, Policy, RateLimitLayer, key_fn};
use tower_layer::Layer;

use crate::serving::{Echo, call};

const HOURLY: Quota = Quota::per_hour(1);

/// A limit without numbers tells none, and a pause no time to come back.
#[test]
fn headers_tell_no_numbers_of_no_limit_and_of_a_pause() {
    let of = |policy: &Policy, decision: Result<Granted, Denied>| {
        let mut headers = HeaderMap::new();
        policy.fields(&decision).append_to(&mut headers);
        headers
    };
    let (clock, _mock) = Clock::mock();
    let bucket = TokenBucket::builder(HOURLY).clock(clock.clone()).build();
    let policy = Policy::new("a", HOURLY).unwrap().form(Headers::Both);
    for gate in [Quota::UNLIMITED, Quota::BLOCKED] {
        let named = policy.with_rule(gate);
        bucket.set_rule(gate).unwrap();
        let headers = of(&named, bucket.try_acquire());
        assert!(headers.is_empty(), "{headers:?}");
        named.append_to(&mut HeaderMap::new());
        // The form is that of a later rule.
        bucket.set_rule(HOURLY).unwrap();
        let again = of(&named.with_rule(HOURLY), bucket.try_acquire());
        assert!(again.contains_key("ratelimit") && again.contains_key("x-ratelimit-limit"), "{again:?}");
        // A decision from just before a change of the rule has numbers of structured fields.
        bucket.set_rule(gate).unwrap();
        let late = of(&policy, bucket.try_acquire());
        let wanted = if gate == Quota::BLOCKED { "\"a\";r=0;t=1" } else { "\"a\";r=999999999999999" };
        assert!(late["ratelimit"].to_str().unwrap().starts_with(wanted), "{late:?}");
    }
    let counter = WindowCounter::builder(Window::per_hour(5)).clock(clock).build();
    counter.set_rule(Window::per_hour(5).blocked()).unwrap();
    let blocked = Policy::new("a", Window::per_hour(5)).unwrap();
    assert!(!of(&blocked, counter.try_acquire()).contains_key("retry-after"));
}

/// The layer refuses in a pause with 429, and passes all on without a limit.
#[test]
fn a_layer_holds_a_pause_and_counts_without_a_limit() {
    let limiter = RateLimiter::<u8>::builder(HOURLY).clock(Clock::mock().0).build();
    let layer = RateLimitLayer::builder(limiter.clone()).key(key_fn(|_| Some(1))).build();
    let mut service = layer.layer(Echo::default());
    let mut call = || call(&mut service, Request::new(()));
    assert_eq!(call().status(), 200);
    limiter.set_rule(Quota::BLOCKED).unwrap();
    let refused = call();
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (429, false));
    limiter.set_rule(Quota::UNLIMITED).unwrap();
    for _ in 0..20 {
        let response = call();
        assert!(response.status() == 200 && !response.headers().contains_key("ratelimit"));
    }
    assert_eq!((layer.stats().granted, layer.stats().refused), (21, 1));
}

/// A builder infers its hasher in an argument that is generic itself.
#[test]
fn a_layer_takes_a_limiter_whose_hasher_nobody_names() {
    let buckets = RateLimiter::builder(HOURLY).build();
    let _ = RateLimitLayer::builder(buckets).key(ClientIp::peer()).build();
    let windows = RateLimiter::builder(Window::per_hour(1)).build();
    let _ = RateLimitLayer::builder(windows).key(ClientIp::peer()).build();
}

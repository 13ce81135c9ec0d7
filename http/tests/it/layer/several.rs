// promise: layer
//! Several limits, and limits that change.

use super::*;

#[test]
fn several_limits_are_taken_all_or_none() {
    let (addresses, _mock) = limiter(Quota::per_hour(5));
    let (clock, _mock) = Clock::mock();
    let keys = Arc::new(RateLimiter::<Digest>::builder(Quota::per_hour(2)).clock(clock).build());
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
    // A client that makes up keys is still one address, as is one without a key.
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
    limiter.set_rule(Quota::per_second(50).burst(10)).unwrap();
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
        limiter.set_rule(Quota::per_second(quota)).unwrap();
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
    let daily = RateLimiter::<IpAddr, _>::builder(window).clock(clock.clone());
    let daily = daily.headroom(window.with_limit(100).unwrap()).unwrap().build();
    let gold = daily.plan(window.with_limit(5).unwrap()).unwrap();
    let service = RateLimiter::<()>::builder(Quota::per_second(10)).clock(clock).build();
    let layer = RateLimitLayer::builder(daily.clone())
        .key(ClientIp::peer())
        .name("daily")
        .unwrap()
        .plan(move |head: Head<'_>| (head.uri.path() == "/gold").then_some(gold))
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
    daily.set_rule(window.with_limit(50).unwrap()).unwrap();
    assert_eq!(says(&call(&mut echo, from("192.0.2.1", "/")), "ratelimit"), Some("\"service\";r=8;t=1"));
    assert_eq!(daily.peek(&"192.0.2.1".parse::<IpAddr>().unwrap()).remaining(), 45);
    assert_eq!(layer.stats().limits[0].policy, "daily");
    // Alone, and without a key: all such requests share one window.
    let alone =
        RateLimitLayer::builder(Arc::new(RateLimiter::<u8, _>::new(Window::per_hour(1)))).shared().build();
    let mut echo = alone.layer(Echo::default());
    assert_eq!([(); 2].map(|()| status(&call(&mut echo, from("192.0.2.1", "/")))), [200, 429]);
}

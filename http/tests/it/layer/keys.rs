// promise: layer
//! Requests without a key, and shares of the keys.

use tollgate_http::{HopList, Trust};

use super::*;

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
    let layer = layer.on_missing_key(OnMissingKey::Reject).enforce(0).build();
    assert_eq!(status(&call(&mut layer.layer(Echo::default()), anonymous())), 200);
    assert_eq!((layer.stats().rejected, layer.stats().skipped), (0, 1));
}

#[test]
fn a_request_without_a_key_is_rejected_by_the_side_at_fault() {
    let anonymous = || Request::get("/").body(()).unwrap();
    // The peer's address is the server's to note, a header the client's to send.
    let (by_peer, _mock) = limiter(Quota::per_hour(1));
    let layer = RateLimitLayer::builder(by_peer)
        .key(ClientIp::peer().behind(HopList::XForwardedFor, Trust::hops(1)))
        .build();
    let mut service = layer.layer(Echo::default());
    assert_eq!([(); 2].map(|()| status(&call(&mut service, anonymous()))), [500, 500]);
    assert_eq!((layer.stats().rejected, layer.stats().keyless), (2, 2));
    let mut forwarded = anonymous();
    forwarded.headers_mut().insert("x-forwarded-for", A.parse().unwrap());
    assert_eq!(status(&call(&mut service, forwarded)), 200);

    let tenants = RateLimiter::<Digest>::builder(Quota::per_hour(1)).build();
    let layer = RateLimitLayer::builder(tenants).key(HeaderKey::new("x-tenant").unwrap()).build();
    assert_eq!(status(&call(&mut layer.layer(Echo::default()), anonymous())), 400);
    let (by_header, _mock) = limiter(Quota::per_hour(1));
    let header = http::HeaderName::from_static("cf-connecting-ip");
    let layer = RateLimitLayer::builder(by_header).key(ClientIp::peer().header(header)).build();
    assert_eq!(status(&call(&mut layer.layer(Echo::default()), anonymous())), 400);

    // Of a pair, by the half that is missing.
    let pairs = RateLimiter::<(IpAddr, Digest)>::builder(Quota::per_hour(1)).build();
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
    let builder = RateLimiter::<IpAddr>::builder(Quota::per_second(10)).clock(Clock::mock().0);
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
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let limiter = RateLimiter::<IpAddr>::builder(Quota::per_hour(1)).hasher(hasher);
    let addresses = Arc::new(limiter.clock(Clock::mock().0).max_keys(10_000).build());
    for i in 0..200_u32 {
        assert!(addresses.try_acquire(&IpAddr::from(i.to_be_bytes())).is_ok());
    }
    let plenty = || Arc::new(RateLimiter::<Digest>::builder(Quota::per_hour(1_000_000)).build());
    let tenant = || HeaderKey::new("x-tenant").unwrap();
    let first = || RateLimitLayer::builder(addresses.clone()).key(ClientIp::peer()).enforce(30);
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
    let alone = enforced(&first().enforce(30).build(), 0);
    // The outer layer counts by address. So in the inner one the other limit alone refuses: it has
    // no tokens left.
    let site = Arc::new(RateLimiter::<u8>::builder(Quota::per_hour(1)).build());
    assert!(site.try_acquire(&0).is_ok());
    let inner = first().and(LimitBy::new(site).key(key_fn(|_| Some(0)))).enforce(30).build();
    let mut service = first().enforce(0).build().layer(inner.layer(Echo::default()));
    let refused =
        |i: u32| status(&call(&mut service, from(&IpAddr::from(i.to_be_bytes()).to_string(), "/"))) == 429;
    assert_eq!((0..200).map(refused).collect::<Vec<_>>(), alone);
    assert_eq!(inner.stats().keyless, 0);
}

#[test]
fn a_request_without_the_first_limits_key_is_not_sampled_by_another() {
    let (addresses, _mock) = limiter(Quota::per_hour(1));
    let tenants = Arc::new(RateLimiter::<Digest>::builder(Quota::per_hour(1)).max_keys(1_000).build());
    let layer = RateLimitLayer::builder(addresses)
        .key(ClientIp::peer())
        .on_missing_key(OnMissingKey::Allow)
        .and(LimitBy::new(tenants).key(HeaderKey::new("x-tenant").unwrap()))
        .enforce(30)
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

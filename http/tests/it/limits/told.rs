// promise: layer
//! Fields that tell an upstream, or scripts of another origin.

use super::*;

#[test]
fn the_upstream_is_told_of_a_request_over_a_limit_and_of_no_other() {
    let first = || LimitBy::new(hourly(1)).key(by("k"));
    let plenty = || LimitBy::new(hourly(9)).key(by("k"));
    let spared = |limiter: &Arc<RateLimiter<u64>>| {
        let layer = RateLimitLayer::builder(limiter.clone()).key(by("k")).enforce(50);
        let mut probe = layer.cost(|_| 9).build().layer(Upstream::default());
        let is_spared = |key: &u64| status(&call(&mut probe, asks("/", &[("k", &key.to_string())]))) == 200;
        (0..100).find(is_spared).expect("half of the keys are spared")
    };
    let limiter = hourly(1);
    let key = spared(&limiter).to_string();
    let sampled = RateLimitLayer::builder(limiter).key(by("k")).enforce(50);
    let limits = [
        (first().into(), "1", false),
        (LayerBuilder::from(first()).enforce(0), "1", true),
        (LayerBuilder::from(first().enforce(0)), "1", true),
        (LayerBuilder::from(plenty()).and(first().enforce(0)), "1", true),
        (LayerBuilder::from(first().enforce(0)).and(plenty()), "1", true),
        (sampled, key.as_str(), true),
    ];
    for (at, (layer, key, passes)) in limits.into_iter().enumerate() {
        let layer = layer
            .tell_upstream()
            .exempt(Exempt::paths(["/exempt"]).unwrap())
            .exempt(Exempt::when(|head| head.uri.path() == "/skipped"))
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
        assert_eq!((stats.exempt, stats.granted), (2, 1), "{at}");
        assert_eq!(if passes { stats.shadow_refused } else { stats.refused }, 3, "{at}");
    }
}

#[test]
fn the_upstream_is_not_told_unless_the_layer_is_made_so() {
    let layer = RateLimitLayer::builder(hourly(1)).key(by("k")).enforce(0).build();
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

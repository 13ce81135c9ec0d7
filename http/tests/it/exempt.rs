// promise: layer
//! Exempt requests: exactly those on the list, in no spelling more, and untouched by the layer.

#[cfg(feature = "ipnet")]
mod networks;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::{Method, Request, Response, Uri};
use tollgate::{Clock, Quota, RateLimiter, Window};
use tollgate_http::{
    ClientIp, DelayLayer, Exempt, Head, LayerBuilder, LayerStats, LimitBy, RateLimitLayer, prometheus,
};
use tower_layer::Layer;

use crate::serving::{A, B, Echo, Noted, by_address_and_key, call, from, ip, noted, says, status};

const HOUR: Duration = Duration::from_secs(3_600);
const ONE: Quota = Quota::per_hour(1);

fn limiter<K: std::hash::Hash + Eq>(quota: Quota) -> Arc<RateLimiter<K>> {
    Arc::new(RateLimiter::builder(quota).clock(Clock::mock().0).build())
}

/// Returns a layer of one request an hour for each peer, before its allow list.
fn one_an_hour() -> LayerBuilder<IpAddr> {
    RateLimitLayer::builder(limiter(ONE)).key(ClientIp::peer())
}

fn requests(stats: &LayerStats) -> u64 {
    let LayerStats { granted, refused, banned, shadow_refused, skipped, exempt, rejected, .. } = stats;
    granted + refused + banned + shadow_refused + skipped + exempt + rejected
}

/// The paths under `/health` and `/static/*`, as clients spell them.
const EXEMPT: [&str; 13] = [
    "/health",
    "/health?a=/../b",
    "/static/",
    "/static/a",
    "/static/a/b.css",
    "/static/a/",
    "/static/..a",
    "/static/a..",
    "/static/.hidden/a",
    "/static/a:b@c,d!$&'()*+=~_-.",
    "/static/a?/../login",
    "/static/a?b=%2e%2e;//",
    "http://example.com/static/a",
];

/// Paths that some server reads as another one, and paths that are not on the list.
const NOT_EXEMPT: [&str; 66] = [
    "/static/../login",
    "/static/a/../../login",
    "/static/./../login",
    "/static/./a",
    "/static/.",
    "/static/..",
    "/static/a/.",
    "/static/a/..",
    "/static/../static/a",
    "/static/%2e%2e/login",
    "/static/%2E%2E/login",
    "/static/.%2e/login",
    "/static/%2e./login",
    "/static/%2e",
    "/static/%252e%252e/login",
    "/static/%c0%ae%c0%ae/login",
    "/static/%u002e%u002e/login",
    "/static/..%2flogin",
    "/static/..%2Flogin",
    "/static/..%5clogin",
    "/static/a%2f..%2f..%2flogin",
    "/static/%00",
    "/static/a%0d%0a",
    "/static/a%20b",
    "/static/%",
    "/static\\..\\login",
    "/static/..\\login",
    "/static/\\..\\login",
    "/static/a\\..\\..\\login",
    "/static\\a",
    "/static\\..",
    "/static/a\\",
    "/static//a",
    "/static//",
    "/static/a//",
    "/static/a//b",
    "/static/a//../../login",
    "//static/a",
    "///static/a",
    "//example.com/static/a",
    "/./static/a",
    "/a/../static/a",
    "/static;x/a",
    "/static/;/../login",
    "/static/..;/login",
    "/static/..;x=1/login",
    "/static/a;jsessionid=1",
    "/static/;",
    "/STATIC/a",
    "/Static/a",
    "/statiC/a",
    "/%73tatic/a",
    "/static%2fa",
    "/static%2f..%2flogin",
    "/static",
    "/statics/a",
    "/static?/a",
    "/login/static/a",
    "/login?/static/a",
    "/login?/health",
    "/health/",
    "/health/a",
    "/HEALTH",
    "/health;x",
    "//health",
    "http://example.com/static/../login",
];

#[test]
fn a_path_is_exempt_in_its_own_spelling_alone() {
    let paths = || Exempt::paths(["/health", "/static/*"]).unwrap();
    let layer = one_an_hour().exempt(paths()).build();
    let mut service = layer.layer(Echo::default());
    assert_eq!(status(&call(&mut service, from(A, "/"))), 200);
    for path in EXEMPT {
        let request = from(A, path);
        assert!(paths().applies(Head::from(&request)), "{path}");
        assert_eq!(status(&call(&mut service, request)), 200, "{path}");
    }
    for path in NOT_EXEMPT {
        let request = from(A, path);
        // The path arrives as it was sent.
        let sent = path.trim_start_matches("http://example.com").split('?').next();
        assert_eq!(Some(request.uri().path()), sent);
        assert!(!paths().applies(Head::from(&request)), "{path}");
        assert_eq!(status(&call(&mut service, request)), 429, "{path}");
    }
    let stats = layer.stats();
    assert_eq!((stats.exempt, stats.granted, stats.refused), (13, 1, 66));
    // Targets without a path of their own.
    for target in ["*", "example.com:443", "http://example.com", "/", "/?/static/a"] {
        let request = Request::options(target).body(()).unwrap();
        assert!(!paths().applies(Head::from(&request)), "{target}");
    }
}

#[test]
fn no_text_outside_of_ascii_is_under_a_prefix() {
    let paths = Exempt::paths(["/static/*"]).unwrap();
    // Two full stops of full width, a slash of full width, a soft hyphen, and a zero-width joiner.
    for path in
        ["/static/\u{ff0e}\u{ff0e}/a", "/static/..\u{ff0f}a", "/static/.\u{ad}./a", "/static/.\u{200d}./a"]
    {
        // Some versions of the crate `http` refuse such a target themselves.
        if let Ok(uri) = Uri::try_from(path) {
            let request = Request::get(uri).body(()).unwrap();
            assert!(!paths.applies(Head::from(&request)), "{path}");
        }
    }
}

#[test]
fn a_path_that_cannot_be_read_is_named() {
    for path in ["", "health", "*", "static/*", "/static*", "/a/*/b", "/a/**", "/*/*", "*/a", "https://a/b"] {
        let error = Exempt::paths(["/health", path]).unwrap_err();
        let text = "is no exempt path: a path begins with `/`, and a `*` is its last segment";
        assert_eq!(error.to_string(), format!("{path:?} {text}"));
    }
    assert!(Exempt::paths([""; 0]).is_ok_and(|none| !none.applies(Head::from(&from(A, "/")))));
    assert!(Exempt::paths(["/", "/a/*"].map(String::from)).is_ok());
}

#[test]
fn a_path_that_no_request_has_is_an_error_that_names_it() {
    for path in ["/a#b", "/a#b/*", "/a?b", "/?", "/a?b/*", "/a b", "/a\tb", "/a\nb/*", "/<a>", "/a\0"] {
        let error = Exempt::paths(["/health", path]).map(drop).unwrap_err();
        let text = "is no exempt path: no request has it, since a path ends before `?` and `#`, and has no spaces \
                    and control characters";
        assert_eq!(error.to_string(), format!("{path:?} {text}"));
    }
}

#[test]
fn a_path_that_exempts_all_requests_is_an_error_that_names_it() {
    let error = Exempt::paths(["/health", "/*"]).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "\"/*\" exempts all requests: to limit none, use no layer");
}

#[test]
fn methods_and_closures_exempt_their_requests_alone() {
    let layer = one_an_hour()
        .exempt(Exempt::methods([Method::OPTIONS, Method::from_bytes(b"PURGE").unwrap()]))
        .exempt(Exempt::when(|head| head.headers.get("x-api-key").is_some_and(|key| key == "ours")))
        .build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |method: &str, key: Option<&'static str>| {
        let mut request = from(A, "/");
        *request.method_mut() = method.parse().unwrap();
        if let Some(key) = key {
            request.headers_mut().insert("x-api-key", key.parse().unwrap());
        }
        status(&call(&mut service, request))
    };
    assert_eq!(asks("GET", None), 200);
    for (method, key, expected) in [
        ("OPTIONS", None, 200),
        ("PURGE", None, 200),
        ("GET", Some("ours"), 200),
        ("OPTIONS", Some("ours"), 200),
        ("options", None, 429),
        ("Purge", None, 429),
        ("GET", None, 429),
        ("HEAD", None, 429),
        ("GET", Some("theirs"), 429),
        ("GET", Some("ours "), 429),
        ("GET", Some("Ours"), 429),
    ] {
        assert_eq!(asks(method, key), expected, "{method} {key:?}");
    }
    let stats = layer.stats();
    assert_eq!((stats.exempt, stats.refused, stats.granted), (4, 7, 1));
}

#[test]
fn a_list_that_is_given_in_parts_is_one_list() {
    let layer = one_an_hour()
        .exempt(Exempt::paths(["/a"]).unwrap())
        .exempt(Exempt::paths(["/b"]).unwrap())
        .exempt(Exempt::methods([Method::HEAD]))
        .build();
    let mut service = layer.layer(Echo::default());
    let mut head = from(A, "/c");
    *head.method_mut() = Method::HEAD;
    for request in [from(A, "/a"), from(A, "/b"), head] {
        assert_eq!(noted(&call(&mut service, request)).map(|noted| noted.granted), Some(None));
    }
    assert_eq!([(); 2].map(|()| status(&call(&mut service, from(A, "/c")))), [200, 429]);
    assert_eq!((layer.stats().exempt, requests(&layer.stats())), (3, 5));
}

#[test]
fn an_exempt_request_is_untouched_whatever_the_layer_has() {
    let by_peer = || limiter::<IpAddr>(ONE);
    let windows =
        || RateLimiter::<IpAddr, _>::builder(Window::per_hour(1).sliding()).clock(Clock::mock().0).build();
    let kinds: [(&str, LayerBuilder<IpAddr>); 10] = [
        ("one limit", one_an_hour()),
        ("a window", RateLimitLayer::builder(windows()).key(ClientIp::peer())),
        ("two limits", by_address_and_key(by_peer(), limiter(ONE))),
        ("a bucket and a window", one_an_hour().and(LimitBy::new(windows()).key(ClientIp::peer()))),
        ("one bucket for all", RateLimitLayer::builder(by_peer()).shared()),
        ("shadow mode", one_an_hour().enforce(0)),
        (
            "a limit in shadow mode",
            one_an_hour().and(LimitBy::new(by_peer()).key(ClientIp::peer()).enforce(0)),
        ),
        ("bans", one_an_hour().ban_after(1, HOUR).for_(HOUR).unwrap()),
        ("refunds", one_an_hour().refund_on(|_| true).expose_headers()),
        ("a search", RateLimitLayer::builder(by_peer()).key_async(|_| std::future::ready(Some(ip(A))))),
    ];
    for (kind, builder) in kinds {
        let decisions = Arc::new(AtomicU64::new(0));
        let layer = builder
            .exempt(Exempt::paths(["/health"]).unwrap())
            .on_decision({
                let decisions = decisions.clone();
                move |_, _| _ = decisions.fetch_add(1, Relaxed)
            })
            .tell_upstream()
            .build();
        let echo = Echo::default();
        let delay = DelayLayer::by_timer(HOUR, |_| std::future::pending());
        let mut service = delay.layer(layer.layer(echo.clone()));
        for n in 1..=5 {
            let mut request = from(A, "/health");
            request.headers_mut().insert("origin", "https://example.com".parse().unwrap());
            request.headers_mut().insert("x-ratelimit-exceeded", 1.into());
            let response = call(&mut service, request);
            assert_eq!((status(&response), response.headers().len()), (200, 0), "{kind}");
            assert_eq!(noted(&response), Some(Noted { granted: None, exceeded: false }), "{kind}");
            let stats = layer.stats();
            assert_eq!((stats.exempt, requests(&stats), echo.calls.load(Relaxed)), (n, n, n), "{kind}");
            assert_eq!(
                (stats.keys, stats.keyless, stats.without_room, stats.ban_keys),
                (0, 0, 0, 0),
                "{kind}"
            );
        }
        assert_eq!(decisions.load(Relaxed), 0, "{kind}");
        // No token is gone: the one of the hour is there.
        let response = call(&mut service, from(A, "/"));
        assert_eq!(noted(&response).map(|noted| noted.granted), Some(Some(true)), "{kind}");
        assert_eq!((layer.stats().granted, decisions.load(Relaxed)), (1, 1), "{kind}");
    }
}

#[test]
fn exempt_requests_are_counted_apart_under_the_name_of_the_first_limit() {
    let (first, second) = (limiter::<IpAddr>(ONE), limiter::<IpAddr>(Quota::per_hour(9)));
    let applies = |head: Head<'_>| !matches!(head.uri.path(), "/internal" | "/both");
    let layer = RateLimitLayer::builder(first)
        .key(ClientIp::peer())
        .name("first")
        .unwrap()
        .when(applies)
        .and(LimitBy::new(second).key(ClientIp::peer()).name("second").unwrap().when(applies))
        .exempt(Exempt::paths(["/health", "/both"]).unwrap())
        .build();
    let mut service = layer.layer(Echo::default());
    // A request that is skipped, too, is exempt.
    for path in ["/health", "/both", "/health", "/internal", "/", "/"] {
        call(&mut service, from(A, path));
    }
    let stats = layer.stats();
    assert_eq!((stats.exempt, stats.skipped, stats.granted, stats.refused), (3, 1, 1, 1));
    assert_eq!(requests(&stats), 6);
    let text = prometheus(&[layer.stats()]);
    let told: Vec<_> = text.lines().filter(|line| line.contains("exempt")).collect();
    assert_eq!(told, [r#"tollgate_decisions_total{policy="first",result="exempt"} 3"#]);
    let skipped: Vec<_> = text.lines().filter(|line| line.contains("skipped")).collect();
    assert_eq!(skipped, [r#"tollgate_decisions_total{policy="first",result="skipped"} 1"#]);
    assert_eq!(layer.boxed().stats(), layer.stats());
}

#[test]
fn an_exempt_request_is_not_searched_for() {
    let searches = Arc::new(AtomicU64::new(0));
    let layer = RateLimitLayer::builder(limiter::<u64>(ONE))
        .key_async({
            let searches = searches.clone();
            move |_| {
                searches.fetch_add(1, Relaxed);
                std::future::pending()
            }
        })
        .exempt(Exempt::paths(["/health"]).unwrap())
        .build();
    let mut service = layer.layer(Echo::default());
    // A search does not end: `call` panics if one begins.
    for n in 1..=3 {
        assert_eq!(status(&call(&mut service, from(A, "/health"))), 200);
        assert_eq!((searches.load(Relaxed), layer.stats().exempt), (0, n));
    }
    let search = tower_service::Service::call(&mut service, from(A, "/"));
    assert_eq!(searches.load(Relaxed), 1);
    drop(search);
    assert_eq!((layer.stats().exempt, requests(&layer.stats())), (3, 3));
}

#[test]
fn an_exempt_request_is_neither_banned_nor_counted_for_a_ban() {
    let layer = one_an_hour()
        .exempt(Exempt::paths(["/health"]).unwrap())
        .ban_after(2, HOUR)
        .for_(HOUR)
        .unwrap()
        .build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |path| status(&call(&mut service, from(A, path)));
    assert_eq!(asks("/"), 200);
    for _ in 0..5 {
        assert_eq!(asks("/health"), 200);
    }
    assert_eq!((asks("/"), layer.stats().bans), (429, 0));
    for _ in 0..5 {
        assert_eq!(asks("/health"), 200);
    }
    assert_eq!((layer.banned(&ip(A)), layer.stats().bans), (None, 0));
    assert_eq!((asks("/"), layer.stats().bans), (429, 1));
    for _ in 0..5 {
        assert_eq!(asks("/health"), 200);
        assert_eq!(layer.banned(&ip(A)), Some(HOUR));
    }
    assert_eq!((asks("/"), asks("/health/")), (429, 429));
    let stats = layer.stats();
    assert_eq!((stats.granted, stats.refused, stats.banned, stats.exempt), (1, 2, 2, 15));
    assert_eq!(requests(&stats), 20);
}

#[test]
fn preflights_have_the_method_and_both_headers() {
    let layer = one_an_hour().exempt(Exempt::preflights()).build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |method: Method, headers: &[&'static str]| -> Response<()> {
        let mut request = from(A, "/");
        *request.method_mut() = method;
        for name in headers {
            request.headers_mut().insert(*name, "POST".parse().unwrap());
        }
        call(&mut service, request)
    };
    assert_eq!(status(&asks(Method::POST, &["origin"])), 200);
    const BOTH: &[&str] = &["origin", "access-control-request-method"];
    for (method, headers, exempt) in [
        (Method::OPTIONS, BOTH, true),
        (
            Method::OPTIONS,
            &["origin", "access-control-request-method", "access-control-request-headers"],
            true,
        ),
        (Method::OPTIONS, &["origin"], false),
        (Method::OPTIONS, &["access-control-request-method"], false),
        (Method::OPTIONS, &["origin", "access-control-request-headers"], false),
        (Method::OPTIONS, &[], false),
        (Method::GET, BOTH, false),
        (Method::POST, BOTH, false),
        (Method::HEAD, BOTH, false),
    ] {
        let response = asks(method.clone(), headers);
        assert_eq!(status(&response), if exempt { 200 } else { 429 }, "{method} {headers:?}");
        assert_eq!(says(&response, "ratelimit").is_none(), exempt, "{method} {headers:?}");
    }
    assert_eq!((layer.stats().exempt, layer.stats().refused), (2, 7));
}

#[test]
fn another_peer_is_not_exempt_for_the_first_ones_sake() {
    let ours = Exempt::when(|head| head.extensions.get() == Some(&ip(A)));
    let layer = one_an_hour().exempt(ours).build();
    let mut service = layer.layer(Echo::default());
    let mut asks = |peer| status(&call(&mut service, from(peer, "/")));
    assert_eq!([A, A, B, B, A].map(&mut asks), [200, 200, 200, 429, 200]);
    assert_eq!((layer.stats().exempt, layer.stats().keys), (3, 1));
}

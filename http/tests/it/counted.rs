// promise: layer
//! Statistics of a layer with several limits: each request counts once, at the limit that decided.

use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tollgate::{Clock, MockClock, Quota, RateLimiter};
use tollgate_http::{
    ClientIp, Digest, Head, HeaderKey, Headers, LimitBy, OnMissingKey, Problem, RateLimitLayer, prometheus,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::serving::{answers_at_once, by_address_and_key, call};

/// A service that answers with the status that the path names.
#[derive(Clone, Copy)]
struct Echo;

answers_at_once!(Echo => ());

impl Echo {
    fn answer(self, request: Request<()>) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = request.uri().path()[1..].parse().unwrap_or(StatusCode::OK);
        response
    }
}

const A: &str = "192.0.2.1";
const B: &str = "192.0.2.2";

fn from(peer: &str, key: Option<&'static str>, path: &str) -> Request<()> {
    let mut request = Request::get(path).body(()).unwrap();
    request.extensions_mut().insert(peer.parse::<IpAddr>().unwrap());
    if let Some(key) = key {
        request.headers_mut().insert("x-api-key", key.parse().unwrap());
    }
    request
}

fn limiter<K: std::hash::Hash + Eq>(quota: Quota) -> (Arc<RateLimiter<K>>, MockClock) {
    let (clock, mock) = Clock::mock();
    (Arc::new(RateLimiter::builder(quota).clock(clock).build()), mock)
}

/// Returns the series of a text that are not 0.
fn told(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0")).collect()
}

#[test]
fn a_refusal_counts_at_the_limit_that_refused() {
    let ((addresses, _one), (keys, _two)) =
        (limiter::<IpAddr>(Quota::per_hour(5)), limiter::<Digest>(Quota::per_hour(2)));
    let layer = by_address_and_key(addresses, keys).build();
    let mut service = layer.layer(Echo);
    let mut status = |key| call(&mut service, from(A, key, "/")).status().as_u16();
    // The key has two tokens, then two refusals. The address has the tokens that are left, then its
    // refusal.
    assert_eq!([(); 4].map(|()| status(Some("one"))), [200, 200, 429, 429]);
    assert_eq!([(); 4].map(|()| status(None)), [200, 200, 200, 429]);
    let text = prometheus(&[layer.stats()]);
    assert_eq!(
        told(&text),
        [
            // The limit with the fewest tokens left decides: the key's, twice.
            r#"tollgate_decisions_total{policy="address",result="granted"} 3"#,
            r#"tollgate_decisions_total{policy="address",result="refused"} 1"#,
            r#"tollgate_decisions_total{policy="key",result="granted"} 2"#,
            r#"tollgate_decisions_total{policy="key",result="refused"} 2"#,
            r#"tollgate_keyless_total{policy="key"} 4"#,
            r#"tollgate_keys{policy="address"} 1"#,
            r#"tollgate_keys{policy="key"} 1"#,
        ]
    );
}

#[test]
fn every_request_counts_at_one_limit() {
    let ((tenants, mock), (keys, _two)) =
        (limiter::<IpAddr>(Quota::per_second(10).burst(4)), limiter::<Digest>(Quota::per_hour(30)));
    let applies = |head: Head<'_>| head.uri.path() != "/204";
    let reject = LimitBy::new(keys)
        .key(HeaderKey::new("x-api-key").unwrap())
        .on_missing_key(OnMissingKey::Reject)
        .name("key")
        .unwrap()
        .when(applies);
    let layer = RateLimitLayer::builder(tenants)
        .key(ClientIp::peer())
        .when(applies)
        .refund_on(|status| status == StatusCode::ACCEPTED)
        .and(reject)
        .build();
    let mut service = layer.layer(Echo);
    let paths = ["/200", "/202", "/204"];
    let keys = [Some("one"), Some("two"), None];
    let mut statuses = [0_u64; 600];
    for i in 0..1_000_usize {
        let request = from([A, B][i % 5 % 2], keys[i % 7 % 3], paths[i % 11 % 3]);
        statuses[usize::from(call(&mut service, request).status().as_u16())] += 1;
        mock.advance(Duration::from_millis(i as u64 * 37 % 101));
    }
    let stats = layer.stats();
    assert_eq!(
        [stats.granted, stats.refunded, stats.skipped, stats.refused, stats.rejected],
        [statuses[200] + statuses[202], statuses[202], statuses[204], statuses[429], statuses[400]]
    );
    assert!([200, 202, 204, 400, 429].iter().all(|status| statuses[*status] > 9), "{stats:?}");
    let decisions = prometheus(&[stats]);
    let decisions = decisions.lines().filter(|line| line.starts_with("tollgate_decisions_total"));
    let count = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    assert_eq!(decisions.map(count).sum::<u64>(), 1_000);
}

#[test]
fn a_layer_that_skips_for_another_layer_has_seen_a_key() {
    let (limiter, _mock) = limiter::<IpAddr>(Quota::per_hour(9));
    let [outer, inner] =
        [(); 2].map(|()| RateLimitLayer::builder(limiter.clone()).key(ClientIp::peer()).build());
    call(&mut outer.layer(inner.layer(Echo)), from(A, None, "/"));
    let stats = inner.stats();
    assert_eq!((stats.skipped, stats.keyless), (1, 0));
}

/// Returns the values of a header.
fn says(response: &Response<()>, name: &str) -> Vec<String> {
    let values = response.headers().get_all(name).iter();
    values.map(|value| value.to_str().unwrap().to_owned()).collect()
}

#[test]
fn a_refunded_response_says_what_is_left_after_the_refund() {
    // A token in 6 s, and a burst of 10.
    let (limiter, mock) = limiter::<IpAddr>(Quota::per_minute(10));
    let layer = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer())
        .cost(|_| 4)
        .headers(Headers::Both)
        .refund_on(|status| status.is_success())
        .build();
    let mut service = layer.layer(Echo);
    let mut told = |path| {
        let response = call(&mut service, from(A, None, path));
        ["ratelimit", "x-ratelimit-remaining", "x-ratelimit-reset"]
            .map(|name| says(&response, name).remove(0))
    };
    assert_eq!(told("/200"), [r#""default";r=10;t=60"#, "10", "0"]);
    assert_eq!(told("/401"), [r#""default";r=6;t=36"#, "6", "24"]);
    assert_eq!(told("/200"), [r#""default";r=6;t=36"#, "6", "24"]);
    mock.advance(Duration::from_secs(9));
    assert_eq!(told("/200"), [r#""default";r=7;t=45"#, "7", "15"]);
}

#[test]
fn a_refund_tells_of_the_limit_that_was_tightest() {
    let ((addresses, _one), (keys, _two)) =
        (limiter::<IpAddr>(Quota::per_hour(5)), limiter::<Digest>(Quota::per_hour(2)));
    let layer = by_address_and_key(addresses, keys).refund_on(|status| status.is_success()).build();
    let mut service = layer.layer(Echo);
    assert_eq!(says(&call(&mut service, from(A, Some("one"), "/200")), "ratelimit"), [r#""key";r=2;t=3600"#]);
    // All requests without a key share a bucket of the limiter.
    let shared = RateLimitLayer::builder(limiter::<IpAddr>(Quota::per_hour(3)).0)
        .key(ClientIp::peer())
        .on_missing_key(OnMissingKey::Share)
        .refund_on(|status| status.is_success())
        .build();
    let mut service = shared.layer(Echo);
    let told = |response: &Response<()>| says(response, "ratelimit");
    let nobody = |path| Request::get(path).body(()).unwrap();
    assert_eq!(told(&call(&mut service, nobody("/200"))), [r#""default";r=3;t=3600"#]);
    assert_eq!(told(&call(&mut service, nobody("/401"))), [r#""default";r=2;t=2400"#]);
}

#[test]
fn a_redirection_with_a_refund_is_told_of_what_is_left() {
    let (limiter, _mock) = limiter::<IpAddr>(Quota::per_hour(1));
    let layer = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer())
        .refund_on(|status| status.is_redirection())
        .build();
    let response = call(&mut layer.layer(Echo), from(A, None, "/302"));
    assert_eq!(says(&response, "ratelimit"), [r#""default";r=1;t=3600"#]);
}

#[test]
fn each_limit_has_its_own_most_refused_keys() {
    let ((addresses, _one), (keys, _two)) =
        (limiter::<IpAddr>(Quota::per_hour(3)), limiter::<Digest>(Quota::per_hour(1)));
    let layer = by_address_and_key(addresses, keys).build();
    let mut service = layer.layer(Echo);
    let mut ask = |key| drop(call(&mut service, from(A, key, "/")));
    [Some("one"), Some("one"), Some("two"), Some("two"), Some("two"), None, None]
        .into_iter()
        .for_each(&mut ask);
    let (one, two) = (Digest::of(b"one"), Digest::of(b"two"));
    assert_eq!(
        layer.limit::<Digest>("key").map(|limit| limit.top_refused(9)),
        Some(vec![(two, 2), (one, 1)])
    );
    assert_eq!(layer.limit::<Digest>("key").map(|limit| limit.top_refused(1)), Some(vec![(two, 2)]));
    let address = A.parse().unwrap();
    assert_eq!(layer.limit::<IpAddr>("address").map(|limit| limit.top_refused(9)), Some(vec![(address, 1)]));
    assert_eq!(layer.top_refused(9), [(address, 1)]);
    // A name, or a type of keys, that no limit has.
    assert_eq!(layer.limit::<Digest>("address").map(|limit| limit.top_refused(9)), None);
    assert_eq!(layer.limit::<IpAddr>("tenant").map(|limit| limit.top_refused(9)), None);
}

#[test]
fn limits_of_one_name_are_one_series() {
    let ((one, _one), (two, _two)) =
        (limiter::<IpAddr>(Quota::per_hour(9)), limiter::<u64>(Quota::per_hour(2)));
    let layer = RateLimitLayer::builder(one).key(ClientIp::peer()).and(LimitBy::new(two).shared()).build();
    let mut service = layer.layer(Echo);
    (0..3).for_each(|_| drop(call(&mut service, from(A, None, "/"))));
    let text = prometheus(&[layer.stats(), layer.stats()]);
    assert_eq!(
        told(&text),
        [
            r#"tollgate_decisions_total{policy="default",result="granted"} 4"#,
            r#"tollgate_decisions_total{policy="default",result="refused"} 2"#,
            r#"tollgate_keyless_total{policy="default"} 6"#,
            r#"tollgate_keys{policy="default"} 2"#,
        ]
    );
    let mut names: Vec<_> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    names.retain(|name| !name.starts_with('#'));
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn a_closure_for_refusals_infers_its_argument() {
    let (limiter, _mock) = limiter::<IpAddr>(Quota::per_hour(1));
    let builder = || RateLimitLayer::builder(limiter.clone()).key(ClientIp::peer());
    // The layer has one type, whatever makes the refusals.
    let layers: [RateLimitLayer<IpAddr>; 4] = [
        builder().build(),
        builder().reject_with(|refusal| refusal.response("a text")).build(),
        builder().reject_with(|refusal| refusal.response(refusal.policy().name().to_owned())).build(),
        builder().reject_as(Problem::QUOTA_EXCEEDED).build(),
    ];
    call(&mut layers[0].layer(Echo), from(A, None, "/"));
    let bodies = layers.map(|layer| {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(layer.layer(Echo).call(from(A, None, "/"))).poll(&mut context) {
            Poll::Ready(Ok(response)) => {
                let mut text = None;
                response.into_body().into_inner_or_else(|bytes| text = Some(bytes.len()));
                text
            }
            Poll::Pending => panic!("nothing is waited for"),
        }
    });
    assert_eq!(bodies[..3], [Some(0), Some(6), Some(7)]);
    assert!(bodies[3] > Some(100), "{bodies:?}");
}

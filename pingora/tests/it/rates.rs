//! The limits of the layer, through the gate.

use std::time::Duration;

use tollgate::{Quota, RateLimiter};
use tollgate_http::{Digest, Exempt, HeaderKey, LimitBy, OnMissingKey};
use tollgate_pingora::Gate;
use tollgate_testing::upstream::{OK, Upstream};
use tollgate_testing::wire::Connection;

use crate::proxy::{by_address, connect, start};

fn statuses<const N: usize>(client: &mut Connection, path: &str) -> [u16; N] {
    [(); N].map(|()| client.get(path).status)
}

#[test]
fn a_grant_has_the_fields_of_the_limit_and_a_refusal_the_wait() {
    let upstream = Upstream::answering(OK);
    let layer = by_address(Quota::per_hour(3_600).burst(2)).build();
    let proxy = start(Gate::new(layer.boxed()), upstream.address);
    let mut client = connect(proxy);
    for left in ["1", "0"] {
        let granted = client.get("/");
        assert_eq!((granted.status, &*granted.body), (200, "ok"));
        assert!(granted.has("ratelimit-policy", r#""default";q=3600;w=3600"#), "{granted:?}");
        assert!(granted.header("ratelimit").unwrap().starts_with(&format!(r#""default";r={left};"#)));
    }
    let refused = client.get("/");
    assert_eq!((refused.status, &*refused.body), (429, ""));
    assert!(refused.has("retry-after", "1") && refused.has("cache-control", "no-store"), "{refused:?}");
    assert!(refused.has("ratelimit", r#""default";r=0;t=1"#), "{refused:?}");
    // Another address has tokens of its own.
    let mut other = Connection::connect_from([127, 0, 0, 9], proxy);
    assert_eq!(other.get("/").status, 200);
    assert_eq!((upstream.count(), layer.stats().granted, layer.stats().refused), (3, 3, 1));
}

#[test]
fn several_limits_grant_together_or_not_at_all() {
    let upstream = Upstream::answering(OK);
    let by_key = LimitBy::new(RateLimiter::<Digest>::new(Quota::per_hour(1)));
    let by_key = by_key.key(HeaderKey::new("x-api-key").unwrap()).on_missing_key(OnMissingKey::Allow);
    let layer = by_address(Quota::per_hour(3)).and(by_key.name("key").unwrap()).build();
    let mut client = connect(start(Gate::new(layer.boxed()), upstream.address));
    let granted = client.get_with("/", "X-API-Key: a\r\n");
    assert_eq!((granted.status, granted.all("ratelimit-policy").len()), (200, 2), "{granted:?}");
    for _ in 0..2 {
        assert_eq!(client.get_with("/", "X-API-Key: a\r\n").status, 429);
    }
    // The refusals took no token of the address.
    assert_eq!(statuses(&mut client, "/"), [200, 200, 429]);
}

#[test]
fn a_cost_is_that_of_the_request() {
    let upstream = Upstream::answering(OK);
    let layer = by_address(Quota::per_hour(5)).cost(|head| head.uri.path().len() as u64).build();
    let mut client = connect(start(Gate::new(layer.boxed()), upstream.address));
    assert_eq!(client.get("/abc").status, 200);
    assert_eq!(statuses(&mut client, "/a"), [429]);
    assert_eq!(statuses(&mut client, "/"), [200, 429]);
}

#[test]
fn exempt_paths_have_no_limit() {
    let upstream = Upstream::answering(OK);
    let layer = by_address(Quota::per_hour(1)).exempt(Exempt::paths(["/health"]).unwrap()).build();
    let mut client = connect(start(Gate::new(layer.boxed()), upstream.address));
    assert_eq!(statuses(&mut client, "/"), [200, 429]);
    assert_eq!(statuses(&mut client, "/health"), [200, 200, 200]);
    assert_eq!(client.get("/health").header("ratelimit"), None);
    assert_eq!(layer.stats().exempt, 4);
}

#[test]
fn a_key_that_is_refused_too_often_is_banned() {
    let upstream = Upstream::answering(OK);
    let layer = by_address(Quota::per_hour(3_600).burst(1));
    let layer = layer.ban_after(2, Duration::from_secs(60)).for_(Duration::from_secs(600)).unwrap().build();
    let proxy = start(Gate::new(layer.boxed()), upstream.address);
    let mut client = connect(proxy);
    assert_eq!(statuses(&mut client, "/"), [200, 429]);
    for _ in 0..2 {
        let banned = client.get("/");
        assert_eq!((banned.status, banned.header("retry-after")), (429, Some("600")), "{banned:?}");
    }
    let peer = std::net::IpAddr::from([127, 0, 0, 9]);
    assert_eq!((layer.banned(&peer), layer.stats().bans), (None, 1));
    assert_eq!(Connection::connect_from(peer, proxy).get("/").status, 200);
}

#[test]
fn in_shadow_mode_the_upstream_is_told_and_no_client_can_say_so() {
    let upstream = Upstream::answering(OK);
    let layer = by_address(Quota::per_hour(1)).enforce(0).tell_upstream().build();
    let mut client = connect(start(Gate::new(layer.boxed()), upstream.address));
    for told in [None, Some("1"), Some("1")] {
        let answer = client.get_with("/", "X-RateLimit-Exceeded: 7\r\n");
        assert_eq!((answer.status, answer.header("retry-after")), (200, None));
        assert_eq!(upstream.next().header("x-ratelimit-exceeded"), told);
    }
    assert_eq!((layer.stats().granted, layer.stats().shadow_refused), (1, 2));
}

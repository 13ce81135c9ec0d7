//! The requests in flight of a key.

use std::time::Duration;

use tollgate::{Places, RateLimiter};
use tollgate_adaptive::{Enter, Inflight, InflightLayer};
use tollgate_http::ClientIp;
use tollgate_pingora::Gate;
use tollgate_testing::upstream::{Held, OK, Upstream};
use tollgate_testing::wire::Connection;

use crate::proxy::{TIMEOUT, connect, start, unlimited, until};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
/// Half of a body. pingora collects smaller parts before it sends the head.
const HALF: usize = 1 << 20;

type Uploads = RateLimiter<std::net::IpAddr, Places>;

fn with_places(gate: Gate, places: u32) -> (Gate, Uploads) {
    let limiter = Uploads::new(Places::new(places));
    (gate.places(limiter.clone(), ClientIp::peer()), limiter)
}

/// Sends a request of which the upstream has the head.
fn held(proxy: std::net::SocketAddr, upstream: &Upstream<Held>) -> (Connection, Held) {
    let mut client = connect(proxy);
    client.write(GET);
    (client, upstream.next())
}

#[test]
fn a_place_is_held_until_the_body_has_ended_or_the_client_has_left() {
    let upstream = Upstream::holding();
    let (gate, limiter) = with_places(unlimited(), 1);
    let proxy = start(gate, upstream.address);
    let own = std::net::IpAddr::from([127, 0, 0, 1]);
    let refused = || {
        let refused = connect(proxy).get("/");
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{refused:?}");
        assert!(refused.has("cache-control", "no-store") && refused.has("connection", "keep-alive"));
        // The rate of the address is reported as well.
        assert!(refused.header("ratelimit").is_some());
        assert!(upstream.try_next().is_none());
        // Another address has places of its own.
        assert_eq!(limiter.in_flight(&std::net::IpAddr::from([127, 0, 0, 9])), 0);
    };
    for leaves in [false, true, false] {
        until("the place is free", || limiter.in_flight(&own) == 0);
        let (mut client, mut held) = held(proxy, &upstream);
        refused();
        let (length, half) = (2 * HALF, "a".repeat(HALF));
        held.write(&format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"));
        held.write(&half);
        assert_eq!(client.head().status, 200);
        refused();
        if leaves {
            drop(client);
            held.rest();
        } else {
            held.write(&half);
            client.exactly(length);
        }
    }
    until("the place is free", || limiter.in_flight(&own) == 0);
}

#[test]
fn a_client_that_leaves_in_its_body_and_a_silent_upstream_give_the_place_back() {
    let upstream = Upstream::holding();
    let (gate, limiter) = with_places(unlimited(), 1);
    let proxy = start(gate, upstream.address);
    let own = std::net::IpAddr::from([127, 0, 0, 1]);
    let mut client = connect(proxy);
    client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    let held = upstream.next();
    assert_eq!(limiter.in_flight(&own), 1);
    drop(client);
    until("the place is free", || limiter.in_flight(&own) == 0);
    drop(held);
    let (mut client, _held) = self::held(proxy, &upstream);
    assert_eq!(client.head().status, 502, "after {TIMEOUT:?}");
    until("the place is free", || limiter.in_flight(&own) == 0);
}

/// A client cannot keep places by the bodies of refused requests.
#[test]
fn a_refused_request_holds_no_place_while_its_body_is_read() {
    let upstream = Upstream::holding();
    let inflight = InflightLayer::new(Inflight::fixed(1));
    let (gate, limiter) = with_places(unlimited().drain(Duration::from_secs(60)).upstream(inflight), 1);
    let proxy = start(gate, upstream.address);
    let mut other = Connection::connect_from([127, 0, 0, 9], proxy);
    other.write(GET);
    let first = upstream.next();
    let mut slow = connect(proxy);
    let refused = slow.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
    assert_eq!(refused.status, 503, "the upstream has no place");
    assert_eq!(limiter.in_flight(&std::net::IpAddr::from([127, 0, 0, 1])), 0);
    assert_eq!(connect(proxy).get("/").status, 503);
    first.answer(OK);
    assert_eq!(other.read().status, 200);
    slow.write("0123456789");
    slow.write(GET);
    upstream.next().answer(OK);
    assert_eq!(slow.read().status, 200);
}

#[test]
fn requests_without_a_key_need_no_place() {
    let upstream = Upstream::holding();
    let limiter = RateLimiter::<u64, _>::new(Places::new(1));
    let by_header = |head: tollgate_http::Head<'_>| head.headers.get("x-user")?.to_str().ok()?.parse().ok();
    let proxy = start(unlimited().places(limiter, by_header), upstream.address);
    let _kept: Vec<_> = (0..3).map(|_| held(proxy, &upstream)).collect();
    let mut first = connect(proxy);
    first.write("GET / HTTP/1.1\r\nHost: a\r\nX-User: 7\r\n\r\n");
    let _held = upstream.next();
    assert_eq!(connect(proxy).get_with("/", "X-User: 7\r\n").status, 429);
}

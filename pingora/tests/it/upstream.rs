//! The requests in flight to the upstream, and their outcomes.

use std::net::SocketAddr;

use tollgate_adaptive::{Inflight, InflightLayer, InflightLayerStats, Priority};
use tollgate_http::Problem;
use tollgate_testing::upstream::{OK, Upstream, deaf, refusing};

use crate::proxy::{connect, start, unlimited, until};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn address(url: &str) -> SocketAddr {
    url.strip_prefix("http://").unwrap().parse().unwrap()
}

/// Starts a proxy, sends a request, and returns the status and the counts once it has ended.
fn after(upstream: SocketAddr, request: &str) -> (u16, InflightLayerStats) {
    let layer = InflightLayer::new(Inflight::fixed(1));
    let proxy = start(unlimited().upstream(layer.clone()), upstream);
    let status = connect(proxy).ask(request).status;
    until("the place is free", || layer.stats().inflight.in_flight == 0);
    (status, layer.stats())
}

#[test]
fn a_full_upstream_is_503_over_the_kept_connection() {
    let upstream = Upstream::holding();
    let layer = InflightLayer::builder(Inflight::fixed(1))
        .priority(|_| Priority::Critical)
        .skip(|head| head.uri.path() == "/health")
        .reject_with(|refusal| refusal.problem(Problem::TEMPORARY_REDUCED_CAPACITY))
        .build();
    let proxy = start(unlimited().upstream(layer.clone()), upstream.address);
    let mut first = connect(proxy);
    first.write(GET);
    let held = upstream.next();
    let mut other = connect(proxy);
    for _ in 0..2 {
        let refused = other.get("/");
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
        assert!(refused.has("connection", "keep-alive") && refused.body.contains("capacity"), "{refused:?}");
        assert!(refused.header("ratelimit").is_some(), "{refused:?}");
    }
    other.write("GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    upstream.next().answer(OK);
    assert_eq!(other.read().status, 200);
    held.answer(OK);
    assert_eq!(first.read().status, 200);
    until("the place is free", || layer.stats().inflight.in_flight == 0);
    let stats = layer.stats();
    assert_eq!((stats.answered, stats.refused, stats.skipped), (1, 2, 1), "{stats:?}");
}

#[test]
fn an_answer_is_classed_by_its_status() {
    for (response, [answered, failed, overloaded]) in [
        (OK, [1, 0, 0]),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", [1, 0, 0]),
        ("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", [0, 1, 0]),
        ("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", [0, 0, 1]),
        ("HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", [0, 0, 1]),
    ] {
        let (_, stats) = after(Upstream::answering(response).address, GET);
        assert_eq!(
            [stats.answered, stats.failed, stats.overloaded],
            [answered, failed, overloaded],
            "{response}"
        );
    }
}

#[test]
fn an_upstream_that_refuses_or_says_nothing_is_overloaded() {
    let (status, stats) = after(address(&refusing()), GET);
    assert_eq!((status, stats.overloaded), (502, 1), "it refuses: {stats:?}");
    let deaf = deaf();
    let (status, stats) = after(address(&deaf.url), GET);
    assert_eq!((status, stats.overloaded), (502, 1), "no connection: {stats:?}");
    let silent = Upstream::holding();
    let (status, stats) = after(silent.address, GET);
    assert_eq!((status, stats.overloaded), (502, 1), "no answer: {stats:?}");
}

#[test]
fn an_upstream_that_breaks_off_has_failed() {
    let garbage = Upstream::answering("no HTTP at all\r\n\r\n");
    let (status, stats) = after(garbage.address, GET);
    assert_eq!((status, stats.failed), (502, 1), "{stats:?}");
}

/// The fault of a client says nothing of the upstream.
#[test]
fn a_client_that_leaves_is_no_outcome() {
    let upstream = Upstream::holding();
    let layer = InflightLayer::new(Inflight::fixed(1));
    let proxy = start(unlimited().upstream(layer.clone()), upstream.address);
    let mut client = connect(proxy);
    client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    let _held = upstream.next();
    drop(client);
    until("the place is free", || layer.stats().inflight.in_flight == 0);
    let stats = layer.stats();
    assert_eq!([stats.answered, stats.failed, stats.overloaded, stats.given_up], [0, 0, 0, 1], "{stats:?}");
}

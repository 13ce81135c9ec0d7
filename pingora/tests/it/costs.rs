//! Costs that are known from the response.

use std::net::{IpAddr, SocketAddr};

use tollgate::{Clock, Quota, RateLimiter};
use tollgate_http::{ClientIp, Cost, LayerBuilder, RateLimitLayer, ResponseHead};
use tollgate_pingora::Gate;
use tollgate_testing::upstream::{OK, Upstream, refusing};
use tollgate_testing::wire::Connection;

use crate::proxy::{connect, start, until};

const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// A proxy whose clients have 100 tokens an hour, and the limiter.
struct Scene {
    limiter: RateLimiter<IpAddr>,
    proxy: SocketAddr,
}

impl Scene {
    fn start(upstream: SocketAddr, set: impl FnOnce(LayerBuilder<IpAddr>) -> LayerBuilder<IpAddr>) -> Scene {
        let limiter = RateLimiter::builder(Quota::per_hour(100)).clock(Clock::mock().0).build();
        let layer = set(RateLimitLayer::builder(limiter.clone()).key(ClientIp::peer())).build();
        Scene { limiter, proxy: start(Gate::new(layer.boxed()), upstream) }
    }

    /// Waits until a client has this many tokens left.
    fn has(&self, left: u64) {
        let peek = || self.limiter.peek(&OWN).remaining();
        until(&format!("{left} tokens are left, not {}", peek()), || peek() == left);
    }
}

/// The tokens in a header.
fn of_header(head: ResponseHead<'_>) -> Cost {
    let told = head.headers.get("x-cost").and_then(|cost| cost.to_str().ok()?.parse().ok());
    told.map_or(Cost::ESTIMATE, Cost::tokens)
}

#[test]
fn a_status_gives_the_tokens_back() {
    let upstream = Upstream::answering("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let scene = Scene::start(upstream.address, |layer| layer.refund_on(|status| status == 404));
    let mut client = connect(scene.proxy);
    for _ in 0..3 {
        let answer = client.get("/");
        assert!(answer.header("ratelimit").unwrap().contains("r=100;"), "{answer:?}");
    }
    scene.has(100);
}

#[test]
fn the_answers_of_the_proxy_itself_have_a_status_as_well() {
    let upstream: SocketAddr = refusing().strip_prefix("http://").unwrap().parse().unwrap();
    let scene = Scene::start(upstream, |layer| layer.refund_on(|status| status == 502));
    assert_eq!(connect(scene.proxy).get("/").status, 502);
    scene.has(100);
    let scene = Scene::start(upstream, |layer| layer.refund_on(|status| status == 500));
    assert_eq!(connect(scene.proxy).get("/").status, 502);
    scene.has(99);
}

#[test]
fn a_header_settles_the_cost_and_the_fields_tell_the_rest() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nX-Cost: 30\r\nContent-Length: 0\r\n\r\n");
    let scene = Scene::start(upstream.address, |layer| layer.cost(|_| 10).settle_on(of_header));
    let answer = connect(scene.proxy).get("/");
    assert!(answer.header("ratelimit").unwrap().contains("r=70;"), "{answer:?}");
    scene.has(70);
}

/// The first final head counts.
#[test]
fn an_informational_response_settles_nothing() {
    const EARLY: &str =
        "HTTP/1.1 103 Early\r\nX-Cost: 90\r\n\r\nHTTP/1.1 200 OK\r\nX-Cost: 3\r\nContent-Length: 0\r\n\r\n";
    let scene = Scene::start(Upstream::answering(EARLY).address, |layer| layer.settle_on(of_header));
    let answer = connect(scene.proxy).get("/");
    assert_eq!((answer.status, answer.all("ratelimit").len()), (200, 1), "{answer:?}");
    scene.has(97);
}

#[test]
fn bytes_are_counted_as_they_pass() {
    const TEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789";
    let bytes = |layer: LayerBuilder<IpAddr>| layer.settle_on(|_| Cost::bytes().at_least(2));
    let scene = Scene::start(Upstream::answering(TEN).address, bytes);
    let mut client = connect(scene.proxy);
    client.get("/");
    scene.has(90);
    client.write("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    drop(client.reply("HEAD"));
    scene.has(88);
    const CHUNKS: &str =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let scene = Scene::start(Upstream::answering(CHUNKS).address, bytes);
    connect(scene.proxy).get("/");
    scene.has(95);
}

#[test]
fn the_end_of_a_body_tells_the_cost() {
    const TOLD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"cost\":42}";
    let found = |body: &[u8]| {
        std::str::from_utf8(body).ok()?.strip_prefix("{\"cost\":")?.strip_suffix('}')?.parse().ok()
    };
    let scene = Scene::start(Upstream::answering(TOLD).address, |layer| {
        layer.settle_on(move |_| Cost::of_body(64, found))
    });
    connect(scene.proxy).get("/");
    scene.has(58);
}

/// A client that goes away before the end gets no refund.
#[test]
fn a_body_that_is_cut_costs_its_estimate() {
    let upstream = Upstream::holding();
    let scene = Scene::start(upstream.address, |layer| {
        layer.cost(|_| 20).settle_on(|_| Cost::of_body(64, |_| Some(1)))
    });
    let mut client: Connection = connect(scene.proxy);
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut held = upstream.next();
    held.write(&format!("HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n{}", "a".repeat(1 << 20)));
    assert_eq!(client.head().status, 200);
    drop(client);
    held.rest();
    scene.has(80);
}

#[test]
fn a_whole_answer_is_no_refund_without_a_rule() {
    let scene = Scene::start(Upstream::answering(OK).address, |layer| layer);
    assert_eq!(connect(scene.proxy).get("/").status, 200);
    scene.has(99);
}

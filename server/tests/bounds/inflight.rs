//! The limit on the requests in flight to each upstream.

use std::time::Instant;

use super::process::{Client, Message, Proxy, recording_upstream, refusing, upstream, write};
use super::watched::{
    GET, Holding, OK, assert_counts, await_count, over, over_all, rest, upgrading, websocket,
};
use super::{NO_LIMIT, PATIENCE};

/// More rounds than places that could be lost without notice.
const ROUNDS: usize = 20;
/// A response after which the next request comes over another connection.
const LAST: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

/// Returns the sum of a metric over its labels that contain `part`.
fn metric(proxy: &Proxy, name: &str, part: &str) -> f64 {
    let metrics = proxy.ask_admin("GET", "/metrics", "").body;
    let of = |line: &str| {
        let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.split_once("} ")?;
        labels.contains(part).then(|| value.parse::<f64>().expect("a number"))
    };
    let values: Vec<f64> = metrics.lines().filter_map(of).collect();
    assert!(!values.is_empty(), "no {name} with {part} in {metrics}");
    values.iter().sum()
}

/// Waits until as many requests are in flight to the upstreams whose name contains `part`.
fn await_in_flight(proxy: &Proxy, part: &str, wanted: f64) {
    let begin = Instant::now();
    while metric(proxy, "tollgate_inflight", part) != wanted {
        assert!(begin.elapsed() < PATIENCE, "{} are in flight", metric(proxy, "tollgate_inflight", part));
    }
}

fn ask(proxy: &Proxy) -> Client {
    let mut client = proxy.connect();
    client.write(GET);
    client
}

fn assert_refused(mut client: Client) {
    let reply = client.read();
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply:?}");
    assert!(reply.body.contains("the upstream has as many requests"), "{reply:?}");
}

/// The time-out of the queue is an hour: a request that waited would fail the test.
#[test]
fn a_request_over_the_limit_gets_503_at_once_and_does_not_reach_the_upstream() {
    let holding = Holding::start();
    let proxy = over(holding.address, "--inflight 2 --timeout queue=1h");
    let mut held = [(); 2].map(|()| (ask(&proxy), holding.next()));
    for _ in 0..ROUNDS {
        assert_refused(ask(&proxy));
    }
    assert!(holding.try_next().is_none());
    assert_eq!(metric(&proxy, "tollgate_inflight", ""), 2.0);
    assert_eq!(metric(&proxy, "tollgate_inflight_limit", ""), 2.0);
    assert_eq!(metric(&proxy, "tollgate_inflight_refused_total", ""), ROUNDS as f64);
    assert_counts(&proxy, &[("requests_under_way", 2), ("upstreams_full", ROUNDS as u64)]);
    let (client, at_upstream) = &mut held[0];
    at_upstream.write(LAST);
    assert_eq!(client.read().body, "ok");
    await_in_flight(&proxy, "", 1.0);
    let (_third, _at_upstream) = (ask(&proxy), holding.next());
    await_in_flight(&proxy, "", 2.0);
}

#[test]
fn a_place_is_held_from_the_head_of_a_response_to_the_end_of_its_body() {
    let holding = Holding::start();
    let proxy = over(holding.address, "--inflight 1");
    for _ in 0..ROUNDS {
        let (mut client, mut at_upstream) = (ask(&proxy), holding.next());
        at_upstream.write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbo");
        assert_eq!(Message::read_head(&mut client.0).expect("a head").status, 200);
        assert_refused(ask(&proxy));
        at_upstream.write("dy");
        await_in_flight(&proxy, "", 0.0);
    }
}

#[test]
fn a_place_comes_back_from_a_client_that_leaves() {
    let holding = Holding::start();
    let proxy = over(holding.address, "--inflight 1");
    for head in ["", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbo"].repeat(ROUNDS / 2)
    {
        let (mut client, mut at_upstream) = (ask(&proxy), holding.next());
        at_upstream.write(head);
        if !head.is_empty() {
            assert_eq!(Message::read_head(&mut client.0).expect("a head").status, 200);
        }
        assert_eq!(metric(&proxy, "tollgate_inflight", ""), 1.0);
        drop(client);
        at_upstream.rest();
        await_in_flight(&proxy, "", 0.0);
    }
}

#[test]
fn a_place_comes_back_from_an_upstream_that_fails() {
    let broken = upstream(|mut connection| {
        let head = Message::read_head(&mut connection).map_or(String::new(), |head| head.start);
        if head.contains("/cut") {
            write(&connection, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nabc");
        }
    });
    let proxy = over(broken, "--inflight 1 --timeout response_head=20s");
    for _ in 0..ROUNDS {
        assert_eq!(proxy.connect().get("/broken").status, 502);
        await_in_flight(&proxy, "", 0.0);
        let mut client = proxy.connect();
        client.write("GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
        rest(&mut client);
        await_in_flight(&proxy, "", 0.0);
    }
    let proxy = over(refusing(), "--inflight 1");
    for _ in 0..ROUNDS {
        assert_eq!(proxy.connect().get("/").status, 502);
        await_in_flight(&proxy, "", 0.0);
    }
}

#[test]
fn a_place_comes_back_from_an_upstream_that_is_too_slow() {
    let holding = Holding::start();
    let proxy = over(holding.address, "--inflight 1 --timeout response_head=50ms");
    for _ in 0..3 {
        let (mut client, at_upstream) = (ask(&proxy), holding.next());
        assert_eq!(client.read().status, 504);
        await_in_flight(&proxy, "", 0.0);
        drop(at_upstream);
    }
}

#[test]
fn a_websocket_holds_no_place() {
    let proxy = over(upgrading(), "--inflight 1");
    let open = [(); 3].map(|()| websocket(&proxy));
    await_count(&proxy, "requests_under_way", 3);
    assert_eq!(metric(&proxy, "tollgate_inflight", ""), 0.0);
    assert_eq!(proxy.connect().send(GET).status, 200);
    drop(open);
}

/// Each upstream has a limit of its own, and a request goes to one that has a place.
#[test]
fn an_upstream_that_stands_still_does_not_close_the_others() {
    let holding = Holding::start();
    let (answering, requests) = recording_upstream(OK);
    let proxy = over_all(&[holding.address, answering], "--inflight 1");
    let (mut client, mut at_upstream) = (ask(&proxy), holding.next());
    for _ in 0..ROUNDS {
        assert_eq!(proxy.connect().send(GET).body, "ok");
        await_in_flight(&proxy, &answering.to_string(), 0.0);
    }
    assert_eq!(requests.try_iter().count(), ROUNDS);
    assert_eq!(metric(&proxy, "tollgate_inflight", &holding.address.to_string()), 1.0);
    await_count(&proxy, "upstreams_full", 0);
    at_upstream.write(OK);
    assert_eq!(client.read().body, "ok");
}

#[test]
fn a_request_is_refused_only_if_every_upstream_is_full() {
    let both = [(); 2].map(|()| Holding::start());
    let proxy = over_all(&[both[0].address, both[1].address], "--inflight 1");
    let _first = (ask(&proxy), both[0].next());
    let _second = (ask(&proxy), both[1].next());
    assert_refused(ask(&proxy));
    for holding in &both {
        assert_eq!(metric(&proxy, "tollgate_inflight_refused_total", &holding.address.to_string()), 1.0);
    }
    await_count(&proxy, "upstreams_full", 1);
}

#[test]
fn a_request_over_the_rate_takes_no_place() {
    let holding = Holding::start();
    let url = format!("http://{}", holding.address);
    let options = ["--limit", "1/h burst 1", "--inflight", "1", "--admin", "127.0.0.1:0", "--upstream", &url];
    let proxy = Proxy::start(&options);
    let _held = (ask(&proxy), holding.next());
    for _ in 0..ROUNDS {
        assert_eq!(ask(&proxy).read().status, 429);
    }
    assert_eq!(metric(&proxy, "tollgate_inflight_refused_total", ""), 0.0);
    assert_eq!(metric(&proxy, "tollgate_inflight", ""), 1.0);
}

/// The answers are slower than the target, so the limit falls below its first value, 20. Without
/// requests that are refused or a limit that is used it does not rise.
#[test]
fn a_limit_with_a_target_follows_the_answers() {
    let args = ["--limit", NO_LIMIT, "--admin", "127.0.0.1:0", "--service", "30ms"];
    let proxy = Proxy::start(&[&args[..], &["--inflight", "100", "--target", "10ms"]].concat());
    assert_eq!(metric(&proxy, "tollgate_inflight_limit", ""), 20.0);
    assert_eq!(metric(&proxy, "tollgate_inflight_target_seconds", ""), 0.01);
    let mut client = proxy.connect();
    let begin = Instant::now();
    while metric(&proxy, "tollgate_inflight_changes_total", "fell") == 0.0 {
        assert!(begin.elapsed() < PATIENCE, "the limit does not fall");
        assert_eq!(client.get("/").status, 200);
    }
    assert!(metric(&proxy, "tollgate_inflight_limit", "") < 20.0);
    let event = event(&proxy);
    for part in ["\"asked\":0.01", "\"ceiling\":100", "\"peak\":", "\"refused\":0", "\"slow\":"] {
        assert!(event.contains(part), "{part} is missing in {event}");
    }
}

/// Returns the first event of the page.
fn event(proxy: &Proxy) -> String {
    let mut client = proxy.admin();
    client.write(&format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.admin));
    assert_eq!(Message::read_head(&mut client.0).expect("a head").status, 200);
    super::process::read_chunk(&mut client.0)
}

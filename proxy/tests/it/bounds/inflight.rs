//! The limit on the requests in flight to each upstream.

use std::thread::sleep;
use std::time::Duration;

use super::upstreams::{moody, upgrading, websocket};
use crate::support::{Connection, Folder, GET, OK, Proxy, Upstream, deaf, refusing, serve, until};

/// More rounds than places that could be lost without notice.
const ROUNDS: usize = 20;
/// A response after which the next request comes over another connection.
const LAST: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

/// Waits until as many requests are in flight to the upstreams whose name contains `part`.
fn await_in_flight(proxy: &Proxy, part: &str, wanted: f64) {
    until("in flight", || proxy.sum("tollgate_inflight", part) == wanted);
}

fn ask(proxy: &Proxy) -> Connection {
    proxy.write(GET)
}

fn assert_refused(mut client: Connection) {
    let reply = client.read();
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply:?}");
    assert!(reply.body.contains("the upstream has as many requests"), "{reply:?}");
}

/// The time-out of the queue is an hour: a request that waited would fail the test.
#[test]
fn a_request_over_the_limit_gets_503_at_once_and_does_not_reach_the_upstream() {
    let (holding, proxy) = Proxy::held("--inflight 2 --timeout queue=1h");
    let mut held = [(); 2].map(|()| (ask(&proxy), holding.next()));
    for _ in 0..ROUNDS {
        assert_refused(ask(&proxy));
    }
    assert!(holding.try_next().is_none());
    assert_eq!(proxy.sum("tollgate_inflight", ""), 2.0);
    assert_eq!(proxy.sum("tollgate_inflight_limit", ""), 2.0);
    assert_eq!(proxy.sum("tollgate_inflight_refused_total", ""), ROUNDS as f64);
    proxy.assert_counts(&[("requests_under_way", 2), ("upstreams_full", ROUNDS as u64)]);
    let (client, at_upstream) = &mut held[0];
    at_upstream.write(LAST);
    assert_eq!(client.read().body, "ok");
    await_in_flight(&proxy, "", 1.0);
    let (_third, _at_upstream) = (ask(&proxy), holding.next());
    await_in_flight(&proxy, "", 2.0);
}

#[test]
fn a_place_is_held_from_the_head_of_a_response_to_the_end_of_its_body() {
    let (holding, proxy) = Proxy::held("--inflight 1");
    for _ in 0..ROUNDS {
        let (mut client, mut at_upstream) = (ask(&proxy), holding.next());
        at_upstream.write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbo");
        assert_eq!(client.head().status, 200);
        assert_refused(ask(&proxy));
        at_upstream.write("dy");
        await_in_flight(&proxy, "", 0.0);
    }
}

#[test]
fn a_place_comes_back_from_a_client_that_leaves() {
    let (holding, proxy) = Proxy::held("--inflight 1");
    for head in ["", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbo"].repeat(ROUNDS / 2)
    {
        let (mut client, mut at_upstream) = (ask(&proxy), holding.next());
        at_upstream.write(head);
        if !head.is_empty() {
            assert_eq!(client.head().status, 200);
        }
        assert_eq!(proxy.sum("tollgate_inflight", ""), 1.0);
        drop(client);
        at_upstream.rest();
        await_in_flight(&proxy, "", 0.0);
    }
    // A client that left before the head of the response has given up its request.
    let left = proxy.sum("tollgate_inflight_outcomes_total", "\"given_up\"");
    assert_eq!((left, outcomes(&proxy)), (ROUNDS as f64 / 2.0, [ROUNDS as f64 / 2.0, 0.0, 0.0]));
    assert_eq!(proxy.sum("tollgate_inflight_admitted_total", ""), ROUNDS as f64);
}

/// The path of a socket may have characters that the text of a label escapes, and more of them than
/// the name of a layer.
#[test]
fn the_metrics_have_the_whole_name_of_an_upstream() {
    let path = format!("/{}/\"a\\b\"", "missing".repeat(9));
    let upstream = format!("unix:{path}");
    let proxy = Proxy::over(&upstream, "--inflight 3");
    assert_eq!(ask(&proxy).read().status, 502);
    let name = upstream.replace('\\', "\\\\").replace('"', "\\\"");
    assert_eq!(proxy.sum("tollgate_inflight_limit", &format!("name=\"{name}\"")), 3.0);
    assert_eq!(proxy.sum("tollgate_inflight_outcomes_total", "\"overloaded\""), 1.0);
}

#[test]
fn a_place_comes_back_from_an_upstream_that_fails() {
    let proxy = Proxy::over(&moody().0, "--inflight 1 --timeout response_head=20s");
    for _ in 0..ROUNDS {
        assert_eq!(proxy.get("/broken").status, 502);
        await_in_flight(&proxy, "", 0.0);
        let mut client = proxy.write("GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
        client.rest();
        await_in_flight(&proxy, "", 0.0);
    }
    let proxy = Proxy::over(&refusing(), "--inflight 1");
    for _ in 0..ROUNDS {
        assert_eq!(proxy.get("/").status, 502);
        await_in_flight(&proxy, "", 0.0);
    }
}

#[test]
fn a_websocket_holds_no_place() {
    let proxy = Proxy::over(&upgrading(), "--inflight 1");
    let open = [(); 3].map(|()| websocket(&proxy));
    proxy.await_under_way(3);
    assert_eq!(proxy.sum("tollgate_inflight", ""), 0.0);
    assert_eq!(ask(&proxy).read().status, 200);
    drop(open);
}

/// Each upstream has a limit of its own, and a request goes to one that has a place.
#[test]
fn an_upstream_that_stands_still_does_not_close_the_others() {
    let holding = Upstream::holding();
    let answering = Upstream::answering(OK);
    let proxy = Proxy::over_all(&[&holding.url(), &answering.url()], "--inflight 1");
    let (mut client, mut at_upstream) = (ask(&proxy), holding.next());
    for _ in 0..ROUNDS {
        assert_eq!(ask(&proxy).read().body, "ok");
        await_in_flight(&proxy, &answering.url(), 0.0);
    }
    assert_eq!(answering.count(), ROUNDS);
    assert_eq!(proxy.sum("tollgate_inflight", &holding.url()), 1.0);
    proxy.await_count("upstreams_full", 0);
    at_upstream.write(OK);
    assert_eq!(client.read().body, "ok");
}

#[test]
fn a_request_is_refused_only_if_every_upstream_is_full() {
    let both = [(); 2].map(|()| Upstream::holding());
    let proxy = Proxy::over_all(&[&both[0].url(), &both[1].url()], "--inflight 1");
    let _first = (ask(&proxy), both[0].next());
    let _second = (ask(&proxy), both[1].next());
    assert_refused(ask(&proxy));
    for holding in &both {
        assert_eq!(proxy.sum("tollgate_inflight_refused_total", &holding.url()), 1.0);
    }
    proxy.await_count("upstreams_full", 1);
}

#[test]
fn a_request_over_the_rate_takes_no_place() {
    let (holding, proxy) = Proxy::held("--limit 1/h --inflight 1");
    let _held = (ask(&proxy), holding.next());
    for _ in 0..ROUNDS {
        assert_eq!(ask(&proxy).read().status, 429);
    }
    assert_eq!(proxy.sum("tollgate_inflight_refused_total", ""), 0.0);
    assert_eq!(proxy.sum("tollgate_inflight", ""), 1.0);
}

/// Each route has its share of the limit, and each refusal is counted by its priority.
#[test]
fn a_route_of_a_low_priority_is_refused_first() {
    let holding = Upstream::holding();
    let routes = ["sheddable", "background", "default"].map(|name| {
        format!("[[route]]\nprefix = \"/{name}\"\nlimit = \"1000000/s\"\npriority = \"{name}\"\n")
    });
    let folder = Folder::new();
    let config = folder.write("tollgate.toml", routes.concat());
    let proxy = Proxy::over(&holding.url(), &format!("--inflight 8 --config {config}"));
    let ask = |path: &str| proxy.write(&format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let mut held = Vec::new();
    // Shares of 8: a half, three quarters, 230/256, all.
    for (path, share) in [("background", 4), ("sheddable", 6), ("default/below", 7), ("other", 8)] {
        while held.len() < share {
            held.push((ask(path), holding.next()));
        }
        assert_refused(ask(path));
    }
    assert_refused(ask("background"));
    for (priority, refused) in [("background", 2.0), ("sheddable", 1.0), ("default", 1.0), ("critical", 1.0)]
    {
        let part = format!("priority=\"{priority}\"");
        assert_eq!(proxy.sum("tollgate_inflight_refused_total", &part), refused, "{priority}");
    }
    assert!(holding.try_next().is_none());
}

/// Returns the attempts of each outcome: answered, overloaded, failed.
fn outcomes(proxy: &Proxy) -> [f64; 3] {
    ["answered", "overloaded", "failed"]
        .map(|outcome| proxy.sum("tollgate_inflight_outcomes_total", &format!("=\"{outcome}\"")))
}

/// The upstream lacks capacity if it refuses, does not accept or does not answer, or says so.
#[test]
fn a_lack_of_capacity_is_told_from_other_faults_over_real_sockets() {
    let answer = |response: &'static str| Upstream::answering(response).url();
    let silent = Upstream::holding();
    let closing = serve(|mut connection| drop(connection.request()));
    let cutting = serve(|mut connection| {
        if connection.request().is_some() {
            connection.write("HTTP/1.1 200 OK\r\nConte");
        }
    });
    let deaf = deaf();
    let (none, one) = ([0.0; 3], |at: usize| std::array::from_fn(|other| f64::from(u8::from(other == at))));
    let unavailable = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    let error = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
    for (name, url, status, wanted) in [
        ("answers", answer(OK), 200, one(0)),
        ("refuses connections", refusing(), 502, one(1)),
        ("accepts no connection", deaf.url.clone(), 504, one(1)),
        ("answers nothing", silent.url(), 504, one(1)),
        ("says that it lacks capacity", answer(unavailable), 503, one(1)),
        ("says another fault", answer(error), 500, one(2)),
        // A request without effect is sent again, over another connection.
        ("closes the connection", closing, 502, [0.0, 0.0, 2.0]),
        ("cuts the head", cutting, 502, [0.0, 0.0, 2.0]),
    ] {
        let times = "--timeout connect=300ms --timeout response_head=300ms";
        let proxy = Proxy::over(&url, &format!("--inflight 1 {times}"));
        assert_eq!(outcomes(&proxy), none, "{name}");
        assert_eq!(ask(&proxy).read().status, status, "{name}");
        assert_eq!(outcomes(&proxy), wanted, "{name}");
        await_in_flight(&proxy, "", 0.0);
    }
}

/// Overloaded attempts are slow samples, so the limit falls to its floor. Fast failures are none:
/// as many of them leave it.
#[test]
fn a_limit_falls_while_the_upstream_refuses_connections_and_not_while_it_fails() {
    let [refused, failed] = [refusing(), serve(|mut connection| drop(connection.request()))]
        .map(|url| Proxy::over(&url, "--inflight 100 --target 50ms"));
    until("a fall of the limit", || {
        assert_eq!([&refused, &failed].map(|proxy| ask(proxy).read().status), [502; 2]);
        refused.sum("tollgate_inflight_limit", "") <= 1.0
    });
    assert_eq!(failed.sum("tollgate_inflight_limit", ""), 20.0);
    assert!(outcomes(&failed)[2] >= outcomes(&refused)[1], "each of them failed");
}

/// The answers are slower than the target, so the limit falls below its first value, 20. Without
/// requests that are refused or a limit that is used it does not rise.
#[test]
fn a_limit_with_a_target_follows_the_answers() {
    let late = serve(|mut connection| {
        connection.request();
        sleep(Duration::from_millis(30));
        connection.write(LAST);
    });
    let proxy = Proxy::over(&late, "--limit none --inflight 100 --target 10ms");
    assert_eq!(proxy.sum("tollgate_inflight_limit", ""), 20.0);
    assert_eq!(proxy.sum("tollgate_inflight_target_seconds", ""), 0.01);
    let mut client = proxy.connect();
    until("a fall of the limit", || {
        assert_eq!(client.get("/").status, 200);
        proxy.sum("tollgate_inflight_changes_total", "fell") > 0.0
    });
    assert!(proxy.sum("tollgate_inflight_limit", "") < 20.0);
    let event = proxy.event().to_string();
    for part in [
        "\"asked\":0.01",
        "\"ceiling\":100",
        "\"peak\":",
        "\"refused\":{\"background\":0,\"critical\":0,",
        "\"slow\":",
    ] {
        assert!(event.contains(part), "{part} is missing in {event}");
    }
}

//! Places of requests under way. Requests wait for them, and give them back at any kind of end.

use std::thread;
use std::time::{Duration, Instant};

use super::upstreams::{moody, upgrading, websocket};
use crate::support::frames::INITIAL_WINDOW;
use crate::support::{Connection, Frames, GET, OK, Proxy, UPGRADE};

#[test]
fn a_busy_key_gets_429_and_a_busy_proxy_503_each_after_its_time_in_the_queue() {
    let options = "--in-flight 4 --in-flight-per-key 2 --timeout queue=300ms --trust-proxy 127.0.0.1";
    let (holding, proxy) = Proxy::held(options);
    let ask = |key: u8| {
        proxy.write(&format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.{key}\r\n\r\n"))
    };
    let hold = |key| (ask(key), holding.next());
    let refused = |key, status, line| {
        let begin = Instant::now();
        let reply = ask(key).read();
        assert_eq!((reply.status, reply.header("retry-after")), (status, Some("1")), "{reply:?}");
        assert!(reply.body.contains(line) && begin.elapsed() >= Duration::from_millis(300), "{reply:?}");
    };
    let _first = [1, 1].map(hold);
    refused(1, 429, "a client may have 2 at a time");
    let second = [2, 3].map(hold);
    refused(4, 503, "too many requests are under way");
    proxy.assert_counts(&[
        ("in_flight_per_key_timeouts", 1),
        ("in_flight_timeouts", 1),
        ("requests_under_way", 4),
    ]);
    // A request that waits gets the place that is given back.
    let mut client = ask(4);
    drop(second);
    let mut held = holding.next();
    held.write(OK);
    assert_eq!(client.read().body, "ok");
}

/// The bound on the queue of a key is the bound on its connections, however many requests come on
/// each.
#[test]
fn a_key_with_a_full_queue_gets_429_at_once() {
    let (holding, proxy) = Proxy::held("--in-flight 1 --connections-per-address 3 --timeout queue=1h");
    let mut client = Frames::connect(proxy.address, &[]);
    client.get(1, "/");
    let held = holding.next();
    (3..43).step_by(2).for_each(|stream| client.get(stream, "/"));
    // One request has a place, and three wait.
    assert_eq!(client.statuses(17), [429; 17]);
    drop(held);
}

/// Ten clients of one address misbehave in one way each time. Another address is served meanwhile,
/// and never waits.
#[test]
fn one_address_cannot_take_all_places() {
    for (kind, request) in [
        ("unanswered", "GET /silent HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("unread", "GET /endless HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("upload that stops", "POST /silent HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nabc"),
        ("upload after the response", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nabc"),
        (
            "100-continue",
            "POST /silent HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 8\r\n\r\n",
        ),
        ("body of a GET", "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
        ("pipelined", "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /silent HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("WebSocket", UPGRADE),
        ("HTTP/2", ""),
    ] {
        let upstream = if kind == "WebSocket" { upgrading() } else { moody().0 };
        let proxy = Proxy::over(&upstream, "--in-flight 4 --in-flight-per-key 2 --timeout queue=2s");
        let hostile: Vec<(Connection, Option<Frames>)> = (0..10)
            .map(|_| {
                let client = proxy.write(request);
                let http2 = (kind == "HTTP/2").then(|| {
                    let mut client = Frames::connect(proxy.address, &[(INITIAL_WINDOW, 0)]);
                    (1..20).step_by(2).for_each(|stream| client.get(stream, "/endless"));
                    client
                });
                (client, http2)
            })
            .collect();
        // The key has all requests under way that it may have.
        proxy.await_under_way(2);
        for _ in 0..10 {
            let mut client = proxy.connect_from([127, 0, 0, 2]);
            let reply = client.send(GET);
            assert_eq!(reply.status, 200, "{kind}: {reply:?}");
        }
        drop(hostile);
        proxy.await_under_way(0);
    }
}

/// Opens uploads of one byte at a time, each under a made-up key, until the proxy has `under_way`
/// requests.
fn trickle(proxy: &Proxy, from: u8, uploads: usize, under_way: u64) -> Vec<Connection> {
    let open = |key| {
        let head = format!("POST /silent HTTP/1.1\r\nHost: a\r\nX-Key: {}\r\n", key % 5);
        proxy.write_from([127, 0, 0, from], &(head + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n"))
    };
    let clients = (0..uploads).map(open).collect();
    proxy.await_under_way(under_way);
    clients
}

/// Neither the requests that hold a place nor those that wait for one have a bound on their time.
const TRICKLED: &str = "--in-flight 40 --in-flight-per-key 10 --timeout queue=1h --timeout request_body=1h";

#[test]
fn made_up_keys_take_the_places_of_one_address() {
    let proxy = Proxy::over(&moody().0, &format!("{TRICKLED} --key header:x-key"));
    let _hostile = trickle(&proxy, 1, 50, 10);
    for _ in 0..10 {
        assert_eq!(proxy.connect_from([127, 0, 0, 2]).send(GET).status, 200);
    }
    proxy.await_under_way(10);
}

#[test]
fn a_few_addresses_leave_places_to_another() {
    for key in ["peer", "header:x-key"] {
        let proxy = Proxy::over(&moody().0, &format!("{TRICKLED} --key {key}"));
        let all_of_each = [10, 20, 27, 32, 35];
        let hostile: Vec<_> =
            (1..).zip(all_of_each).map(|(from, all)| trickle(&proxy, from, 10, all)).collect();
        for _ in 0..10 {
            assert_eq!(proxy.connect_from([127, 0, 0, 9]).send(GET).status, 200, "{key}");
        }
        proxy.await_under_way(35);
        drop(hostile);
    }
}

/// A place of the address is not enough: a key that many addresses share has a bound as well.
#[test]
fn a_key_of_many_addresses_has_its_places_besides() {
    let options = "--in-flight 40 --in-flight-per-key 2 --key header:x-key --timeout queue=100ms";
    let (holding, proxy) = Proxy::held(options);
    let ask = |from, key: &str| {
        proxy.write_from([127, 0, 0, from], &format!("GET / HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\n\r\n"))
    };
    let _held = [1, 2].map(|from| (ask(from, "a"), holding.next()));
    assert_eq!(ask(3, "a").read().status, 429);
    let (_client, _held_too) = (ask(3, "b"), holding.next());
    proxy.assert_counts(&[("in_flight_per_key_timeouts", 1), ("requests_under_way", 3)]);
}

/// The options for two places. There are more rounds than places that could be lost without notice.
const OPTIONS: &str = "--in-flight 2 --timeout queue=10s";
const ROUNDS: usize = 50;

/// Checks that no place is taken, and that a request is served.
fn assert_whole(proxy: &Proxy, path: &str) {
    proxy.await_under_way(0);
    assert_eq!(proxy.get(path).status, 200);
}

#[test]
fn a_place_comes_back_after_a_response() {
    let (_, proxy) = Proxy::answered(OPTIONS);
    for _ in 0..ROUNDS {
        assert_eq!(proxy.connect().send(GET).status, 200);
        assert_eq!(
            proxy.connect().send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").status,
            200
        );
        let mut client = Frames::connect(proxy.address, &[]);
        client.get(1, "/");
        assert_eq!(client.response(1).0, 200);
    }
    assert_whole(&proxy, "/");
}

#[test]
fn a_place_comes_back_from_a_client_that_leaves_in_the_middle_of_a_response() {
    let proxy = Proxy::over(&moody().0, OPTIONS);
    for _ in 0..ROUNDS {
        let mut client = proxy.write("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head().status, 200);
        drop(client);
        let mut client = Frames::connect(proxy.address, &[]);
        client.open_window(0, 1 << 20);
        client.get(1, "/endless");
        client.part(1, 1_000);
        client.reset(1);
        client.get(3, "/endless");
        client.part(3, 1_000);
    }
    assert_whole(&proxy, "/");
}

/// The client leaves after a whole request, or in the middle of an upload.
#[test]
fn a_place_comes_back_from_a_client_that_leaves_before_a_response() {
    let (holding, proxy) = Proxy::held(OPTIONS);
    for _ in 0..ROUNDS {
        for request in [GET, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nabc"] {
            let client = proxy.write(request);
            let held = holding.next();
            drop(client);
            held.rest();
        }
        let mut client = Frames::connect(proxy.address, &[]);
        client.get(1, "/");
        client.post(3);
        client.data(3, 0, b"abc");
        let held = [(); 2].map(|()| holding.next());
        client.reset(1);
        client.reset(3);
        held.into_iter().for_each(|held| drop(held.rest()));
        client.post(5);
        let held = holding.next();
        drop(client);
        held.rest();
    }
    proxy.await_under_way(0);
}

#[test]
fn a_client_that_leaves_while_it_waits_takes_no_place() {
    let (holding, proxy) = Proxy::held(OPTIONS);
    let held = [(); 2].map(|()| {
        let client = proxy.write(GET);
        (client, holding.next())
    });
    let mut waiting: Vec<Connection> = (0..ROUNDS).map(|_| proxy.write(GET)).collect();
    let mut http2 = Frames::connect(proxy.address, &[]);
    (1..100).step_by(2).for_each(|stream| http2.get(stream, "/"));
    let series = "tollgate_decisions_total{policy=\"default\",result=\"granted\"}";
    proxy.await_metric(series, 2 + 2 * ROUNDS as u64);
    waiting.clear();
    (1..100).step_by(2).for_each(|stream| http2.reset(stream));
    http2.ping();
    for (mut client, mut held) in held {
        held.write(OK);
        assert_eq!(client.read().body, "ok");
    }
    // No connection is made for a client that has left, so these requests are next.
    for _ in 0..4 {
        let mut client = proxy.write("GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut held = holding.next();
        while held.head.start != "GET /next HTTP/1.1" {
            held = holding.next();
        }
        held.write(OK);
        assert_eq!(client.read().body, "ok");
    }
    proxy.await_under_way(0);
}

#[test]
fn a_place_comes_back_from_an_upstream_that_fails() {
    let proxy = Proxy::over(&moody().0, OPTIONS);
    for _ in 0..ROUNDS {
        assert_eq!(proxy.get("/broken").status, 502);
        let mut client = proxy.write("GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
        if let Some(head) = client.try_head() {
            assert_eq!((head.status, client.rest()), (200, b"abc".to_vec()));
        }
        let mut client = Frames::connect(proxy.address, &[]);
        client.get(1, "/cut");
        assert_eq!(client.response(1).0, 0);
    }
    assert_whole(&proxy, "/");
}

#[test]
fn a_place_comes_back_after_the_end_of_a_websocket() {
    let proxy = Proxy::over(&upgrading(), OPTIONS);
    for _ in 0..ROUNDS {
        drop(websocket(&proxy));
    }
    assert_whole(&proxy, "/");
}

/// Each client requests a response, reads at most its head, and leaves.
#[test]
fn a_place_comes_back_from_each_of_many_clients_at_a_time() {
    let proxy = Proxy::over(&moody().0, OPTIONS);
    thread::scope(|scope| {
        for number in 0..8 {
            let address = proxy.address;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let path = ["/", "/broken", "/cut", "/endless", "/silent"][(number + round) % 5];
                    let mut client = Connection::connect(address);
                    client.write(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
                    if path != "/silent" {
                        let head = client.try_head();
                        assert!(head.is_some() || path == "/cut", "no response to {path}");
                    }
                }
            });
        }
    });
    assert_whole(&proxy, "/");
}

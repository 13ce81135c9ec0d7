//! Places of requests under way. Requests wait for them, and give them back at any kind of end.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use super::http2::{Http2, INITIAL_WINDOW};
use super::process::{Client, Message, Proxy, upstream};
use super::watched::{
    GET, Holding, OK, UPGRADE, answering, assert_counts, await_count, connect_from, over, rest, upgrading,
    websocket,
};

#[test]
fn a_busy_key_gets_429_and_a_busy_proxy_503_each_after_its_time_in_the_queue() {
    let holding = Holding::start();
    let options = "--in-flight 4 --in-flight-per-key 2 --timeout queue=300ms --trust-proxy 127.0.0.1";
    let proxy = over(holding.address, options);
    let ask = |key: u8| {
        let mut client = proxy.connect();
        client.write(&format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.{key}\r\n\r\n"));
        client
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
    assert_counts(
        &proxy,
        &[("in_flight_per_key_timeouts", 1), ("in_flight_timeouts", 1), ("requests_under_way", 4)],
    );
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
    let holding = Holding::start();
    let proxy = over(holding.address, "--in-flight 1 --connections-per-address 3 --timeout queue=1h");
    let mut client = Http2::connect(&proxy, &[]);
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
        let upstream = if kind == "WebSocket" { upgrading() } else { moody() };
        let proxy = over(upstream, "--in-flight 4 --in-flight-per-key 2 --timeout queue=2s");
        let hostile: Vec<(Client, Option<Http2>)> = (0..10)
            .map(|_| {
                let mut client = proxy.connect();
                client.write(request);
                let http2 = (kind == "HTTP/2").then(|| {
                    let mut client = Http2::connect(&proxy, &[(INITIAL_WINDOW, 0)]);
                    (1..20).step_by(2).for_each(|stream| client.get(stream, "/endless"));
                    client
                });
                (client, http2)
            })
            .collect();
        // The key has all requests under way that it may have.
        await_count(&proxy, "requests_under_way", 2);
        for _ in 0..10 {
            let mut client = connect_from([127, 0, 0, 2], proxy.address);
            let reply = client.send(GET);
            assert_eq!(reply.status, 200, "{kind}: {reply:?}");
        }
        drop(hostile);
        await_count(&proxy, "requests_under_way", 0);
    }
}

/// Opens uploads of one byte at a time, each under a made-up key, until the proxy has `under_way`
/// requests.
fn trickle(proxy: &Proxy, from: u8, uploads: usize, under_way: u64) -> Vec<Client> {
    let open = |key| {
        let mut client = connect_from([127, 0, 0, from], proxy.address);
        client.write(&format!("POST /silent HTTP/1.1\r\nHost: a\r\nX-Key: {}\r\n", key % 5));
        client.write("Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
        client
    };
    let clients = (0..uploads).map(open).collect();
    await_count(proxy, "requests_under_way", under_way);
    clients
}

/// Neither the requests that hold a place nor those that wait for one have a bound on their time.
const TRICKLED: &str = "--in-flight 40 --in-flight-per-key 10 --timeout queue=1h --timeout request_body=1h";

#[test]
fn made_up_keys_take_the_places_of_one_address() {
    let proxy = over(moody(), &format!("{TRICKLED} --key header:x-key"));
    let _hostile = trickle(&proxy, 1, 50, 10);
    for _ in 0..10 {
        let mut client = connect_from([127, 0, 0, 2], proxy.address);
        assert_eq!(client.send(GET).status, 200);
    }
    await_count(&proxy, "requests_under_way", 10);
}

#[test]
fn a_few_addresses_leave_places_to_another() {
    for key in ["peer", "header:x-key"] {
        let proxy = over(moody(), &format!("{TRICKLED} --key {key}"));
        let all_of_each = [10, 20, 27, 32, 35];
        let hostile: Vec<_> =
            (1..).zip(all_of_each).map(|(from, all)| trickle(&proxy, from, 10, all)).collect();
        for _ in 0..10 {
            let mut client = connect_from([127, 0, 0, 9], proxy.address);
            assert_eq!(client.send(GET).status, 200, "{key}");
        }
        await_count(&proxy, "requests_under_way", 35);
        drop(hostile);
    }
}

/// A place of the address is not enough: a key that many addresses share has a bound as well.
#[test]
fn a_key_of_many_addresses_has_its_places_besides() {
    let holding = Holding::start();
    let options = "--in-flight 40 --in-flight-per-key 2 --key header:x-key --timeout queue=100ms";
    let proxy = over(holding.address, options);
    let ask = |from, key: &str| {
        let mut client = connect_from([127, 0, 0, from], proxy.address);
        client.write(&format!("GET / HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\n\r\n"));
        client
    };
    let _held = [1, 2].map(|from| (ask(from, "a"), holding.next()));
    assert_eq!(ask(3, "a").read().status, 429);
    let (_client, _held_too) = (ask(3, "b"), holding.next());
    assert_counts(&proxy, &[("in_flight_per_key_timeouts", 1), ("requests_under_way", 3)]);
}

/// The options for two places. There are more rounds than places that could be lost without notice.
const OPTIONS: &str = "--in-flight 2 --timeout queue=10s";
const ROUNDS: usize = 50;

/// Checks that no place is taken, and that a request is served.
fn assert_whole(proxy: &Proxy, path: &str) {
    await_count(proxy, "requests_under_way", 0);
    assert_eq!(proxy.connect().get(path).status, 200);
}

#[test]
fn a_place_comes_back_after_a_response() {
    let proxy = over(answering().0, OPTIONS);
    for _ in 0..ROUNDS {
        assert_eq!(proxy.connect().send(GET).status, 200);
        assert_eq!(
            proxy.connect().send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").status,
            200
        );
        let mut client = Http2::connect(&proxy, &[]);
        client.get(1, "/");
        assert_eq!(client.response(1).0, 200);
    }
    assert_whole(&proxy, "/");
}

/// Starts an upstream that answers `/` with 200, and misbehaves for the paths below.
///
/// It breaks off a response to `/broken`, answers nothing to `/silent`, and never ends the response
/// to `/endless`. It breaks off the body of `/cut`. Then the proxy's response may also break off,
/// or have no head if all of it arrived at once.
fn moody() -> std::net::SocketAddr {
    upstream(|mut connection| {
        while let Some(head) = Message::read_head(&mut connection) {
            let mut stream = connection.get_ref();
            match head.start.split(' ').nth(1).expect("a path") {
                "/broken" => {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConte");
                    return;
                }
                "/cut" => {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nabc");
                    return;
                }
                "/endless" => {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n");
                    while stream.write_all(&[b'x'; 65_536]).is_ok() {}
                    return;
                }
                "/silent" => drop(io::copy(&mut connection, &mut io::sink())),
                _ => drop(stream.write_all(OK.as_bytes())),
            }
        }
    })
}

#[test]
fn a_place_comes_back_from_a_client_that_leaves_in_the_middle_of_a_response() {
    let proxy = over(moody(), OPTIONS);
    for _ in 0..ROUNDS {
        let mut client = proxy.connect();
        client.write("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(Message::read_head(&mut client.0).expect("a response").status, 200);
        drop(client);
        let mut client = Http2::connect(&proxy, &[]);
        client.open_window(0, 1 << 20);
        client.get(1, "/endless");
        client.part(1, 1_000);
        client.reset(1);
        client.get(3, "/endless");
        client.part(3, 1_000);
    }
    assert_whole(&proxy, "/");
}

#[test]
fn a_place_comes_back_from_a_client_that_leaves_in_the_middle_of_an_upload() {
    let holding = Holding::start();
    let proxy = over(holding.address, OPTIONS);
    for _ in 0..ROUNDS {
        let mut client = proxy.connect();
        client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nabc");
        let held = holding.next();
        drop(client);
        held.rest();
        let mut client = Http2::connect(&proxy, &[]);
        client.post(1);
        client.data(1, 0, b"abc");
        let held = holding.next();
        client.reset(1);
        held.rest();
        client.post(3);
        let held = holding.next();
        drop(client);
        held.rest();
    }
    await_count(&proxy, "requests_under_way", 0);
}

#[test]
fn a_place_comes_back_from_a_client_that_leaves_before_a_response() {
    let holding = Holding::start();
    let proxy = over(holding.address, OPTIONS);
    for _ in 0..ROUNDS {
        let mut client = proxy.connect();
        client.write(GET);
        let held = holding.next();
        drop(client);
        held.rest();
        let mut client = Http2::connect(&proxy, &[]);
        client.get(1, "/");
        let held = holding.next();
        client.reset(1);
        held.rest();
    }
    await_count(&proxy, "requests_under_way", 0);
}

#[test]
fn a_client_that_leaves_while_it_waits_takes_no_place() {
    let holding = Holding::start();
    let proxy = over(holding.address, OPTIONS);
    let held = [(); 2].map(|()| {
        let mut client = proxy.connect();
        client.write(GET);
        (client, holding.next())
    });
    let mut waiting: Vec<Client> = (0..ROUNDS)
        .map(|_| {
            let mut client = proxy.connect();
            client.write(GET);
            client
        })
        .collect();
    let mut http2 = Http2::connect(&proxy, &[]);
    (1..100).step_by(2).for_each(|stream| http2.get(stream, "/"));
    decided(&proxy, 2 + 2 * ROUNDS as u64);
    waiting.clear();
    (1..100).step_by(2).for_each(|stream| http2.reset(stream));
    http2.ping();
    for (mut client, mut held) in held {
        held.write(OK);
        assert_eq!(client.read().body, "ok");
    }
    // No connection is made for a client that has left, so these requests are next.
    for _ in 0..4 {
        let mut client = proxy.connect();
        client.write("GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut held = holding.next();
        while held.head.start != "GET /next HTTP/1.1" {
            held = holding.next();
        }
        held.write(OK);
        assert_eq!(client.read().body, "ok");
    }
    await_count(&proxy, "requests_under_way", 0);
}

/// Waits until the given number of requests have passed the limit.
fn decided(proxy: &Proxy, count: u64) {
    let line = format!("\ntollgate_decisions_total{{policy=\"default\",result=\"granted\"}} {count}\n");
    let begin = Instant::now();
    while !proxy.ask_admin("GET", "/metrics", "").body.contains(&line) {
        assert!(begin.elapsed() < super::PATIENCE, "no {line:?}");
    }
}

#[test]
fn a_place_comes_back_from_an_upstream_that_fails() {
    let proxy = over(moody(), OPTIONS);
    for _ in 0..ROUNDS {
        assert_eq!(proxy.connect().get("/broken").status, 502);
        let mut client = proxy.connect();
        client.write("GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
        if let Some(head) = Message::read_head(&mut client.0) {
            assert_eq!((head.status, rest(&mut client)), (200, b"abc".to_vec()));
        }
        let mut client = Http2::connect(&proxy, &[]);
        client.get(1, "/cut");
        assert_eq!(client.response(1).0, 0);
    }
    assert_whole(&proxy, "/");
}

#[test]
fn a_place_comes_back_after_the_end_of_a_websocket() {
    let proxy = over(upgrading(), OPTIONS);
    for _ in 0..ROUNDS {
        drop(websocket(&proxy));
    }
    assert_whole(&proxy, "/");
}

/// Each client requests a response, reads at most its head, and leaves.
#[test]
fn a_place_comes_back_from_each_of_many_clients_at_a_time() {
    let proxy = over(moody(), OPTIONS);
    thread::scope(|scope| {
        for number in 0..8 {
            let address = proxy.address;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let path = ["/", "/broken", "/cut", "/endless", "/silent"][(number + round) % 5];
                    let mut client = Client::connect(address);
                    client.write(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
                    if path != "/silent" {
                        let head = Message::read_head(&mut client.0);
                        assert!(head.is_some() || path == "/cut", "no response to {path}");
                    }
                }
            });
        }
    });
    assert_whole(&proxy, "/");
}

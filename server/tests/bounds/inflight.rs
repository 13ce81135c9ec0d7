//! The limit on the requests in flight to each upstream.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

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
    // A client that left before the head of the response has given up its request.
    let left = metric(&proxy, "tollgate_inflight_outcomes_total", "\"given_up\"");
    assert_eq!((left, outcomes(&proxy)), (ROUNDS as f64 / 2.0, [ROUNDS as f64 / 2.0, 0.0, 0.0]));
    assert_eq!(metric(&proxy, "tollgate_inflight_admitted_total", ""), ROUNDS as f64);
}

/// The path of a socket may have characters that the text of a label escapes, and more of them than
/// the name of a layer.
#[test]
fn the_metrics_have_the_whole_name_of_an_upstream() {
    let path = format!("/{}/\"a\\b\"", "missing".repeat(9));
    let upstream = format!("unix:{path}");
    let options = ["--limit", NO_LIMIT, "--inflight", "3", "--admin", "127.0.0.1:0", "--upstream", &upstream];
    let proxy = Proxy::start(&options);
    assert_eq!(ask(&proxy).read().status, 502);
    let name = upstream.replace('\\', "\\\\").replace('"', "\\\"");
    assert_eq!(metric(&proxy, "tollgate_inflight_limit", &format!("name=\"{name}\"")), 3.0);
    assert_eq!(metric(&proxy, "tollgate_inflight_outcomes_total", "\"overloaded\""), 1.0);
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

/// Each route has its share of the limit, and each refusal is counted by its priority.
#[test]
fn a_route_of_a_low_priority_is_refused_first() {
    let holding = Holding::start();
    let routes = ["sheddable", "background", "default"].map(|name| {
        format!("[[route]]\nprefix = \"/{name}\"\nlimit = \"1000000/s\"\npriority = \"{name}\"\n")
    });
    let file = std::env::temp_dir().join(format!("bounds-priorities-{}", std::process::id()));
    std::fs::write(&file, routes.concat()).expect("it can be written");
    let config = file.to_str().expect("the name is ASCII");
    let proxy = over(holding.address, &format!("--inflight 8 --config {config}"));
    std::fs::remove_file(&file).expect("it is there");
    let ask = |path: &str| {
        let mut client = proxy.connect();
        client.write(&format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client
    };
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
        assert_eq!(metric(&proxy, "tollgate_inflight_refused_total", &part), refused, "{priority}");
    }
    assert!(holding.try_next().is_none());
}

/// Returns the attempts of each outcome: answered, overloaded, failed.
fn outcomes(proxy: &Proxy) -> [f64; 3] {
    ["answered", "overloaded", "failed"]
        .map(|outcome| metric(proxy, "tollgate_inflight_outcomes_total", &format!("=\"{outcome}\"")))
}

/// Returns an upstream that accepts no connection, with the connections that fill its backlog.
fn deaf() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let listener = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        socket.listen(1).expect("it is bound").into_std().expect("it is registered")
    });
    let address = listener.local_addr().expect("it is bound");
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok();
    let backlog: Vec<_> = (0..16).map_while(connect).collect();
    assert!(backlog.len() < 16, "the backlog is full");
    (address, listener, backlog)
}

/// The upstream lacks capacity if it refuses, does not accept or does not answer, or says so.
#[test]
fn a_lack_of_capacity_is_told_from_other_faults_over_real_sockets() {
    let answer = |response: &'static str| recording_upstream(response).0;
    let silent = Holding::start();
    let closing = upstream(|mut connection| drop(Message::read_head(&mut connection)));
    let cutting = upstream(|mut connection| {
        if Message::read_head(&mut connection).is_some() {
            write(&connection, "HTTP/1.1 200 OK\r\nConte");
        }
    });
    let (deaf, _listener, _backlog) = deaf();
    let (none, one) = ([0.0; 3], |at: usize| std::array::from_fn(|other| f64::from(u8::from(other == at))));
    let unavailable = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    let error = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
    for (name, address, status, wanted) in [
        ("answers", answer(OK), 200, one(0)),
        ("refuses connections", refusing(), 502, one(1)),
        ("accepts no connection", deaf, 504, one(1)),
        ("answers nothing", silent.address, 504, one(1)),
        ("says that it lacks capacity", answer(unavailable), 503, one(1)),
        ("says another fault", answer(error), 500, one(2)),
        // A request without effect is sent again, over another connection.
        ("closes the connection", closing, 502, [0.0, 0.0, 2.0]),
        ("cuts the head", cutting, 502, [0.0, 0.0, 2.0]),
    ] {
        let proxy = over(address, "--inflight 1 --timeout connect=300ms --timeout response_head=300ms");
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
    let failing = upstream(|mut connection| drop(Message::read_head(&mut connection)));
    let options = "--inflight 100 --target 50ms";
    let (refused, failed) = (over(refusing(), options), over(failing, options));
    let begin = Instant::now();
    while metric(&refused, "tollgate_inflight_limit", "") > 1.0 {
        assert!(begin.elapsed() < PATIENCE, "the limit does not fall");
        assert_eq!(ask(&refused).read().status, 502);
        assert_eq!(ask(&failed).read().status, 502);
    }
    assert_eq!(metric(&failed, "tollgate_inflight_limit", ""), 20.0);
    assert!(outcomes(&failed)[2] >= outcomes(&refused)[1], "each of them failed");
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

/// Returns the first event of the page.
fn event(proxy: &Proxy) -> String {
    let mut client = proxy.admin();
    client.write(&format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.admin));
    assert_eq!(Message::read_head(&mut client.0).expect("a head").status, 200);
    super::process::read_chunk(&mut client.0)
}

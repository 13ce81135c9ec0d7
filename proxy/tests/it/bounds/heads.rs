//! Heads of requests: the bounds on their time and their size, and their memory.

use std::fs;
use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use crate::support::frames::{PING, PREFACE, SETTINGS, frame};
use crate::support::{Connection, Frames, GET, Proxy, until};

const TIME: Duration = Duration::from_millis(400);
const TIME_OUT: &str = "--timeout request_head=400ms";

#[test]
fn a_connection_without_a_whole_head_is_closed_and_counted() {
    let (_, proxy) = Proxy::answered(TIME_OUT);
    let begin = Instant::now();
    let beginnings = ["", "G", "GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n", "PRI * HT"];
    let clients = beginnings.map(|beginning| proxy.write(beginning));
    let silent = Frames::connect(proxy.address, &[]);
    for (mut client, beginning) in clients.into_iter().zip(beginnings) {
        assert_eq!(client.rest(), b"", "{beginning:?}");
    }
    silent.end();
    assert!(begin.elapsed() >= TIME);
    proxy.assert_counts(&[("request_head_timeouts", beginnings.len() as u64 + 1)]);
}

#[test]
fn a_connection_that_asks_nothing_more_is_closed() {
    let (_, proxy) = Proxy::answered("--timeout keep_alive=400ms");
    let mut client = proxy.connect();
    assert_eq!(client.send(GET).status, 200);
    let begin = Instant::now();
    assert!(client.is_closed());
    assert!(begin.elapsed() >= TIME * 9 / 10, "{:?}", begin.elapsed());

    let mut client = Frames::connect(proxy.address, &[]);
    client.get(1, "/");
    assert_eq!(client.response(1), (200, b"ok".to_vec()));
    let begin = Instant::now();
    client.end();
    assert!(begin.elapsed() >= TIME * 9 / 10, "{:?}", begin.elapsed());
    proxy.assert_counts(&[("request_head_timeouts", 2)]);
}

/// A load balancer in front keeps connections for longer than a head may take.
#[test]
fn a_connection_between_two_requests_has_a_time_of_its_own() {
    let (_, proxy) = Proxy::answered(TIME_OUT);
    let mut client = proxy.connect();
    for _ in 0..2 {
        assert_eq!(client.send(GET).status, 200);
        client.quiet(TIME * 2);
    }
    // A head that begins then has its own time.
    client.write("GET / HTTP/1.1\r\n");
    assert!(client.is_closed());
    proxy.assert_counts(&[("request_head_timeouts", 1)]);
}

/// Writes the bytes at a pace, over and over, until the proxy closes the connection.
fn drip(mut client: Connection, bytes: &[u8]) {
    client.stream.set_read_timeout(Some(TIME / 10)).expect("not zero");
    // It reads each answer, and then waits: more pings at once would be a flood.
    let ends = |client: &mut Connection| loop {
        match Read::read(client, &mut [0; 1024]) {
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
            Ok(0) => return true,
            Ok(_) => (),
        }
    };
    until("closed", || client.try_write(bytes).is_err() || ends(&mut client));
}

#[test]
fn a_head_that_comes_byte_by_byte_has_the_same_time() {
    let (_, proxy) = Proxy::answered(TIME_OUT);
    let begin = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
    drip(proxy.write(begin), b"x");
    // The head of a later request has the same time.
    let mut client = proxy.connect();
    assert_eq!(client.send(GET).status, 200);
    client.write(begin);
    drip(client, b"x");
    // Empty lines may come before a request.
    drip(proxy.connect(), b"\r\n");
    // These frames request nothing.
    let mut client = proxy.write(PREFACE);
    client.try_write(frame(SETTINGS, 0, 0, b"")).expect("the proxy reads");
    drip(client, &frame(PING, 0, 0, &[0; 8]));
    proxy.assert_counts(&[("request_head_timeouts", 4)]);
}

#[test]
fn a_head_is_at_most_48_kb_and_100_fields() {
    let (_, proxy) = Proxy::answered("");
    let head = |target: usize, field: usize, fields: usize| {
        let (target, field) = ("t".repeat(target), "f".repeat(field));
        let fields = "F: f\r\n".repeat(fields);
        format!("GET /{target} HTTP/1.1\r\nHost: a\r\nX: {field}\r\n{fields}\r\n")
    };
    for (target, field, fields, statuses) in [
        (0, 45_000, 0, [200, 200]),
        (45_000, 0, 0, [200, 200]),
        (0, 0, 98, [200, 200]),
        (0, 70_000, 0, [431, 431]),
        (0, 10_000_000, 0, [431, 431]),
        (70_000, 0, 0, [414, 431]),
        (10_000_000, 0, 0, [414, 431]),
        (0, 0, 99, [431, 431]),
        (0, 0, 5_000, [431, 431]),
    ] {
        let mut client = proxy.connect();
        // The proxy may close before all bytes are written.
        let _ = client.try_write(head(target, field, fields));
        let status = client.read().status;
        assert!(statuses.contains(&status), "{target}, {field}, {fields}: {status}");
        assert!(status == 200 || client.is_closed());
    }
    proxy.assert_counts(&[("request_heads_too_large", 6)]);
}

#[test]
fn a_head_over_http2_has_the_same_bound() {
    let (_, proxy) = Proxy::answered("");
    let mut client = Frames::connect(proxy.address, &[]);
    let long = "x".repeat(10_000);
    let fields = ["x-1", "x-2", "x-3", "x-4", "x-5"].map(|name| (name, &*long));
    for (stream, count, status) in [(1, 4, 200), (3, 5, 431), (5, 0, 200)] {
        client.ask(stream, &fields[..count]);
        assert_eq!(client.response(stream).0, status);
    }
}

/// Returns a number of `/proc/PID/status`, in KB, of the proxy with this name in `Via`.
fn memory(via: &str, name: &str) -> u64 {
    let processes = fs::read_dir("/proc").expect("it is Linux").filter_map(Result::ok);
    let is_it =
        |command: Vec<u8>| command.split(|byte| *byte == 0).any(|argument| argument == via.as_bytes());
    let mut of_proxy = processes.filter(|process| fs::read(process.path().join("cmdline")).is_ok_and(is_it));
    let status = of_proxy.next().map(|process| fs::read_to_string(process.path().join("status")));
    let status = status.expect("the proxy runs").expect("it is ours");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("it is there").trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Waits until the proxy has read all bytes that were sent to it.
fn until_all_is_read(proxy: &Proxy) {
    let port = format!(":{:04X}", proxy.address.port());
    until("all read", || {
        let table = fs::read_to_string("/proc/net/tcp").expect("it is Linux");
        table.lines().skip(1).all(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_there = fields[1].ends_with(&port) || fields[2].ends_with(&port);
            // State 10 is a listener.
            !is_there || fields[3] == "0A" || fields[4] == "00000000:00000000"
        })
    });
}

#[test]
fn unfinished_heads_of_500_connections_take_less_than_100_mb() {
    let (_, proxy) = Proxy::answered("--connections-per-address 500 --via heads-in-memory");
    let before = memory("heads-in-memory", "VmRSS");
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(45_000));
    let clients: Vec<Connection> = (0..500).map(|_| proxy.write(&head)).collect();
    until_all_is_read(&proxy);
    let (now, most) = (memory("heads-in-memory", "VmRSS"), memory("heads-in-memory", "VmHWM"));
    assert!(now - before > 500 * 45, "{now} KB after {before} KB: the heads are not there");
    assert!(most < 100_000, "{most} KB");
    for mut client in clients {
        assert_eq!(client.send("\r\n\r\n").status, 200);
    }
    proxy.assert_counts(&[]);
}

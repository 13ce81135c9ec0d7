//! Responses that stop, and clients that do not read their responses.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::upstreams::moody;
use crate::support::frames::{INITIAL_WINDOW, WINDOW_UPDATE, frame};
use crate::support::{Frames, GET, PATIENCE, Proxy, until};

const TIME: Duration = Duration::from_millis(300);

#[test]
fn a_response_that_stops_is_cut() {
    let (holding, proxy) = Proxy::held("--timeout response_body=300ms --in-flight 1 --timeout queue=10s");
    for (head, part, cut) in [
        ("Content-Length: 8", "abc", "abc"),
        ("Transfer-Encoding: chunked", "3\r\nabc\r\n", "3\r\nabc\r\n"),
        // The body ends with the connection, so the client needs chunks to see a cut.
        ("Connection: close", "abc", "3\r\nabc\r\n"),
    ] {
        let mut client = proxy.write(GET);
        let mut held = holding.next();
        held.write(&format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{part}"));
        let begin = Instant::now();
        assert_eq!(client.head().status, 200);
        assert_eq!(String::from_utf8(client.rest()).as_deref(), Ok(cut));
        assert!(begin.elapsed() >= TIME * 9 / 10);
        held.rest();
    }
    let mut client = Frames::connect(proxy.address, &[]);
    client.get(1, "/");
    let mut held = holding.next();
    held.write("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nabc");
    assert_eq!(client.response(1).0, 0, "the stream is reset");
    held.rest();
    proxy.assert_counts(&[("response_body_timeouts", 4)]);
}

#[test]
fn a_response_that_the_upstream_breaks_off_is_cut() {
    let (holding, proxy) = Proxy::held("");
    for (head, part, cut) in [
        ("Content-Length: 8", "abc", "abc"),
        ("Transfer-Encoding: chunked", "3\r\nabc\r\n", "3\r\nabc\r\n"),
        ("Transfer-Encoding: chunked", "3\r\nabc\r\nzz\r\n", "3\r\nabc\r\n"),
    ] {
        let mut client = proxy.write(GET);
        let mut held = holding.next();
        held.write(&format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{part}"));
        assert_eq!(client.head().status, 200);
        drop(held);
        assert_eq!(String::from_utf8(client.rest()).as_deref(), Ok(cut));
    }
    proxy.assert_counts(&[("response_bodies_broken", 3)]);
}

#[test]
fn a_slow_and_steady_response_is_not_cut() {
    let times = "--timeout response_body=2s --timeout request_head=2s --timeout slow_reader=2s";
    let (holding, proxy) = Proxy::held(times);
    let mut client = proxy.write(GET);
    let mut held = holding.next();
    let mut http2 = Frames::connect(proxy.address, &[]);
    http2.get(1, "/");
    let mut other = holding.next();
    for held in [&mut held, &mut other] {
        held.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    }
    assert_eq!(client.head().status, 200);
    for length in 1..=8 {
        client.quiet(Duration::from_millis(300));
        held.write("3\r\nabc\r\n");
        other.write("3\r\nabc\r\n");
        assert_eq!(client.chunk(), "abc");
        http2.part(1, 3 * length);
    }
    held.write("0\r\n\r\n");
    other.write("0\r\n\r\n");
    assert_eq!(client.chunk(), "");
    assert_eq!(http2.response(1).1.len(), 24);
    proxy.assert_counts(&[]);
}

/// A request for a response that never ends.
const ENDLESS: &str = "GET /endless HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let (upstream, closed) = moody();
    let proxy = Proxy::over(&upstream, "--timeout slow_reader=400ms --in-flight 1 --timeout queue=10s");
    let mut client = proxy.write(ENDLESS);
    assert_eq!(closed.recv_timeout(PATIENCE), Ok(()));
    proxy.assert_counts(&[("slow_readers", 1)]);
    // The rest of the response is lost.
    let _ = client.rest();
    assert_eq!(proxy.get("/2").body, "xx");
    // The same holds for a window of HTTP/2 that is larger than all buffers.
    let mut client = Frames::connect(proxy.address, &[(INITIAL_WINDOW, 0x7fff_ffff)]);
    client.open_window(0, 0x7fff_0000);
    client.get(1, "/endless");
    assert_eq!(closed.recv_timeout(PATIENCE), Ok(()));
    proxy.assert_counts(&[("slow_readers", 2)]);
    assert_eq!(proxy.get("/2").body, "xx");
}

/// The system would keep the bytes that such a client does not read, after the proxy has closed the
/// connection. It would keep them for minutes, as long as the client acknowledges its probes.
#[test]
fn a_client_that_does_not_read_leaves_no_bytes_behind() {
    let (upstream, closed) = moody();
    let proxy = Proxy::over(&upstream, "--timeout slow_reader=400ms");
    let client = proxy.write(ENDLESS);
    let port = |address: SocketAddr| format!("0100007F:{:04X} ", address.port());
    let ends = port(proxy.address) + &port(client.stream.local_addr().expect("connected"));
    assert_eq!(closed.recv_timeout(PATIENCE), Ok(()));
    until("gone", || !std::fs::read_to_string("/proc/net/tcp").expect("a list").contains(&ends));
}

#[test]
fn a_client_that_opens_no_window_is_disconnected() {
    let (upstream, _closed) = moody();
    let proxy = Proxy::over(&upstream, "--timeout slow_reader=400ms --in-flight 1 --timeout queue=10s");
    let mut slow = 0;
    for (window, path) in
        [(0, "/endless"), (0, "/2"), (1_000, "/endless"), (1_000, "/1002"), (1_000, "/5000")]
    {
        let mut client = Frames::connect(proxy.address, &[(INITIAL_WINDOW, window)]);
        client.get(1, path);
        let begin = Instant::now();
        client.end();
        assert!(begin.elapsed() >= TIME, "{window}, {path}");
        slow += 1;
        proxy.assert_counts(&[("slow_readers", slow)]);
        assert_eq!(proxy.get("/2").body, "xx", "{window}, {path}");
    }
    // The window of the connection is closed here, and that of the stream is open.
    let mut client = Frames::connect(proxy.address, &[(INITIAL_WINDOW, 1 << 20)]);
    client.get(1, "/100000");
    client.end();
    proxy.assert_counts(&[("slow_readers", slow + 1)]);
}

/// Other requests of the connection do not make up for a response that the client does not take.
#[test]
fn a_response_that_waits_in_the_proxy_has_a_place() {
    let (upstream, _closed) = moody();
    let proxy = Proxy::over(&upstream, "--timeout slow_reader=10s --in-flight 2 --timeout queue=300ms");
    let mut client = Frames::connect(proxy.address, &[(INITIAL_WINDOW, 1_000)]);
    for stream in [1, 3] {
        client.get(stream, "/5000");
        client.part(stream, 1_000);
    }
    client.get(5, "/2");
    assert_eq!(client.response(5).0, 429);
    // The client takes the rest.
    for stream in [1, 3] {
        client.open_window(stream, 10_000);
        assert_eq!(client.response(stream).1.len(), 5_000);
    }
    client.get(7, "/2");
    assert_eq!(client.response(7), (200, b"xx".to_vec()));
    proxy.assert_counts(&[("in_flight_per_key_timeouts", 1)]);
}

/// While the client takes another response, it has six times as long for this one, and no more.
#[test]
fn a_client_that_takes_another_response_is_disconnected_all_the_same() {
    let (upstream, closed) = moody();
    let proxy = Proxy::over(&upstream, "--timeout slow_reader=200ms");
    let mut client = Frames::connect(proxy.address, &[(INITIAL_WINDOW, 1_000)]);
    client.get(1, "/5000");
    client.get(3, "/endless");
    let begin = Instant::now();
    let window = |stream| frame(WINDOW_UPDATE, 0, stream, &10_000_u32.to_be_bytes());
    while client.try_write(&[window(0), window(3)].concat()).is_ok() && client.read_for(TIME / 10) {
        assert!(begin.elapsed() < PATIENCE, "the connection stays open");
    }
    assert!(begin.elapsed() >= Duration::from_millis(6 * 200), "{:?}", begin.elapsed());
    assert_eq!(closed.recv_timeout(PATIENCE), Ok(()));
    proxy.assert_counts(&[("slow_readers", 1)]);
}

/// Several responses take turns, so each is slow.
#[test]
fn a_client_that_takes_large_responses_slowly_is_served() {
    let (upstream, _closed) = moody();
    let proxy = Proxy::over(&upstream, "--timeout slow_reader=1500ms");
    let mut client = Frames::connect(proxy.address, &[(INITIAL_WINDOW, 1 << 30)]);
    let streams = || (1..80).step_by(2);
    for stream in streams() {
        client.get(stream, "/34000");
    }
    // The window of the connection is the bottleneck: 40 turns take 2.6 s, and may take 9.
    let mut opened = 65_535;
    while opened < 40 * 34_000 {
        client.open_window(0, 16_384);
        opened += 16_384;
        assert!(client.read_for(Duration::from_millis(64)), "the connection stays open");
    }
    for stream in streams() {
        assert_eq!(client.response(stream).1.len(), 34_000);
    }
    proxy.assert_counts(&[]);
}

#[test]
fn a_client_that_leaves_ends_the_response_at_the_upstream() {
    let (upstream, closed) = moody();
    let proxy = Proxy::over(&upstream, "--in-flight 1 --timeout queue=10s");
    let mut client = proxy.write(ENDLESS);
    client.exactly(1_000);
    drop(client);
    assert_eq!(closed.recv_timeout(PATIENCE), Ok(()));
    let mut client = Frames::connect(proxy.address, &[]);
    client.get(1, "/endless");
    client.part(1, 1_000);
    client.reset(1);
    assert_eq!(closed.recv_timeout(PATIENCE), Ok(()));
    proxy.await_under_way(0);
}

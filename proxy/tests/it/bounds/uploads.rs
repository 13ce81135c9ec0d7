//! Bodies of requests that stop, break off or are malformed. Upstreams that do not take or answer
//! them.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use super::upstreams::moody;
use crate::support::frames::END_STREAM;
use crate::support::{Connection, Frames, GET, OK, Proxy, deaf};

const TIME: Duration = Duration::from_millis(300);
const TIME_OUT: &str = "--timeout request_body=300ms --in-flight 1 --timeout queue=10s";

const LENGTH: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n";
const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
const GET_CHUNKED: &str = "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn a_body_that_stops_is_a_408_and_the_upstream_connection_ends() {
    let (holding, proxy) = Proxy::held(TIME_OUT);
    for part in [
        format!("{LENGTH}abc"),
        LENGTH.to_owned(),
        format!("{CHUNKED}3\r\nabc\r\n"),
        CHUNKED.to_owned(),
        // A client that sends nothing after a 100.
        LENGTH.replace("Content", "Expect: 100-continue\r\nContent"),
    ] {
        let mut client = proxy.connect();
        let begin = Instant::now();
        client.write(&part);
        let held = holding.next();
        let reply = client.read();
        assert_eq!((reply.status, reply.header("connection")), (408, Some("close")), "{part:?}");
        assert!(begin.elapsed() >= TIME);
        assert_eq!(client.rest(), b"");
        let seen = String::from_utf8(held.rest()).expect("text");
        assert!(!seen.ends_with("0\r\n\r\n") && seen.len() < 8 + 5, "a whole body: {seen:?}");
    }
    let mut client = Frames::connect(proxy.address, &[]);
    client.post(1);
    client.data(1, 0, b"abc");
    let held = holding.next();
    assert_eq!(client.response(1).0, 408);
    held.rest();
    // With a method that rarely has a body, the proxy reads the body before it asks the upstream.
    assert_eq!(proxy.write(&format!("{GET_CHUNKED}3\r\nabc\r\n")).read().status, 408);
    assert!(holding.try_next().is_none());
    proxy.assert_counts(&[("request_body_timeouts", 7)]);
}

/// The body takes longer than each of the time-outs, but no pause does.
#[test]
fn a_slow_and_steady_body_is_not_cut() {
    let times =
        "--least-rate none --timeout request_body=2s --timeout response_head=2s --timeout request_head=2s";
    let (holding, proxy) = Proxy::held(times);
    let mut http2 = Frames::connect(proxy.address, &[]);
    http2.post(1);
    let mut other = holding.next();
    let mut client = proxy.write(LENGTH);
    let mut held = holding.next();
    for byte in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        client.quiet(Duration::from_millis(300));
        client.write(byte);
        http2.data(1, if byte == "h" { END_STREAM } else { 0 }, byte.as_bytes());
    }
    assert_eq!(held.exactly(8), b"abcdefgh");
    held.write(OK);
    assert_eq!(client.read().body, "ok");
    assert_eq!(other.exactly(8 * 6 + 5).len(), 53, "8 chunks of a byte and the last one");
    other.write(OK);
    assert_eq!(http2.response(1), (200, b"ok".to_vec()));
    proxy.assert_counts(&[]);
}

/// No pause is longer than the time-out, but the bytes do not make up for the pauses.
#[test]
fn a_body_of_a_few_bytes_at_a_time_is_a_408() {
    let (holding, proxy) = Proxy::held("--least-rate 50 --timeout request_body=1s");
    let mut client = proxy.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    let held = holding.next();
    let stream = client.stream.try_clone().expect("it is open");
    // A byte makes up for a tenth of the pause behind it.
    let trickling = thread::spawn(move || {
        while (&stream).write_all(b"a").is_ok() {
            thread::sleep(TIME * 2 / 3);
        }
    });
    assert_eq!(client.read().status, 408);
    drop(client);
    held.rest();
    trickling.join().expect("it does not panic");
    proxy.assert_counts(&[("request_body_timeouts", 1)]);
}

/// The upload of a client that never pauses, and the response of an upstream that never pauses.
#[test]
fn a_body_without_an_end_is_cut_after_its_whole_time() {
    let proxy = Proxy::over(&moody().0, "--timeout whole_body=300ms");
    let begin = Instant::now();
    let mut client = proxy.write("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.rest().starts_with(b"HTTP/1.1 200"));
    let mut client = proxy.write("POST /silent HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n");
    let stream = client.stream.try_clone().expect("it is open");
    let writing = thread::spawn(move || while (&stream).write_all(&[b'x'; 65_536]).is_ok() {});
    assert_eq!(client.read().status, 408);
    drop(client);
    writing.join().expect("it does not panic");
    assert!(begin.elapsed() >= TIME * 2);
    proxy.assert_counts(&[("request_body_timeouts", 1), ("response_body_timeouts", 1)]);
}

fn answers(client: &mut Connection, status: u16) {
    let reply = client.read();
    assert_eq!(reply.status, status, "{reply:?}");
}

#[test]
fn an_upstream_that_never_answers_is_a_504() {
    let (holding, proxy) = Proxy::held("--timeout response_head=300ms --in-flight 1 --timeout queue=10s");
    for request in [GET.to_owned(), format!("{LENGTH}abcdefgh")] {
        let begin = Instant::now();
        let mut client = proxy.write(&request);
        let mut held = holding.next();
        // A response that has begun is not yet a response.
        held.write("HTTP/1.1 200 OK\r\nContent-");
        answers(&mut client, 504);
        assert!(begin.elapsed() >= TIME);
        held.rest();
    }
    proxy.assert_counts(&[("response_head_timeouts", 2)]);
}

/// The upstream has time as long as the client is the slow side.
#[test]
fn an_upstream_has_its_time_from_the_end_of_the_body() {
    let (holding, proxy) = Proxy::held("--timeout response_head=300ms --timeout request_body=10s");
    let mut client = proxy.write(LENGTH);
    let held = holding.next();
    for byte in ["a", "b", "c", "d"] {
        client.quiet(TIME / 3);
        client.write(byte);
    }
    // One pause is longer than the upstream's time.
    client.quiet(TIME * 2);
    let begin = Instant::now();
    client.write("efgh");
    answers(&mut client, 504);
    assert!(begin.elapsed() >= TIME);
    assert!(held.rest().ends_with(b"abcdefgh"));
    proxy.assert_counts(&[("response_head_timeouts", 1)]);
}

#[test]
fn an_upstream_that_does_not_read_the_body_is_a_504() {
    let (holding, proxy) = Proxy::held("--timeout response_head=500ms --in-flight 1 --timeout queue=10s");
    let mut client = proxy.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
    let held = holding.next();
    let stream = client.stream.try_clone().expect("it is open");
    // The thread ends when the proxy closes the connection.
    let writer = thread::spawn(move || while (&stream).write_all(&[b'x'; 65_536]).is_ok() {});
    answers(&mut client, 504);
    drop(client);
    writer.join().expect("it does not panic");
    held.rest();
    proxy.await_under_way(0);
    proxy.assert_counts(&[("response_head_timeouts", 1)]);
}

#[test]
fn an_upstream_that_does_not_accept_is_a_504() {
    let deaf = deaf();
    let options = "--timeout connect=300ms --in-flight 1 --timeout queue=10s";
    let proxy = Proxy::over(&deaf.url, options);
    for request in [GET.to_owned(), format!("{LENGTH}abcdefgh")] {
        let begin = Instant::now();
        let mut client = proxy.write(&request);
        answers(&mut client, 504);
        assert!(begin.elapsed() >= TIME);
    }
    proxy.assert_counts(&[("upstream_connect_timeouts", 2)]);
}

#[test]
fn a_malformed_body_is_a_400() {
    let (holding, proxy) = Proxy::held("--in-flight 1 --timeout queue=10s");
    let bodies = [
        "zz\r\nabc\r\n",
        "3\r\nabcdef\r\n0\r\n\r\n",
        "3\r\nabc\r\n-1\r\n",
        "ffffffffffffffffff\r\nabc\r\n",
        "3\r\nabc\r\n0\r\nno field\r\n\r\n",
    ];
    let mut broken = 0;
    for (head, body) in bodies.iter().flat_map(|body| [(CHUNKED, body), (GET_CHUNKED, body)]) {
        let mut client = proxy.write(&format!("{head}{body}"));
        answers(&mut client, 400);
        assert_eq!(client.rest(), b"");
        broken += 1;
        proxy.assert_counts(&[("request_bodies_broken", broken)]);
        // The head may have been sent by then.
        while let Some(held) = holding.try_next() {
            assert!(!held.rest().ends_with(b"0\r\n\r\n"), "a whole body of {body:?}");
        }
    }
}

#[test]
fn a_body_that_is_cut_is_a_400() {
    let (holding, proxy) = Proxy::held("--in-flight 1 --timeout queue=10s");
    let mut broken = 0;
    for request in [format!("{LENGTH}abc"), format!("{CHUNKED}3\r\nabc\r\n"), format!("{CHUNKED}3\r\nab")] {
        for goes_on_reading in [true, false] {
            let mut client = proxy.write(&request);
            let held = holding.next();
            if goes_on_reading {
                client.half_close();
                answers(&mut client, 400);
            }
            drop(client);
            assert!(!held.rest().ends_with(b"0\r\n\r\n"), "a whole body of {request:?}");
            broken += 1;
            proxy.assert_counts(&[("request_bodies_broken", broken)]);
        }
    }
    let mut client = proxy.write(&format!("{GET_CHUNKED}3\r\nabc\r\n"));
    client.half_close();
    answers(&mut client, 400);
    proxy.assert_counts(&[("request_bodies_broken", broken + 1)]);
}

/// The upstream answers at once, reads nothing more and closes nothing. Each client goes on, byte
/// by byte.
#[test]
fn a_body_that_goes_on_after_the_response_has_a_place() {
    let (holding, proxy) = Proxy::held("--in-flight 2 --timeout queue=300ms --timeout request_body=5s");
    let ask = |proxy: &Proxy| proxy.write(&LENGTH.replace('8', "1000"));
    let uploads: Vec<_> = (0..2)
        .map(|_| {
            let mut client = ask(&proxy);
            let mut held = holding.next();
            held.write(OK);
            assert_eq!(client.read().body, "ok");
            client.write("a");
            (client, held)
        })
        .collect();
    let mut http2 = Frames::connect(proxy.address, &[]);
    http2.post(1);
    assert_eq!(http2.response(1).0, 429, "both connections to the upstream are in use");
    let mut third = ask(&proxy);
    answers(&mut third, 429);
    proxy.assert_counts(&[("in_flight_per_key_timeouts", 2), ("requests_under_way", 2)]);
    // The uploads end because their clients leave.
    for (client, held) in uploads {
        drop(client);
        held.rest();
    }
    proxy.await_under_way(0);
    // An upload also ends by the time-out of a body.
    http2.post(3);
    let mut held = holding.next();
    held.write(OK);
    assert_eq!(http2.response(3), (200, b"ok".to_vec()));
    held.rest();
    proxy.await_under_way(0);
}

/// The response to a large upload may come before the end of the body. The client gets it.
#[test]
fn a_response_before_the_end_of_the_body_arrives() {
    let (holding, proxy) = Proxy::held("");
    let mut client = proxy.write(LENGTH);
    let mut held = holding.next();
    held.write("HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nlong");
    let reply = client.read();
    assert_eq!((reply.status, &*reply.body), (413, "long"));
    // The rest of the body and another request use the same connections.
    client.write("abcdefgh");
    assert_eq!(held.exactly(8), b"abcdefgh");
    client.write(GET);
    assert_eq!(held.head().start, "GET / HTTP/1.1");
    held.write(OK);
    assert_eq!(client.read().body, "ok");
}

/// An upload and its response may pass on their parts one by one, at the same time.
#[test]
fn both_bodies_may_be_on_their_way_at_a_time() {
    let (holding, proxy) = Proxy::held("");
    let mut client = proxy.write(CHUNKED);
    let mut held = holding.next();
    held.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(client.head().status, 200);
    for part in ["one", "two", "six"] {
        client.write(&format!("3\r\n{part}\r\n"));
        assert_eq!(held.exactly(8), format!("3\r\n{part}\r\n").as_bytes());
        held.write(&format!("3\r\n{part}\r\n"));
        assert_eq!(client.chunk(), part);
    }
    client.write("0\r\n\r\n");
    held.write("0\r\n\r\n");
    assert_eq!(client.chunk(), "");
}

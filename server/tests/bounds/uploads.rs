//! Bodies of requests that stop, break off or are malformed. Upstreams that do not take or answer
//! them.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use super::http2::{END_STREAM, Http2};
use super::process::{Client, Message, Proxy, read_chunk, upstream};
use super::watched::{GET, Holding, OK, assert_counts, await_count, half_close, over, quiet, rest};

const TIME: Duration = Duration::from_millis(300);
const TIME_OUT: &str = "--timeout request_body=300ms --in-flight 1 --timeout queue=10s";

const LENGTH: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n";
const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn a_body_that_stops_is_a_408_and_the_upstream_connection_ends() {
    let holding = Holding::start();
    let proxy = over(holding.address, TIME_OUT);
    for part in
        [format!("{LENGTH}abc"), LENGTH.to_owned(), format!("{CHUNKED}3\r\nabc\r\n"), CHUNKED.to_owned()]
    {
        let mut client = proxy.connect();
        let begin = Instant::now();
        client.write(&part);
        let held = holding.next();
        let reply = client.read();
        assert_eq!((reply.status, reply.header("connection")), (408, Some("close")), "{part:?}");
        assert!(begin.elapsed() >= TIME);
        assert_eq!(rest(&mut client), b"");
        let seen = String::from_utf8(held.rest()).expect("text");
        assert!(!seen.ends_with("0\r\n\r\n") && seen.len() < 8 + 5, "a whole body: {seen:?}");
    }
    let mut client = Http2::connect(&proxy, &[]);
    client.post(1);
    client.data(1, 0, b"abc");
    let held = holding.next();
    assert_eq!(client.response(1).0, 408);
    held.rest();
    assert_counts(&proxy, &[("request_body_timeouts", 5)]);
}

/// With a method that rarely has a body, the proxy reads the body before it asks the upstream.
#[test]
fn a_body_of_a_get_that_stops_is_a_408() {
    let holding = Holding::start();
    let proxy = over(holding.address, TIME_OUT);
    let mut client = proxy.connect();
    client.write("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    assert_eq!(client.read().status, 408);
    assert_counts(&proxy, &[("request_body_timeouts", 1)]);
    assert!(holding.try_next().is_none());
}

#[test]
fn a_client_that_asked_for_100_continue_and_sends_nothing_is_a_408() {
    let holding = Holding::start();
    let proxy = over(holding.address, TIME_OUT);
    let mut client = proxy.connect();
    client.write("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 8\r\n\r\n");
    let held = holding.next();
    let mut status = Message::read_head(&mut client.0).expect("a response").status;
    if status == 100 {
        status = client.read().status;
    }
    assert_eq!(status, 408);
    held.rest();
    assert_counts(&proxy, &[("request_body_timeouts", 1)]);
}

/// The body takes longer than each of the time-outs, but no pause does.
#[test]
fn a_slow_and_steady_body_is_not_cut() {
    let holding = Holding::start();
    let times = "--least-rate none --timeout request_body=1s --timeout response_head=500ms --timeout request_head=500ms";
    let proxy = over(holding.address, times);
    let mut http2 = Http2::connect(&proxy, &[]);
    http2.post(1);
    let mut other = holding.next();
    let mut client = proxy.connect();
    client.write(LENGTH);
    let mut held = holding.next();
    for byte in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        quiet(&mut client, Duration::from_millis(150));
        client.write(byte);
        http2.data(1, if byte == "h" { END_STREAM } else { 0 }, byte.as_bytes());
    }
    assert_eq!(held.read(8), b"abcdefgh");
    held.write(OK);
    assert_eq!(client.read().body, "ok");
    assert_eq!(other.read(8 * 6 + 5).len(), 53, "8 chunks of a byte and the last one");
    other.write(OK);
    assert_eq!(http2.response(1), (200, b"ok".to_vec()));
    assert_counts(&proxy, &[]);
}

/// No pause is longer than the time-out, but the bytes do not make up for the pauses.
#[test]
fn a_body_of_a_few_bytes_at_a_time_is_a_408() {
    let holding = Holding::start();
    let proxy = over(holding.address, "--least-rate 50 --timeout request_body=1s");
    let mut client = proxy.connect();
    client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    let held = holding.next();
    let stream = client.0.get_ref().try_clone().expect("it is open");
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
    assert_counts(&proxy, &[("request_body_timeouts", 1)]);
}

/// The upload of a client that never pauses, and the response of an upstream that never pauses.
#[test]
fn a_body_without_an_end_is_cut_after_its_whole_time() {
    let address = upstream(|mut connection| {
        let Some(head) = Message::read_head(&mut connection) else { return };
        let mut stream = connection.get_ref();
        if head.start.starts_with("GET") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n");
            while stream.write_all(&[b'x'; 65_536]).is_ok() {}
        }
        let _ = std::io::copy(&mut connection, &mut std::io::sink());
    });
    let proxy = over(address, "--timeout whole_body=300ms");
    let begin = Instant::now();
    let mut client = proxy.connect();
    client.write(GET);
    assert!(rest(&mut client).starts_with(b"HTTP/1.1 200"));
    let mut client = proxy.connect();
    client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n");
    let stream = client.0.get_ref().try_clone().expect("it is open");
    let writing = thread::spawn(move || while (&stream).write_all(&[b'x'; 65_536]).is_ok() {});
    assert_eq!(client.read().status, 408);
    drop(client);
    writing.join().expect("it does not panic");
    assert!(begin.elapsed() >= TIME * 2);
    assert_counts(&proxy, &[("request_body_timeouts", 1), ("response_body_timeouts", 1)]);
}

fn answers(client: &mut Client, status: u16) {
    let reply = client.read();
    assert_eq!(reply.status, status, "{reply:?}");
}

#[test]
fn an_upstream_that_never_answers_is_a_504() {
    let holding = Holding::start();
    let proxy = over(holding.address, "--timeout response_head=300ms --in-flight 1 --timeout queue=10s");
    for request in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), format!("{LENGTH}abcdefgh")] {
        let begin = Instant::now();
        let mut client = proxy.connect();
        client.write(&request);
        let mut held = holding.next();
        // A response that has begun is not yet a response.
        held.write("HTTP/1.1 200 OK\r\nContent-");
        answers(&mut client, 504);
        assert!(begin.elapsed() >= TIME);
        held.rest();
    }
    assert_counts(&proxy, &[("response_head_timeouts", 2)]);
}

/// The upstream has time as long as the client is the slow side.
#[test]
fn an_upstream_has_its_time_from_the_end_of_the_body() {
    let holding = Holding::start();
    let proxy = over(holding.address, "--timeout response_head=300ms --timeout request_body=10s");
    let mut client = proxy.connect();
    client.write(LENGTH);
    let held = holding.next();
    for byte in ["a", "b", "c", "d"] {
        quiet(&mut client, TIME / 3);
        client.write(byte);
    }
    // One pause is longer than the upstream's time.
    quiet(&mut client, TIME * 2);
    let begin = Instant::now();
    client.write("efgh");
    answers(&mut client, 504);
    assert!(begin.elapsed() >= TIME);
    assert!(held.rest().ends_with(b"abcdefgh"));
    assert_counts(&proxy, &[("response_head_timeouts", 1)]);
}

#[test]
fn an_upstream_that_does_not_read_the_body_is_a_504() {
    let holding = Holding::start();
    let proxy = over(holding.address, "--timeout response_head=500ms --in-flight 1 --timeout queue=10s");
    let mut client = proxy.connect();
    client.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
    let held = holding.next();
    let stream = client.0.get_ref().try_clone().expect("it is open");
    // The thread ends when the proxy closes the connection.
    let writer = thread::spawn(move || while (&stream).write_all(&[b'x'; 65_536]).is_ok() {});
    answers(&mut client, 504);
    drop(client);
    writer.join().expect("it does not panic");
    held.rest();
    await_count(&proxy, "requests_under_way", 0);
    assert_counts(&proxy, &[("response_head_timeouts", 1)]);
}

/// The upstream is a listener that accepts nothing. Its backlog is full.
#[test]
fn an_upstream_that_does_not_accept_is_a_504() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (_listener, _waiting, address) = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let listener = socket.listen(0).expect("it is bound");
        let address = listener.local_addr().expect("it has an address");
        let waiting = tokio::net::TcpStream::connect(address).await.expect("one may wait");
        (listener, waiting, address)
    });
    let proxy = over(address, "--timeout connect=300ms --in-flight 1 --timeout queue=10s");
    for request in [GET.to_owned(), format!("{LENGTH}abcdefgh")] {
        let begin = Instant::now();
        let mut client = proxy.connect();
        client.write(&request);
        answers(&mut client, 504);
        assert!(begin.elapsed() >= TIME);
    }
    assert_counts(&proxy, &[("upstream_connect_timeouts", 2)]);
}

const GET_CHUNKED: &str = "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn a_malformed_body_is_a_400() {
    let holding = Holding::start();
    let proxy = over(holding.address, "--in-flight 1 --timeout queue=10s");
    let bodies = [
        "zz\r\nabc\r\n",
        "3\r\nabcdef\r\n0\r\n\r\n",
        "3\r\nabc\r\n-1\r\n",
        "ffffffffffffffffff\r\nabc\r\n",
        "3\r\nabc\r\n0\r\nno field\r\n\r\n",
    ];
    let mut broken = 0;
    for (head, body) in bodies.iter().flat_map(|body| [(CHUNKED, body), (GET_CHUNKED, body)]) {
        let mut client = proxy.connect();
        client.write(&format!("{head}{body}"));
        answers(&mut client, 400);
        assert_eq!(rest(&mut client), b"");
        broken += 1;
        assert_counts(&proxy, &[("request_bodies_broken", broken)]);
        // The head may have been sent by then.
        while let Some(held) = holding.try_next() {
            assert!(!held.rest().ends_with(b"0\r\n\r\n"), "a whole body of {body:?}");
        }
    }
}

#[test]
fn a_body_that_is_cut_is_a_400() {
    let holding = Holding::start();
    let proxy = over(holding.address, "--in-flight 1 --timeout queue=10s");
    let mut broken = 0;
    for request in [format!("{LENGTH}abc"), format!("{CHUNKED}3\r\nabc\r\n"), format!("{CHUNKED}3\r\nab")] {
        for goes_on_reading in [true, false] {
            let mut client = proxy.connect();
            client.write(&request);
            let held = holding.next();
            if goes_on_reading {
                half_close(&client);
                answers(&mut client, 400);
            }
            drop(client);
            assert!(!held.rest().ends_with(b"0\r\n\r\n"), "a whole body of {request:?}");
            broken += 1;
            assert_counts(&proxy, &[("request_bodies_broken", broken)]);
        }
    }
    let mut client = proxy.connect();
    client.write(&format!("{GET_CHUNKED}3\r\nabc\r\n"));
    half_close(&client);
    answers(&mut client, 400);
    assert_counts(&proxy, &[("request_bodies_broken", broken + 1)]);
}

/// The upstream answers at once, reads nothing more and closes nothing. Each client goes on, byte
/// by byte.
#[test]
fn a_body_that_goes_on_after_the_response_has_a_place() {
    let holding = Holding::start();
    let proxy = over(holding.address, "--in-flight 2 --timeout queue=300ms --timeout request_body=5s");
    let ask = |proxy: &Proxy| {
        let mut client = proxy.connect();
        client.write(&LENGTH.replace('8', "1000"));
        client
    };
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
    let mut http2 = Http2::connect(&proxy, &[]);
    http2.post(1);
    assert_eq!(http2.response(1).0, 429, "both connections to the upstream are in use");
    let mut third = ask(&proxy);
    answers(&mut third, 429);
    assert_counts(&proxy, &[("in_flight_per_key_timeouts", 2), ("requests_under_way", 2)]);
    // The uploads end because their clients leave.
    for (client, held) in uploads {
        drop(client);
        held.rest();
    }
    await_count(&proxy, "requests_under_way", 0);
    // An upload also ends by the time-out of a body.
    http2.post(3);
    let mut held = holding.next();
    held.write(OK);
    assert_eq!(http2.response(3), (200, b"ok".to_vec()));
    held.rest();
    await_count(&proxy, "requests_under_way", 0);
}

/// The response to a large upload may come before the end of the body. The client gets it.
#[test]
fn a_response_before_the_end_of_the_body_arrives() {
    let holding = Holding::start();
    let proxy = over(holding.address, "");
    let mut client = proxy.connect();
    client.write(LENGTH);
    let mut held = holding.next();
    held.write("HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nlong");
    let reply = client.read();
    assert_eq!((reply.status, &*reply.body), (413, "long"));
    // The rest of the body and another request use the same connections.
    client.write("abcdefgh");
    assert_eq!(held.read(8), b"abcdefgh");
    client.write(GET);
    assert_eq!(Message::read_head(&mut held.connection).expect("another request").start, "GET / HTTP/1.1");
    held.write(OK);
    assert_eq!(client.read().body, "ok");
}

/// An upload and its response may pass on their parts one by one, at the same time.
#[test]
fn both_bodies_may_be_on_their_way_at_a_time() {
    let holding = Holding::start();
    let proxy = over(holding.address, "");
    let mut client = proxy.connect();
    client.write(CHUNKED);
    let mut held = holding.next();
    held.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(Message::read_head(&mut client.0).expect("a response").status, 200);
    for part in ["one", "two", "six"] {
        client.write(&format!("3\r\n{part}\r\n"));
        assert_eq!(held.read(8), format!("3\r\n{part}\r\n").as_bytes());
        held.write(&format!("3\r\n{part}\r\n"));
        assert_eq!(read_chunk(&mut client.0), part);
    }
    client.write("0\r\n\r\n");
    held.write("0\r\n\r\n");
    assert_eq!(read_chunk(&mut client.0), "");
}

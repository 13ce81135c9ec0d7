//! HTTP/2 without TLS, with prior knowledge.

use std::sync::mpsc;

use hyper::Method;

use super::process::{Message, Proxy, recording_upstream, upstream, url, write};
use super::support::{Http2, block_on, spawn};
use super::{NO_LIMIT, PATIENCE};

#[test]
fn a_request_and_its_body_pass() {
    let proxy = Proxy::start(&["--limit", NO_LIMIT]);
    let client = Http2::connect(proxy.address);
    let reply = client.get("http://a.example/path?q=1", &[]);
    assert_eq!((reply.status, &*reply.start), (200, "HTTP/2.0"));
    assert!(reply.body.starts_with("GET /path?q=1 HTTP/1.1\n"), "{reply:?}");
    for line in ["x-forwarded-host: a.example\n", "forwarded: for=127.0.0.1;proto=http;host=\"a.example\"\n"]
    {
        assert!(reply.body.contains(line), "{reply:?}");
    }
    let long = "x".repeat(200_000);
    let reply = client.send(Method::POST, "http://a.example/", &[], &long);
    assert_eq!((reply.status, reply.body == long), (200, true));
}

#[test]
fn each_stream_is_a_request_to_the_limit() {
    let proxy = Proxy::start(&["--limit", "3/h burst 3"]);
    let client = Http2::connect(proxy.address);
    let statuses = [0; 4].map(|_| client.get("http://a.example/", &[]).status);
    assert_eq!(statuses, [200, 200, 200, 429]);
    // Other connections of the address, of either version, are the same client.
    let refused = Http2::connect(proxy.address).get("http://a.example/", &[]);
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some() && refused.header("connection").is_none(), "{refused:?}");
    assert_eq!(proxy.connect().get("/").status, 429);
}

#[test]
fn a_stream_does_not_wait_for_another() {
    let (asked, is_asked) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    let upstream = upstream(move |mut connection| {
        while let Some(request) = Message::read_head(&mut connection) {
            if request.start.contains("/slow") {
                asked.send(()).expect("the test is still there");
                let may_go_on = may_go_on.lock().expect("one such request");
                may_go_on.recv_timeout(PATIENCE).expect("the other one is answered");
            }
            write(&connection, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(upstream)]);
    let client = Http2::connect(proxy.address);
    let slow = client.start(Method::GET, "http://a.example/slow", &[], "");
    let fast = client.start(Method::GET, "http://a.example/fast", &[], "");
    let slow = spawn(slow);
    is_asked.recv_timeout(PATIENCE).expect("the slow one is under way");
    assert_eq!(block_on(fast).expect("a response").status, 200);
    go_on.send(()).expect("the upstream waits");
    assert_eq!(block_on(slow).expect("no panic").expect("a response").status, 200);
}

/// A client may split the list, and HTTP/1.1 has one field line for it (RFC 9113, 8.2.3).
#[test]
fn cookies_are_one_line_to_the_upstream() {
    let (upstream, requests) = recording_upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(upstream)]);
    let client = Http2::connect(proxy.address);
    let cookies = [("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")];
    assert_eq!(client.get("http://a.example/", &cookies).status, 200);
    let request = requests.recv_timeout(PATIENCE).expect("the upstream is asked");
    assert_eq!(request.all("cookie"), ["a=1; b=2; c=3"]);
}

#[test]
fn the_host_that_was_asked_for_is_preserved() {
    let (upstream, requests) = recording_upstream("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let options = ["--limit", NO_LIMIT, "--upstream", &url(upstream), "--preserve-host"];
    let proxy = Proxy::start(&options);
    assert_eq!(Http2::connect(proxy.address).get("http://a.example:81/", &[]).status, 200);
    assert_eq!(proxy.connect().get("/").status, 200);
    for host in ["a.example:81", "a.example"] {
        let request = requests.recv_timeout(PATIENCE).expect("the upstream is asked");
        assert_eq!(request.all("host"), [host]);
    }
}

#[test]
fn there_is_no_connect() {
    let proxy = Proxy::start(&["--limit", NO_LIMIT]);
    let client = Http2::connect(proxy.address);
    assert_eq!(client.send(Method::CONNECT, "a.example:80", &[], "").status, 501);
    assert_eq!(client.get("http://a.example/", &[]).status, 200);
}

//! HTTP/2 without TLS, with prior knowledge.

use hyper::Method;

use crate::support::{Http2, OK, Proxy, block_on, get, refusing, spawn};

#[test]
fn a_request_and_its_body_pass() {
    let proxy = Proxy::start("--limit none");
    let client = Http2::connect(proxy.address);
    let reply = client.get("/path?q=1");
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
    let proxy = Proxy::start("--limit 3/h");
    let client = Http2::connect(proxy.address);
    let statuses = [0; 4].map(|_| client.get("/").status);
    assert_eq!(statuses, [200, 200, 200, 429]);
    // Other connections of the address, of either version, are the same client.
    let refused = Http2::connect(proxy.address).get("/");
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some() && refused.header("connection").is_none(), "{refused:?}");
    assert_eq!(proxy.get("/").status, 429);
}

#[test]
fn a_stream_does_not_wait_for_another() {
    let (upstream, proxy) = Proxy::held("");
    let client = Http2::connect(proxy.address);
    let slow = spawn(client.ask(get("/slow")));
    let held = upstream.next();
    let fast = spawn(client.ask(get("/fast")));
    for (stream, held) in [(fast, upstream.next()), (slow, held)] {
        held.answer(OK);
        assert_eq!(block_on(stream).expect("no panic").expect("a response").status, 200);
    }
}

/// A client may split the list, and HTTP/1.1 has one field line for it (RFC 9113, 8.2.3).
#[test]
fn cookies_are_one_line_to_the_upstream() {
    let (upstream, proxy) = Proxy::answered("");
    let client = Http2::connect(proxy.address);
    let cookies = [("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")];
    assert_eq!(client.get_with("/", &cookies).status, 200);
    let request = upstream.next();
    assert_eq!(request.all("cookie"), ["a=1; b=2; c=3"]);
}

#[test]
fn the_host_that_was_asked_for_is_preserved() {
    let (upstream, proxy) = Proxy::answered("--preserve-host");
    let client = Http2::connect(proxy.address);
    assert_eq!(client.send(Method::GET, "http://a.example:81/", &[], "").status, 200);
    assert_eq!(proxy.get("/").status, 200);
    for host in ["a.example:81", "a.example"] {
        let request = upstream.next();
        assert_eq!(request.all("host"), [host]);
    }
}

#[test]
fn there_is_no_connect() {
    let proxy = Proxy::start("--limit none");
    let client = Http2::connect(proxy.address);
    assert_eq!(client.send(Method::CONNECT, "a.example:80", &[], "").status, 501);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn an_error_of_the_proxy_is_one_of_grpc_to_a_post_alone() {
    let proxy = Proxy::over(&refusing(), "");
    let client = Http2::connect(proxy.address);
    for (method, status) in [(Method::GET, 502), (Method::HEAD, 502), (Method::PUT, 502), (Method::POST, 200)]
    {
        let kind = [("content-type", "application/grpc")];
        let reply = client.send(method.clone(), "http://a.example/", &kind, "");
        assert_eq!(reply.status, status, "{method}");
    }
}

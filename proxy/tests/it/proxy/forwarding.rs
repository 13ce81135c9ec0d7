//! The bytes that pass on to the upstream, and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::support::{OK, Proxy, Upstream, serve};

#[test]
fn headers_of_one_hop_stay_there_and_the_upstream_learns_who_asked() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nConnection: X-Hop , keep-alive\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Connection: keep-alive\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\nTrailer: X-Sum\r\n\
         Transfer-Encoding: chunked\r\nContent-Length: 99\r\nVia: 1.0 inner\r\nX-End: 2\r\n\r\n\
         2\r\nok\r\n0\r\nX-Sum: 3\r\n\r\n",
    );
    let proxy = Proxy::over(&upstream.url(), "--via edge");
    let reply = proxy.connect().send(
        "GET /p HTTP/1.1\r\nHost: shop.example:81\r\nConnection: x-hop\r\nConnection: keep-alive, X-Forwarded-For\r\n\
         X-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\nTrailer: X-Sum\r\n\
         Upgrade: websocket\r\nProxy-Authorization: Basic eA==\r\nX-Forwarded-Proto: https\r\n\
         X-Forwarded-Host: evil.example\r\nForwarded: for=\"[2001:db8::1]\"\r\nVia: 1.0 a\r\nVia: 1.1 b\r\nX-End: 2\r\n\r\n",
    );
    let request = upstream.next();

    for name in
        ["x-hop", "keep-alive", "proxy-connection", "proxy-authenticate", "upgrade", "trailer", "x-sum"]
    {
        assert_eq!(reply.all(name), [""; 0], "{name} in {reply:?}");
        assert_eq!(request.all(name), [""; 0], "{name} in {request:?}");
    }
    assert_eq!((reply.status, &*reply.body, reply.header("x-end")), (200, "ok", Some("2")));
    assert_eq!(reply.all("content-length"), [""; 0], "a lie beside a transfer coding: {reply:?}");
    assert_eq!(reply.all("via"), ["1.0 inner, 1.1 edge"]);

    assert_eq!(request.start, "GET /p HTTP/1.1");
    for name in ["connection", "proxy-authorization", "transfer-encoding", "content-length"] {
        assert_eq!(request.all(name), [""; 0], "{name} in {request:?}");
    }
    assert_eq!(request.all("x-end"), ["2"]);
    assert_eq!(request.all("host"), [upstream.address.to_string()]);
    // The client's `Connection` names these headers, so its own values are gone. The proxy's values
    // stay.
    assert_eq!(request.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(request.all("x-forwarded-proto"), ["http"]);
    assert_eq!(request.all("x-forwarded-host"), ["shop.example:81"]);
    assert_eq!(request.all("forwarded"), ["for=127.0.0.1;proto=http;host=\"shop.example:81\""]);
    assert_eq!(request.all("via"), ["1.0 a, 1.1 b, 1.1 edge"]);
}

#[test]
fn a_request_needs_one_valid_host() {
    let proxy = Proxy::start("--limit none");
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\";for=b\r\n\r\n", 400),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 501),
        ("GET / HTTP/1.0\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: me@a\r\n\r\n", 400),
        ("GET http://me:secret@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ] {
        assert_eq!(proxy.connect().send(request).status, status, "{request:?}");
    }
    // A whole URL overrides the header, and need not have a path.
    for (url, path) in
        [("http://a.example/x", "/x"), ("http://a.example?x", "/?x"), ("http://a.example", "/")]
    {
        let reply = proxy.connect().send(&format!("GET {url} HTTP/1.1\r\nHost: b\r\n\r\n"));
        assert!(reply.body.starts_with(&format!("GET {path} HTTP/1.1\n")), "{reply:?}");
        assert!(reply.body.contains("x-forwarded-host: a.example\n"), "{reply:?}");
    }
}

/// Each part arrives before the rest is sent.
#[test]
fn both_bodies_stream() {
    let (upstream, proxy) = Proxy::held("");
    let mut client = proxy.write("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut held = upstream.next();
    assert_eq!(held.head.header("transfer-encoding"), Some("chunked"));
    for (chunk, part) in [("3\r\none\r\n", "one"), ("3\r\ntwo\r\n", "two"), ("0\r\n\r\n", "")] {
        client.write(chunk);
        assert_eq!(held.chunk(), part);
    }
    held.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(client.head().status, 200);
    for (chunk, part) in [("3\r\none\r\n", "one"), ("3\r\ntwo\r\n", "two"), ("0\r\n\r\n", "")] {
        held.write(chunk);
        assert_eq!(client.chunk(), part);
    }
}

/// A body of unknown length is easily lost with a `GET`.
#[test]
fn a_chunked_body_of_a_get_arrives_whole_up_to_64_kb() {
    let proxy = Proxy::start("--limit none");
    let head = "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let reply = proxy.connect().send(&format!("{head}3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"));
    assert_eq!((reply.status, &*reply.body), (200, "onetwo"));
    let long = "x".repeat(0x10001);
    let reply = proxy.connect().send(&format!("{head}10001\r\n{long}\r\n0\r\n\r\n"));
    assert_eq!(reply.status, 413);
}

#[test]
fn connections_to_the_upstream_are_reused() {
    let connections = Arc::new(AtomicUsize::new(0));
    let opened = connections.clone();
    let upstream = serve(move |mut connection| {
        opened.fetch_add(1, Relaxed);
        while connection.request().is_some() {
            connection.write(OK);
        }
    });
    let proxy = Proxy::over(&upstream, "");
    for _ in 0..10 {
        assert_eq!(proxy.statuses("/"), [200; 10]);
    }
    // The number would be 1 if each connection returned to the pool before the next request.
    let opened = connections.load(Relaxed);
    assert!((1..50).contains(&opened), "100 requests took {opened} connections");
}

//! Refusals over a connection that is kept, whatever the client sends.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tollgate::Quota;
use tollgate_http::{Problem, Refusal};
use tollgate_pingora::Gate;
use tollgate_testing::upstream::{OK, Upstream};
use tollgate_testing::wire::{Connection, End, Message};

use crate::proxy::{by_address, connect, start};

/// A proxy that refuses all requests but those with `x-free`, and its upstream.
fn refusing(set: fn(Gate) -> Gate) -> (SocketAddr, Upstream<Message>) {
    let upstream = Upstream::answering(OK);
    let layer = by_address(Quota::BLOCKED).when(|head| !head.headers.contains_key("x-free"));
    let gate = set(Gate::new(layer.reject_as(Problem::QUOTA_EXCEEDED).build().boxed()));
    (start(gate, upstream.address), upstream)
}

/// Checks that a connection goes on: its next request reaches the upstream.
fn goes_on(client: &mut Connection, upstream: &Upstream<Message>) {
    assert_eq!(client.get_with("/after", "X-Free: 1\r\n").status, 200);
    assert_eq!(upstream.next().start, "GET /after HTTP/1.1");
    assert!(upstream.try_next().is_none());
}

#[test]
fn a_refused_connection_is_kept() {
    let (proxy, upstream) = refusing(|gate| gate);
    let mut client = connect(proxy);
    for _ in 0..3 {
        let refused = client.get("/");
        assert_eq!(refused.status, 429);
        assert!(refused.has("connection", "keep-alive"), "{refused:?}");
        assert!(refused.has("content-type", "application/problem+json"), "{refused:?}");
        assert!(refused.body.ends_with(r#""violated-policies":["default"]}"#), "{refused:?}");
    }
    goes_on(&mut client, &upstream);
}

#[test]
fn a_refused_head_has_no_body() {
    let (proxy, upstream) = refusing(|gate| gate);
    let mut client = connect(proxy);
    let length = client.get("/").body.len().to_string();
    client.write("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let Ok(Some((refused, End::Whole))) = client.reply("HEAD") else { panic!("no response") };
    assert!(refused.status == 429 && refused.has("content-length", &length), "{refused:?}");
    goes_on(&mut client, &upstream);
}

#[test]
fn the_body_of_a_refused_request_is_no_request() {
    let (proxy, upstream) = refusing(|gate| gate);
    let body = "GET /smuggled HTTP/1.1\r\nHost: a\r\nX-Free: 1\r\n\r\n".repeat(5_000);
    let length = body.len();
    for (framing, sent) in [
        (format!("Content-Length: {length}"), body.clone()),
        ("Transfer-Encoding: chunked".to_owned(), format!("{length:x}\r\n{body}\r\n0\r\n\r\n")),
        ("Content-Length: 0".to_owned(), String::new()),
    ] {
        let mut client = connect(proxy);
        let refused = client.ask(&format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        assert_eq!(refused.status, 429);
        let length = refused.header("content-length").unwrap().parse().unwrap();
        client.exactly(length);
        client.write(&sent);
        goes_on(&mut client, &upstream);
    }
}

#[test]
fn a_body_that_does_not_end_closes_the_connection() {
    let (proxy, upstream) = refusing(|gate| gate.drain(Duration::from_millis(50)));
    for framing in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
        let mut client = connect(proxy);
        let refused = client.send(&format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        assert_eq!(refused.status, 429);
        assert!(client.is_closed());
    }
    assert_eq!(upstream.count(), 0);
}

/// The next bytes of such a client may be its body, or its next request.
#[test]
fn a_client_that_waits_to_send_its_body_is_told_that_the_connection_closes() {
    let (proxy, upstream) = refusing(|gate| gate);
    let mut client = connect(proxy);
    let refused =
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n");
    assert!(refused.status == 429 && refused.has("connection", "close"), "{refused:?}");
    assert!(client.is_closed());
    assert_eq!(upstream.count(), 0);
}

#[test]
fn a_client_that_closes_or_speaks_1_0_is_told_so() {
    let (proxy, _upstream) = refusing(|gate| gate);
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a.example\r\n\r\n",
    ] {
        let mut client = connect(proxy);
        let refused = client.send(request);
        assert!(refused.status == 429 && refused.has("connection", "close"), "{refused:?}");
        assert!(client.is_closed());
    }
}

#[test]
fn a_refused_upgrade_is_a_refused_request() {
    let (proxy, upstream) = refusing(|gate| gate.drain(Duration::from_millis(50)));
    let mut client = connect(proxy);
    let refused = client.get_with("/", "Upgrade: websocket\r\nConnection: upgrade\r\n");
    assert_eq!(refused.status, 429);
    // pingora may keep the connection or not.
    if refused.has("connection", "keep-alive") && client.is_quiet(Duration::from_millis(200)) {
        goes_on(&mut client, &upstream);
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn pipelined_requests_are_decided_one_by_one() {
    let (proxy, upstream) = refusing(|gate| gate);
    let mut client = connect(proxy);
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\nX-Free: 1\r\n\r\n");
    assert_eq!([client.read().status, client.read().status], [429, 200]);
    assert_eq!(upstream.next().start, "GET /second HTTP/1.1");
    goes_on(&mut client, &upstream);
}

#[test]
fn a_client_that_leaves_is_no_matter() {
    let (proxy, upstream) = refusing(|gate| gate);
    for sent in [
        "GET / HT",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = connect(proxy);
        client.write(sent);
        drop(client);
    }
    goes_on(&mut connect(proxy), &upstream);
}

/// A response of one's own cannot break the framing.
#[test]
fn the_framing_of_a_refusal_is_the_gates() {
    let upstream = Upstream::answering(OK);
    let layer = by_address(Quota::BLOCKED).reject_with(|refusal: &Refusal<'_>| -> Response<Bytes> {
        let mut response = refusal.response(Bytes::from_static(b"abc"));
        let headers = response.headers_mut();
        headers.insert("transfer-encoding", "chunked".parse().unwrap());
        headers.insert("content-length", "70000".parse().unwrap());
        if refusal.head().uri.path() == "/empty" {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        response
    });
    let mut client = connect(start(Gate::new(layer.build().boxed()), upstream.address));
    for _ in 0..2 {
        let refused = client.get("/");
        assert_eq!((refused.status, &*refused.body), (429, "abc"));
        assert_eq!(client.get("/empty").status, 204);
    }
}

/// Sends a request over HTTP/2, and returns the response and whether its head was its end.
fn over_h2(proxy: SocketAddr, request: Request<()>) -> (Response<()>, bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy).await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let (response, mut body) = client.send_request(request, false).unwrap();
        let _ = body.send_data(Bytes::from_static(b"12345"), true);
        let (head, body) = response.await.unwrap().into_parts();
        (Response::from_parts(head, ()), body.is_end_stream())
    })
}

#[test]
fn grpc_is_refused_by_trailers_alone() {
    let (proxy, upstream) = refusing(|gate| gate);
    let request = || Request::post(format!("http://{proxy}/helloworld.Greeter/SayHello"));
    let grpc = request().header("content-type", "application/grpc").header("te", "trailers");
    let (refused, ends) = over_h2(proxy, grpc.body(()).unwrap());
    assert_eq!((refused.status().as_u16(), &refused.headers()["grpc-status"]), (200, &8.into()));
    assert!(ends, "the head of trailers alone is the end");
    assert!(!refused.headers().contains_key("transfer-encoding"));
    // Any other request has its status and its body.
    let (refused, ends) = over_h2(proxy, request().body(()).unwrap());
    assert_eq!((refused.status().as_u16(), ends), (429, false));
    let web = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc-web\r\nContent-Length: 0\r\n\r\n";
    let refused = connect(proxy).send(web);
    assert!(refused.status == 200 && refused.body.contains("grpc-status: 8\r\n"), "{refused:?}");
    assert_eq!(upstream.count(), 0);
}

//! The bound on the bytes of a request's body.

use hyper::Method;

use crate::support::{Connection, Http2, Message, OK, Proxy, Reloaded, Upstream};

fn post(client: &mut Connection, headers: &str, body: &str) -> Message {
    client.send(&format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}"))
}

#[test]
fn a_body_over_the_bound_gets_413_before_the_upstream_is_asked() {
    let (upstream, proxy) = Proxy::answered("--limit 3/h --request-body 10");
    let reply = post(&mut proxy.connect(), "Content-Length: 11\r\nExpect: 100-continue\r\n", "");
    assert_eq!((reply.status, reply.header("connection")), (413, Some("close")));
    assert_eq!(reply.body, "Content too large: the body has more bytes than it may.\n");
    assert!(upstream.try_next().is_none());
    assert_eq!(proxy.count("request_bodies_too_large"), 1);
    assert_eq!(proxy.get("/").status, 200);
    upstream.next();
    // The request has taken its token.
    let reply = post(&mut proxy.connect(), "Content-Length: 11\r\n", "");
    assert_eq!(reply.status, 413);
    assert_eq!(post(&mut proxy.connect(), "Content-Length: 11\r\n", "").status, 429);
}

#[test]
fn a_body_of_unknown_length_is_counted() {
    // It answers a request once the body is whole.
    let upstream = format!("upstream = \"{}\"\nlimit = \"none\"\n", Upstream::answering(OK).url());
    let proxy = Reloaded::start(&format!("{upstream}[bounds]\nrequest_body = 10\n"));
    let chunked = "Transfer-Encoding: chunked\r\n";
    let mut client = proxy.connect();
    assert_eq!(post(&mut client, "Content-Length: 10\r\n", "0123456789").status, 200);
    assert_eq!(post(&mut client, chunked, "a\r\n0123456789\r\n0\r\n\r\n").status, 200);
    let reply = post(&mut client, chunked, "6\r\n012345\r\n5\r\n67890\r\n0\r\n\r\n");
    assert_eq!((reply.status, reply.header("connection")), (413, Some("close")));
    let get = format!("GET / HTTP/1.1\r\nHost: a\r\n{chunked}\r\nb\r\n01234567890\r\n0\r\n\r\n");
    assert_eq!(proxy.connect().send(&get).status, 413);
    let http2 = Http2::connect(proxy.address);
    let send = |body: &str, headers: &[(&str, &str)]| {
        let reply = http2.send(Method::POST, "http://a.example/", headers, body);
        (reply.status, reply.header("grpc-status").map(str::to_owned))
    };
    assert_eq!(send("0123456789", &[]), (200, None));
    assert_eq!(send("01234567890", &[]), (413, None));
    // A client of gRPC gets a status of its own.
    let grpc = [("content-type", "application/grpc+proto")];
    assert_eq!(send("01234567890", &grpc), (200, Some("8".to_owned())));
    assert_eq!(proxy.count("request_bodies_too_large"), 4);
    // The connection of HTTP/2 has stayed, and a reload moves the bound.
    let lines = proxy.read(&format!("{upstream}[bounds]\nrequest_body = \"none\"\n"));
    assert_eq!(lines, ["bounds.request_body: none, was 10"]);
    assert_eq!(send("01234567890", &[]), (200, None));
}

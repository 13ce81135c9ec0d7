//! The bound on the bytes of a request's body.

use std::io::{BufReader, Read};
use std::net::TcpStream;

use super::NO_LIMIT;
use super::process::{Client, Message, Proxy, read_line, recording_upstream, upstream, url, write};
use super::support::{Folder, Http2, count};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const BOUND: [&str; 4] = ["--request-body", "10", "--admin", "127.0.0.1:0"];

fn post(client: &mut Client, headers: &str, body: &str) -> Message {
    client.send(&format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}"))
}

#[test]
fn a_body_over_the_bound_gets_413_before_the_upstream_is_asked() {
    let (address, requests) = recording_upstream(OK);
    let upstream = url(address);
    let proxy = Proxy::start(&[&BOUND[..], &["--limit", "3/h", "--upstream", &upstream]].concat());
    let reply = post(&mut proxy.connect(), "Content-Length: 11\r\nExpect: 100-continue\r\n", "");
    assert_eq!((reply.status, reply.header("connection")), (413, Some("close")));
    assert_eq!(reply.body, "Content too large: the body has more bytes than it may.\n");
    assert!(requests.try_recv().is_err());
    assert_eq!(count(&proxy, "request_bodies_too_large"), 1);
    assert_eq!(proxy.connect().get("/").status, 200);
    assert!(requests.recv().is_ok());
    // The request has taken its token.
    let reply = post(&mut proxy.connect(), "Content-Length: 11\r\n", "");
    assert_eq!(reply.status, 413);
    assert_eq!(post(&mut proxy.connect(), "Content-Length: 11\r\n", "").status, 429);
}

/// Answers a request once its body is whole.
fn patient(mut connection: BufReader<TcpStream>) {
    while let Some(head) = Message::read_head(&mut connection) {
        match head.header("content-length").map(|length| length.parse().expect("a number")) {
            Some(length) => {
                let mut body = vec![0; length];
                if connection.read_exact(&mut body).is_err() {
                    return;
                }
            }
            None if head.header("transfer-encoding").is_some() => loop {
                match read_line(&mut connection) {
                    Some(line) if line == "0" => break drop(read_line(&mut connection)),
                    Some(_) => {}
                    // It was broken off.
                    None => return,
                }
            },
            None => {}
        }
        write(&connection, OK);
    }
}

#[test]
fn a_body_of_unknown_length_is_counted() {
    let (folder, options) = (Folder::new(), ["--limit", NO_LIMIT, "--admin", "127.0.0.1:0"]);
    let file = folder.write("tollgate.toml", "[bounds]\nrequest_body = 10\n");
    let upstream = url(upstream(patient));
    let proxy = Proxy::start(&[&["--config", &file], &options[..], &["--upstream", &upstream]].concat());
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
        let reply = http2.send(hyper::Method::POST, "http://a.example/", headers, body);
        (reply.status, reply.header("grpc-status").map(str::to_owned))
    };
    assert_eq!(send("0123456789", &[]), (200, None));
    assert_eq!(send("01234567890", &[]), (413, None));
    // A client of gRPC gets a status of its own.
    let grpc = [("content-type", "application/grpc+proto")];
    assert_eq!(send("01234567890", &grpc), (200, Some("8".to_owned())));
    assert_eq!(count(&proxy, "request_bodies_too_large"), 4);
    // The connection of HTTP/2 has stayed, and a reload moves the bound.
    folder.write("tollgate.toml", "[bounds]\nrequest_body = \"none\"\n");
    assert_eq!(proxy.reload(), ["bounds.request_body: none, was 10"]);
    assert_eq!(send("01234567890", &[]), (200, None));
}

//! Upgrades of connections.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::process::{Message, Proxy, read_line, recording_upstream, upstream, url, write};
use super::support::{Certificate, Folder, assert_closed, await_count, await_metric};
use super::{NO_LIMIT, PATIENCE};

/// An upgrade with the key of RFC 6455, 1.3. [`SWITCHING`] has the answer to this key.
pub(super) const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, Upgrade\r\n\
     Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
pub(super) const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
     Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Starts an upstream that upgrades, says hello in the same segment, and sends each line back. It
/// sends no frames, since the proxy does not read them.
pub(super) fn echo_upstream() -> SocketAddr {
    upstream(|mut connection| {
        let request = Message::read_head(&mut connection).expect("a request");
        assert_eq!(request.header("connection").map(str::to_lowercase).as_deref(), Some("upgrade"));
        assert_eq!(request.header("upgrade"), Some("websocket"));
        write(&connection, &format!("{SWITCHING}hello\n"));
        while let Some(line) = read_line(&mut connection) {
            write(&connection, &format!("{line}\n"));
        }
        write(&connection, "bye\n");
    })
}

/// Exchanges lines over an upgraded connection.
pub(super) fn talk<T: Read + Write>(client: &mut BufReader<T>) {
    let reply = Message::read_head(client).expect("a response");
    assert_eq!((reply.status, reply.header("upgrade")), (101, Some("websocket")), "{reply:?}");
    assert_eq!(reply.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(read_line(client).as_deref(), Some("hello"));
    for line in ["early", "one", "two"] {
        if line != "early" {
            client.get_mut().write_all(format!("{line}\n").as_bytes()).expect("it is open");
        }
        assert_eq!(read_line(client).as_deref(), Some(line));
    }
}

#[test]
fn bytes_pass_both_ways_and_the_end_of_each() {
    let proxy =
        Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(echo_upstream()), "--admin", "127.0.0.1:0"]);
    let mut client = proxy.connect();
    // The first line arrives in the segment of the request, before the response.
    client.write(&format!("{UPGRADE}early\n"));
    talk(&mut client.0);
    // The client has no more to send, and the upstream has.
    client.0.get_ref().shutdown(Shutdown::Write).expect("it is open");
    assert_eq!(read_line(&mut client.0).as_deref(), Some("bye"));
    assert_closed(&mut client.0);
    await_count(&proxy, "upgrades", 1);
}

#[test]
fn a_websocket_over_tls() {
    let (folder, certificate) = (Folder::new(), Certificate::new());
    let (chain, key) = certificate.write(&folder);
    let upstream = url(echo_upstream());
    let options = ["--limit", NO_LIMIT, "--upstream", &upstream, "--tls-cert", &chain, "--tls-key", &key];
    let proxy = Proxy::start(&options);
    let mut client = certificate.connect(proxy.address).expect("the proxy has this certificate");
    client.write(&format!("{UPGRADE}early\n"));
    talk(&mut client.0);
}

#[test]
fn an_upgrade_is_one_request_to_the_limit() {
    let proxy = Proxy::start(&["--limit", "2/h burst 2", "--upstream", &url(echo_upstream())]);
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut client = proxy.connect();
        client.write(&format!("{UPGRADE}early\n"));
        talk(&mut client.0);
        open.push(client);
    }
    let refused = proxy.connect().send(UPGRADE);
    assert_eq!((refused.status, refused.header("upgrade")), (429, None));
    // The bytes of an open connection do not count either.
    for client in &mut open {
        client.write("three\n");
        assert_eq!(read_line(&mut client.0).as_deref(), Some("three"));
    }
}

#[test]
fn an_upgrade_that_the_upstream_refuses_is_a_response() {
    let (upstream, requests) =
        recording_upstream("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nX-Why: no\r\n\r\nno");
    let proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(upstream)]);
    let mut client = proxy.connect();
    for _ in 0..2 {
        let reply = client.send(UPGRADE);
        assert_eq!((reply.status, &*reply.body, reply.header("x-why")), (403, "no", Some("no")));
        let request = requests.recv_timeout(PATIENCE).expect("the upstream is asked");
        assert_eq!(request.all("sec-websocket-key"), ["dGhlIHNhbXBsZSBub25jZQ=="]);
    }
    // The connection is still one of HTTP.
    assert_eq!(client.get("/").status, 403);
}

#[test]
fn a_handshake_that_does_not_match_is_a_502() {
    for response in [
        SWITCHING.replace("s3pP", "S3PP"),
        SWITCHING.replace("websocket", "other"),
        "HTTP/1.1 101 Switching Protocols\r\n\r\n".to_owned(),
    ] {
        let upstream = upstream(move |mut connection| {
            Message::read_head(&mut connection);
            write(&connection, &response);
        });
        let proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(upstream)]);
        assert_eq!(proxy.connect().send(UPGRADE).status, 502);
    }
}

#[test]
fn another_upgrade_is_a_request_without() {
    let (upstream, requests) = recording_upstream("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(upstream)]);
    let mut client = proxy.connect();
    for headers in [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
        "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n",
        // The first request has no key. The `Connection` of the second does not name the upgrade.
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    ] {
        let reply = client.get_with("/", headers);
        assert_eq!((reply.status, &*reply.body), (200, "ok"), "{headers}");
        let request = requests.recv_timeout(PATIENCE).expect("the upstream is asked");
        for name in ["upgrade", "connection", "http2-settings"] {
            assert_eq!(request.all(name), [""; 0], "{headers}");
        }
    }
}

/// Checks that the connection has ended. A reset is an end as well: bytes of the client may be
/// unread.
fn assert_ended(from: &mut impl Read) {
    match from.read(&mut [0]) {
        Ok(bytes) => assert_eq!(bytes, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

/// The client sends until the proxy closes the connection, and the upstream reads and is silent.
#[test]
fn a_tunnel_of_a_silent_upstream_ends_though_its_client_sends() {
    let silent = upstream(|mut connection| {
        Message::read_head(&mut connection).expect("a request");
        write(&connection, SWITCHING);
        let _ = connection.read_to_end(&mut Vec::new());
    });
    let options = ["--limit", NO_LIMIT, "--upstream", &url(silent), "--timeout", "tunnel=100ms"];
    let proxy = Proxy::start(&options);
    let mut client = proxy.connect();
    client.write(UPGRADE);
    assert_eq!(Message::read_head(&mut client.0).expect("a response").status, 101);
    let mut sends = client.0.get_ref().try_clone().expect("there are descriptors");
    let sender = std::thread::spawn(move || while sends.write_all(b"?").is_ok() {});
    assert_ended(&mut client.0);
    drop(client);
    sender.join().expect("no panic");
}

/// A response 101 without a request for an upgrade must not open a tunnel.
#[test]
fn a_switch_without_an_upgrade_is_a_502() {
    let upstream = upstream(|mut connection| {
        Message::read_head(&mut connection);
        write(&connection, SWITCHING);
        let mut rest = String::new();
        let _ = connection.read_line(&mut rest);
    });
    let proxy = Proxy::start(&["--limit", NO_LIMIT, "--upstream", &url(upstream)]);
    let mut client = proxy.connect();
    assert_eq!(client.get("/").status, 502);
}

/// The connection of a tunnel still counts for its client.
#[test]
fn open_tunnels_count_as_connections() {
    let options =
        ["--limit", NO_LIMIT, "--upstream", &url(echo_upstream()), "--connections-per-address", "1"];
    let proxy = Proxy::start(&[&options[..], &["--admin", "127.0.0.1:0"]].concat());
    let mut client = proxy.connect();
    client.write(&format!("{UPGRADE}early\n"));
    talk(&mut client.0);
    let mut other = proxy.connect();
    let _ = other.0.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_ended(&mut other.0);
    await_count(&proxy, "connections_refused", 1);
}

/// A tunnel is a request under way, and holds a place of its client.
#[test]
fn open_tunnels_count_as_requests_under_way() {
    let options = ["--limit", NO_LIMIT, "--upstream", &url(echo_upstream()), "--in-flight-per-key", "2"];
    let proxy =
        Proxy::start(&[&options[..], &["--timeout", "queue=10ms", "--admin", "127.0.0.1:0"]].concat());
    let open = || -> BufReader<TcpStream> {
        let mut client = proxy.connect();
        client.write(&format!("{UPGRADE}early\n"));
        talk(&mut client.0);
        client.0
    };
    let first = open();
    let _second = open();
    assert_eq!(proxy.connect().send(UPGRADE).status, 429);
    await_count(&proxy, "in_flight_per_key_timeouts", 1);
    // The client leaves. Its place is free once the upstream has seen that.
    first.get_ref().shutdown(Shutdown::Both).expect("it is open");
    drop(first);
    await_metric(&proxy, "tollgate_proxy_requests_under_way 1");
    open();
}

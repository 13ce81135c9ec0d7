//! Upgrades of connections.

use std::io::{Read, Write};

use crate::support::{Certificate, Connection, Folder, Proxy, SWITCHING, UPGRADE, Upstream, serve};

/// Starts an upstream that upgrades, says hello in the same segment, and sends each line back. It
/// sends no frames, since the proxy does not read them.
pub(super) fn echo_upstream() -> String {
    serve(|mut connection| {
        let request = connection.head();
        assert_eq!(request.header("connection").map(str::to_lowercase).as_deref(), Some("upgrade"));
        assert_eq!(request.header("upgrade"), Some("websocket"));
        connection.write(&format!("{SWITCHING}hello\n"));
        while let Some(line) = connection.line() {
            connection.write(&format!("{line}\n"));
        }
        connection.write("bye\n");
    })
}

/// Exchanges lines over an upgraded connection.
pub(super) fn talk<S: Read + Write>(client: &mut Connection<S>) {
    let reply = client.head();
    assert_eq!((reply.status, reply.header("upgrade")), (101, Some("websocket")), "{reply:?}");
    assert_eq!(reply.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(client.line().as_deref(), Some("hello"));
    for line in ["early", "one", "two"] {
        if line != "early" {
            client.write(&format!("{line}\n"));
        }
        assert_eq!(client.line().as_deref(), Some(line));
    }
}

#[test]
fn bytes_pass_both_ways_and_the_end_of_each() {
    let proxy = Proxy::over(&echo_upstream(), "");
    // The first line arrives in the segment of the request, before the response.
    let mut client = proxy.write(&format!("{UPGRADE}early\n"));
    talk(&mut client);
    // The client has no more to send, and the upstream has.
    client.half_close();
    assert_eq!(client.line().as_deref(), Some("bye"));
    client.assert_closed();
    proxy.await_count("upgrades", 1);
}

#[test]
fn a_websocket_over_tls() {
    let (folder, certificate) = (Folder::new(), Certificate::new());
    let proxy = Proxy::over(&echo_upstream(), &certificate.options(&folder));
    let mut client = certificate.connect(proxy.address).expect("the proxy has this certificate");
    client.write(&format!("{UPGRADE}early\n"));
    talk(&mut client);
}

#[test]
fn an_upgrade_is_one_request_to_the_limit() {
    let proxy = Proxy::over(&echo_upstream(), "--limit 2/h");
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut client = proxy.write(&format!("{UPGRADE}early\n"));
        talk(&mut client);
        open.push(client);
    }
    let refused = proxy.connect().send(UPGRADE);
    assert_eq!((refused.status, refused.header("upgrade")), (429, None));
    // The bytes of an open connection do not count either.
    for client in &mut open {
        client.write("three\n");
        assert_eq!(client.line().as_deref(), Some("three"));
    }
}

#[test]
fn an_upgrade_that_the_upstream_refuses_is_a_response() {
    let upstream = Upstream::answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nX-Why: no\r\n\r\nno");
    let proxy = Proxy::over(&upstream.url(), "");
    let mut client = proxy.connect();
    for _ in 0..2 {
        let reply = client.send(UPGRADE);
        assert_eq!((reply.status, &*reply.body, reply.header("x-why")), (403, "no", Some("no")));
        let request = upstream.next();
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
        let upstream = serve(move |mut connection| {
            connection.head();
            connection.write(&response);
        });
        let proxy = Proxy::over(&upstream, "");
        assert_eq!(proxy.connect().send(UPGRADE).status, 502);
    }
}

#[test]
fn another_upgrade_is_a_request_without() {
    let (upstream, proxy) = Proxy::answered("");
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
        let request = upstream.next();
        for name in ["upgrade", "connection", "http2-settings"] {
            assert_eq!(request.all(name), [""; 0], "{headers}");
        }
    }
}

/// The client sends until the proxy closes the connection, and the upstream reads and is silent.
#[test]
fn a_tunnel_of_a_silent_upstream_ends_though_its_client_sends() {
    let silent = serve(|mut connection| {
        connection.head();
        connection.write(SWITCHING);
        connection.rest();
    });
    let proxy = Proxy::over(&silent, "--timeout tunnel=100ms");
    let mut client = proxy.connect();
    assert_eq!(client.ask(UPGRADE).status, 101);
    let mut sends = client.stream.try_clone().expect("there are descriptors");
    let sender = std::thread::spawn(move || while sends.write_all(b"?").is_ok() {});
    assert!(client.is_closed());
    drop(client);
    sender.join().expect("no panic");
}

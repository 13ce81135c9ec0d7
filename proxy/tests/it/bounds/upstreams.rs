//! Upstreams of these tests, and upgraded connections.

use std::io::{self, Read};
use std::sync::mpsc::{self, Receiver};

use crate::support::{Connection, OK, Proxy, SWITCHING, UPGRADE, Upstream, serve};

/// Starts an upstream that answers each request with [`OK`], and returns its URL.
pub(super) fn answering() -> String {
    Upstream::answering(OK).url()
}

/// Starts an upstream that answers `/` with [`OK`] before it reads a body, and misbehaves for other
/// paths. The channel tells when the proxy has closed the connection of an unread response.
///
/// A response to `/endless` never ends, and one to `/N` has `N` bytes. The upstream breaks off a
/// response to `/broken`, and the body of one to `/cut`. Then the proxy's response may also break
/// off, or have no head if all of it arrived at once. It answers nothing to `/silent`.
pub(super) fn moody() -> (String, Receiver<()>) {
    let (sender, closed) = mpsc::channel();
    let url = serve(move |mut connection| {
        while let Some(head) = connection.try_head() {
            let path = head.start.split(' ').nth(1).expect("a path");
            let goes_on = match path {
                "/silent" => io::copy(&mut connection, &mut io::sink()).is_err(),
                "/broken" => connection.try_write("HTTP/1.1 200 OK\r\nConte").is_err(),
                "/cut" => connection.try_write(with_length(8) + "abc").is_err(),
                "/endless" => {
                    let _ = connection.try_write(with_length(1_000_000_000_000));
                    while connection.try_write([b'x'; 65_536]).is_ok() {}
                    false
                }
                _ => match path[1..].parse() {
                    Ok(length) => connection.try_write(with_length(length) + &"x".repeat(length)).is_ok(),
                    Err(_) => connection.try_write(OK).is_ok(),
                },
            };
            if !goes_on {
                let _ = sender.send(());
                return;
            }
        }
    });
    (url, closed)
}

fn with_length(length: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")
}

/// Starts an upstream that upgrades connections, and sends each byte back. Without an upgrade it
/// answers 200.
pub(super) fn upgrading() -> String {
    serve(|mut connection| {
        while let Some(head) = connection.try_head() {
            if head.header("upgrade").is_none() {
                connection.write(OK);
                continue;
            }
            connection.write(SWITCHING);
            let mut byte = [0];
            while Read::read(&mut connection, &mut byte).is_ok_and(|read| read == 1) {
                let _ = connection.try_write(byte);
            }
            return;
        }
    })
}

/// Opens a WebSocket whose upstream has sent back a byte.
pub(super) fn websocket(proxy: &Proxy) -> Connection {
    let mut client = proxy.connect();
    assert_eq!(client.ask(UPGRADE).status, 101);
    client.write("?");
    assert_eq!(client.exactly(1), b"?");
    client
}

//! Connections that begin with a PROXY header.

use std::net::Ipv6Addr;

use crate::support::{Connection, Message, Proxy};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

pub(super) fn v1(source: &str) -> Vec<u8> {
    let family = if source.contains(':') { "TCP6" } else { "TCP4" };
    let to = if source.contains(':') { "2001:db8::ffff" } else { "192.0.2.1" };
    format!("PROXY {family} {source} {to} 4711 80\r\n").into_bytes()
}

fn v2(source: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend(source);
    header.extend([192, 0, 2, 1, 0x12, 0x67, 0, 80]);
    header
}

fn v2_of_ipv6(source: Ipv6Addr) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24".to_vec();
    header.extend(source.octets());
    header.extend([0; 16]);
    header.extend([0x12, 0x67, 0, 80]);
    header
}

const BEHIND: &str = "--limit 1/h --proxy-protocol --trust-proxy 127.0.0.1";

/// Sends a header and a request in one segment, and returns the response.
pub(super) fn ask(mut client: Connection, header: &[u8]) -> Message {
    client.try_write([header, REQUEST].concat()).expect("the proxy reads");
    client.read()
}

/// Checks that the proxy closes without an answer. A reset is one way to do so.
fn assert_refused(mut client: Connection, header: &[u8]) {
    let _ = client.try_write([header, REQUEST].concat());
    assert_eq!(client.rest(), b"");
}

#[test]
fn the_source_of_a_trusted_peer_is_the_client() {
    let proxy = Proxy::start(BEHIND);
    let six: Ipv6Addr = "2001:db8:1::1".parse().expect("an address");
    for (header, client, status) in [
        (v1("203.0.113.1"), "203.0.113.1", 200),
        // The same client, in the other version.
        (v2([203, 0, 113, 1]), "203.0.113.1", 429),
        (v2([203, 0, 113, 2]), "203.0.113.2", 200),
        (v1("203.0.113.2"), "203.0.113.2", 429),
        (v1("2001:db8:1::1"), "2001:db8:1::1", 200),
        (v2_of_ipv6(six), "2001:db8:1::1", 429),
        // The header leaves the address of the peer.
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1", 200),
    ] {
        let reply = ask(proxy.connect(), &header);
        assert_eq!(reply.status, status, "{client}: {reply:?}");
        if status == 200 {
            assert!(reply.body.contains(&format!("x-forwarded-for: {client}\n")), "{reply:?}");
            assert!(reply.body.contains(&format!("x-real-ip: {client}\n")), "{reply:?}");
        }
    }
    assert_eq!(proxy.count("proxy_header_errors"), 0);
}

/// A client behind the header is not a trusted proxy.
#[test]
fn the_claims_of_the_source_are_not_believed() {
    let proxy = Proxy::start(BEHIND);
    for (claim, status) in [("198.51.100.1", 200), ("198.51.100.2", 429)] {
        let header = [&v1("203.0.113.9")[..], b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: "].concat();
        let mut client = proxy.connect();
        client.try_write(header).expect("the proxy reads");
        let reply = client.send(&format!("{claim}\r\nX-Real-IP: {claim}\r\n\r\n"));
        assert_eq!(reply.status, status);
        if status == 200 {
            assert!(reply.body.contains("x-forwarded-for: 203.0.113.9\n"), "{reply:?}");
            assert!(!reply.body.contains(claim), "{reply:?}");
        }
    }
}

#[test]
fn a_connection_without_a_header_or_of_another_peer_is_closed_and_counted() {
    let proxy = Proxy::start(BEHIND);
    let wrong: [&[u8]; 5] = [
        b"",
        b"PROXY TCP4 203.0.113.1\r\n",
        b"PROXY TCP4 203.0.113.1 192.0.2.1 1 99999\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
        b"proxy TCP4 203.0.113.1 192.0.2.1 1 2\r\n",
    ];
    for header in wrong {
        assert_refused(proxy.connect(), header);
    }
    for header in [&v1("203.0.113.1")[..], b""] {
        assert_refused(proxy.connect_from([127, 0, 0, 2]), header);
    }
    proxy.await_count("proxy_header_errors", 7);
    // No connection took the token of the client that it named.
    assert_eq!(ask(proxy.connect(), &v1("203.0.113.1")).status, 200);
}

//! Tests of connections that are opened under settings of the proxy.

mod clients;
mod slow_readers;
mod tls;

use std::fs;
use std::io::{self, Cursor, ErrorKind};
use std::net::IpAddr;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::{TlsConnector, client};

use crate::config::settings::Settings;
use crate::counters::{Counters, Event};
use crate::serve::connections;
use tollgate_common::net::crowd::Activity;
use tollgate_common::net::io::Io;
use tollgate_common::net::open::{Door, Peer, Stream, open};
use tollgate_common::net::socket::Listener;
use tollgate_common::net::socket::Socket;
use tollgate_common::net::tls::Tls;
use tollgate_common::settings::values::Address;
use tollgate_common::testing::{Folder, certificate};

const LOAD_BALANCER: &str = "10.0.0.1";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The door of the proxy under some settings.
struct Tested {
    door: Door,
    settings: Arc<Settings>,
    counters: Arc<Counters>,
}

impl Deref for Tested {
    type Target = Door;

    fn deref(&self) -> &Door {
        &self.door
    }
}

fn door(settings: Settings, tls: Option<&Arc<Tls>>) -> Tested {
    let (settings, counters) = (Arc::new(settings), Arc::default());
    let door = connections::door(&settings, tls.cloned(), &counters, Arc::new(Activity::new()));
    Tested { door, settings, counters }
}

/// Returns settings under which every connection begins with a header, and the load balancer is
/// trusted.
fn behind_load_balancer() -> Settings {
    let trust_proxy = vec!["10.0.0.0/8".parse().unwrap()];
    Settings { proxy_protocol: true, trust_proxy, ..Settings::default() }
}

fn of_load_balancer(io: impl Io + 'static) -> Socket {
    Socket { io: Box::new(|| Ok(Box::new(io))), peer: ip(LOAD_BALANCER) }
}

/// Returns a connection that sends the two parts, each in a read of its own, and then its end.
fn sends(first: &[u8], second: &[u8]) -> Socket {
    let read = Cursor::new(first.to_vec()).chain(Cursor::new(second.to_vec()));
    of_load_balancer(tokio::io::join(read, tokio::io::sink()))
}

fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &length, rest].concat()
}

fn v2_ipv4(tlvs: &[u8]) -> Vec<u8> {
    v2(0x21, 0x11, &[&[192, 0, 2, 7, 10, 0, 0, 2, 0x30, 0x39, 0, 80], tlvs].concat())
}

fn v2_ipv6(source: &str) -> Vec<u8> {
    let IpAddr::V6(source) = ip(source) else { panic!("{source} is no address of IPv6") };
    v2(0x21, 0x21, &[&source.octets()[..], &[0; 16], &[0x30, 0x39, 0, 80]].concat())
}

/// Returns headers, each with the address that it announces.
fn headers() -> Vec<(Vec<u8>, &'static str)> {
    vec![
        (b"PROXY TCP4 192.0.2.7 10.0.0.2 12345 80\r\n".to_vec(), "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 12345 80\r\n".to_vec(), "2001:db8::7"),
        (b"PROXY TCP6 ::ffff:192.0.2.7 ::1 12345 80\r\n".to_vec(), "192.0.2.7"),
        (v2_ipv4(b""), "192.0.2.7"),
        (v2_ipv4(&[4, 0, 3, 0, 0, 0]), "192.0.2.7"),
        (v2_ipv6("2001:db8::7"), "2001:db8::7"),
        (v2_ipv6("::ffff:192.0.2.7"), "192.0.2.7"),
    ]
}

fn assert_time(elapsed: Duration, limit: Duration) {
    assert!(elapsed >= limit && elapsed < limit + Duration::from_millis(10), "{elapsed:?}");
}

/// Returns the address for the connection, and all bytes that are read from it.
async fn opened(socket: Socket, door: &Door) -> Option<(IpAddr, Vec<u8>)> {
    let (mut stream, peer) = open(socket, door).await?;
    assert_eq!(peer.connected, ip(LOAD_BALANCER));
    assert!(!peer.is_tls);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    Some((peer.address, rest))
}

#[tokio::test]
async fn a_header_is_read_whatever_the_parts_it_comes_in() {
    let door = door(behind_load_balancer(), None);
    for (header, address) in headers() {
        let bytes = [&header, REQUEST].concat();
        for at in 0..=bytes.len() {
            let (first, second) = bytes.split_at(at);
            let found = opened(sends(first, second), &door).await;
            assert_eq!(found, Some((ip(address), REQUEST.to_vec())), "{header:?} split at {at}");
        }
    }
}

#[tokio::test]
async fn a_header_is_read_byte_by_byte() {
    let door = door(behind_load_balancer(), None);
    for (header, address) in headers() {
        let (mut client, server) = duplex(1);
        let sending = async {
            client.write_all(&header).await.unwrap();
            client.write_all(REQUEST).await.unwrap();
            drop(client);
        };
        let ((), found) = tokio::join!(sending, opened(of_load_balancer(server), &door));
        assert_eq!(found, Some((ip(address), REQUEST.to_vec())), "{header:?}");
    }
}

#[tokio::test]
async fn headers_without_a_source_of_tcp_leave_the_address_of_the_connection() {
    let door = door(behind_load_balancer(), None);
    let unix = [7; 216];
    for header in [
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n".to_vec(),
        b"PROXY UNKNOWN and any words that may come, \xff\xff\r\n".to_vec(),
        v2(0x20, 0x00, b""),
        v2(0x20, 0x11, b""),
        v2(0x20, 0x11, &[192, 0, 2, 7, 10, 0, 0, 2, 0x30, 0x39, 0, 80]),
        v2(0x21, 0x00, b""),
        v2(0x21, 0x00, &[1, 2, 3]),
        v2(0x21, 0x12, &[192, 0, 2, 7, 10, 0, 0, 2, 0x30, 0x39, 0, 80]),
        v2(0x21, 0x31, &unix),
    ] {
        let found = opened(sends(&header, REQUEST), &door).await;
        assert_eq!(found, Some((ip(LOAD_BALANCER), REQUEST.to_vec())), "{header:?}");
    }
}

#[tokio::test]
async fn a_connection_without_a_proper_header_is_counted_and_closed() {
    let door = door(behind_load_balancer(), None);
    let mut refused = 0;
    for bytes in [
        REQUEST.to_vec(),
        b"POST / HTTP/1.1\r\n\r\n".to_vec(),
        b"\r\n\r\nGET / HTTP/1.1\r\n\r\n".to_vec(),
        b"proxy TCP4 192.0.2.7 10.0.0.2 12345 80\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.7 10.0.0.2 12345 80\n".to_vec(),
        b"PROXY TCP4 192.0.2.7 10.0.0.2 12345 80 \n".to_vec(),
        b"PROXY TCP4 192.0.2.7 10.0.0.2 12345 80 1\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.7 10.0.0.2 12345\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.7 10.0.0.2 12345 65536\r\n".to_vec(),
        b"PROXY TCP4 192.0.2.256 10.0.0.2 12345 80\r\n".to_vec(),
        b"PROXY TCP4 2001:db8::7 2001:db8::1 12345 80\r\n".to_vec(),
        b"PROXY TCP6 192.0.2.7 10.0.0.2 12345 80\r\n".to_vec(),
        b"PROXY UDP4 192.0.2.7 10.0.0.2 12345 80\r\n".to_vec(),
        b"PROXY UNKNOWNS\r\n".to_vec(),
        b"PROXY\r\n".to_vec(),
        v2(0x11, 0x11, &[0; 12]),
        v2(0x22, 0x11, &[0; 12]),
        v2(0x21, 0x10, &[0; 12]),
        v2(0x21, 0x01, b""),
        v2(0x21, 0x13, &[0; 12]),
        v2(0x21, 0x41, &[0; 12]),
        v2(0x21, 0x11, &[0; 11]),
        v2(0x21, 0x21, &[0; 35]),
    ] {
        assert_eq!(opened(sends(&bytes, REQUEST), &door).await, None, "{bytes:?}");
        refused += 1;
        assert_eq!(door.counters.count(Event::ProxyHeader), refused, "{bytes:?}");
    }
}

#[tokio::test]
async fn a_header_that_is_cut_off_is_counted_and_closed() {
    let door = door(behind_load_balancer(), None);
    let mut refused = 0;
    for (header, _) in headers() {
        for end in 0..header.len() {
            assert_eq!(opened(sends(&header[..end], b""), &door).await, None, "{end} of {header:?}");
            refused += 1;
        }
    }
    assert_eq!(door.counters.count(Event::ProxyHeader), refused);
}

#[tokio::test(start_paused = true)]
async fn headers_are_bounded() {
    let door = door(behind_load_balancer(), None);
    let line = |length: usize| format!("PROXY UNKNOWN {}\r\n", "f".repeat(length - 16)).into_bytes();
    let longest = v2_ipv4(&[0; 2_048 - 12]);
    for header in [line(107), longest] {
        assert_eq!(opened(sends(&header, REQUEST), &door).await.unwrap().1, REQUEST);
    }
    assert_eq!(opened(sends(&line(108), REQUEST), &door).await, None);
    assert_eq!(door.counters.count(Event::ProxyHeader), 1);

    // A longer header is refused for its length, before the rest has come.
    let start = Instant::now();
    let (mut client, server) = duplex(4_096);
    client.write_all(&v2_ipv4(&[0; 2_049 - 12])[..16]).await.unwrap();
    assert_eq!(opened(of_load_balancer(server), &door).await, None);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(door.counters.count(Event::ProxyHeader), 2);
}

#[tokio::test]
async fn a_header_with_any_byte_changed_is_read_or_refused() {
    let door = door(behind_load_balancer(), None);
    let mut read = 0;
    for (header, _) in headers() {
        for at in 0..header.len() {
            for byte in 0..=u8::MAX {
                let mut header = header.clone();
                header[at] = byte;
                read += u64::from(opened(sends(&header, b""), &door).await.is_some());
            }
        }
    }
    let all: usize = headers().iter().map(|(header, _)| header.len() * 256).sum();
    assert_eq!(read + door.counters.count(Event::ProxyHeader), all as u64);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_not_trusted_is_counted_and_closed_whatever_it_sends() {
    let door = door(Settings { trust_proxy: Vec::new(), ..behind_load_balancer() }, None);
    for header in [b"PROXY TCP4 192.0.2.7 10.0.0.2 12345 80\r\n".to_vec(), v2(0x20, 0, b""), Vec::new()] {
        assert_eq!(opened(sends(&header, REQUEST), &door).await, None);
    }
    // The proxy does not wait for a peer that sends nothing.
    let start = Instant::now();
    let (_client, server) = duplex(1);
    assert_eq!(opened(of_load_balancer(server), &door).await, None);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(door.counters.count(Event::ProxyHeader), 4);
}

#[tokio::test]
async fn a_header_is_not_looked_for_where_none_is_expected() {
    let door = door(Settings { proxy_protocol: false, ..behind_load_balancer() }, None);
    for (header, _) in headers() {
        assert_eq!(opened(sends(&header, b""), &door).await, Some((ip(LOAD_BALANCER), header)));
    }
}

/// A client of a Unix socket is trusted if 127.0.0.1 is. A task can accept and open a connection.
#[tokio::test]
async fn a_header_is_read_of_a_real_socket() {
    let folder = Folder::new();
    let path = folder.path("socket");
    let listener = Arc::new(Listener::bind(&Address::Unix(path.clone())).unwrap());
    for (trusted, source) in [("127.0.0.1/32", Some(ip("192.0.2.7"))), ("10.0.0.0/8", None)] {
        let trust_proxy = vec![trusted.parse().unwrap()];
        let door = door(Settings { trust_proxy, ..behind_load_balancer() }, None);
        let mut client = tokio::net::UnixStream::connect(&path).await.unwrap();
        client.write_all(&v2_ipv4(b"")).await.unwrap();
        let listener = listener.clone();
        let opening =
            tokio::spawn(async move { open(listener.accept(Duration::from_secs(3_600)).await, &door).await });
        let peer = opening.await.unwrap().map(|(_, peer)| peer);
        let connected = ip("127.0.0.1");
        assert_eq!(peer, source.map(|address| Peer { address, connected, is_tls: false }));
    }
}

/// The time is for the header as a whole, so a byte does not begin it anew.
#[tokio::test(start_paused = true)]
async fn a_header_that_is_not_finished_in_time_is_counted_and_closed() {
    let door = door(behind_load_balancer(), None);
    for header in [&b"PROXY TCP4 192.0.2.7 10."[..], b"\r\n\r\n", b""] {
        let start = Instant::now();
        let (mut client, server) = duplex(64);
        let trickling = async {
            for byte in header {
                client.write_u8(*byte).await.unwrap();
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
            tokio::time::sleep_until(start + Duration::from_secs(60)).await;
        };
        let opening = async {
            assert_eq!(opened(of_load_balancer(server), &door).await, None);
            start.elapsed()
        };
        let ((), elapsed) = tokio::join!(trickling, opening);
        assert_time(elapsed, door.settings.timeouts.request_head);
    }
    assert_eq!(door.counters.count(Event::ProxyHeader), 3);
}

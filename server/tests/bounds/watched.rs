//! A proxy whose counters the test reads, and connections that end.

use std::collections::BTreeMap;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::process::{Client, Message, Proxy, upstream, url};
use super::{NO_LIMIT, PATIENCE};

/// Starts a proxy without a limit over this upstream.
pub(super) fn over(upstream: SocketAddr, options: &str) -> Proxy {
    over_all(&[upstream], options)
}

pub(super) fn over_all(upstreams: &[SocketAddr], options: &str) -> Proxy {
    on("127.0.0.1:0", upstreams, options)
}

/// Starts a proxy without a limit at an address. Spaces separate the options.
pub(super) fn on(listen: &str, upstreams: &[SocketAddr], options: &str) -> Proxy {
    let urls: Vec<String> = upstreams.iter().map(|upstream| url(*upstream)).collect();
    let mut args = vec!["--limit", NO_LIMIT, "--admin", "127.0.0.1:0"];
    args.extend(urls.iter().flat_map(|url| ["--upstream", url]));
    args.extend(options.split_whitespace());
    Proxy::start_on(listen, &args)
}

/// Returns all numbers of `/metrics` about the proxy, by their names without `tollgate_proxy_` and
/// `_total`.
pub(super) fn numbers(admin: &mut Client) -> BTreeMap<String, u64> {
    let host = admin.0.get_ref().peer_addr().expect("it is connected");
    let metrics = admin.send(&format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n")).body;
    let ours = metrics.lines().filter_map(|line| line.strip_prefix("tollgate_proxy_")?.split_once(' '));
    ours.map(|(name, number)| (name.trim_end_matches("_total").to_owned(), number.parse().expect("a number")))
        .collect()
}

/// Waits until these are the numbers, and all others are 0. Changes of a limit do not count.
pub(super) fn assert_counts(proxy: &Proxy, counts: &[(&str, u64)]) {
    let mut admin = proxy.admin();
    let begin = Instant::now();
    loop {
        let mut now = numbers(&mut admin);
        now.retain(|name, number| *number > 0 && name != "limit_changes");
        if now == counts.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect() {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{now:?} are not {counts:?}");
    }
}

/// Waits until the number of this name is `count`.
pub(super) fn await_count(proxy: &Proxy, name: &str, count: u64) {
    let mut admin = proxy.admin();
    let begin = Instant::now();
    while numbers(&mut admin)[name] != count {
        assert!(begin.elapsed() < PATIENCE, "{name} is {} and not {count}", numbers(&mut admin)[name]);
    }
}

/// Reads all bytes until the other side ends the connection.
pub(super) fn rest(client: &mut Client) -> Vec<u8> {
    let mut bytes = Vec::new();
    match client.0.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => bytes,
        Err(error) => panic!("the connection stays open: {error}"),
    }
}

/// Returns whether the connection was closed or reset before another byte came. It waits for one of
/// them.
pub(super) fn is_closed(client: &mut Client) -> bool {
    match client.0.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => true,
        Err(error) => panic!("the connection stays open: {error}"),
    }
}

/// Checks that nothing arrives for this time, which is the pace of a slow client.
pub(super) fn quiet(client: &mut Client, time: Duration) {
    client.0.get_ref().set_read_timeout(Some(time)).expect("not zero");
    let mut byte = [0];
    let read = client.0.read(&mut byte);
    client.0.get_ref().set_read_timeout(Some(PATIENCE)).expect("not zero");
    match read {
        Err(error) if error.kind() == ErrorKind::WouldBlock => (),
        read => panic!("{read:?} of {byte:?}"),
    }
}

/// Sends no more, and goes on reading.
pub(super) fn half_close(client: &Client) {
    client.0.get_ref().shutdown(Shutdown::Write).expect("it is connected");
}

/// Connects from an address of this host.
pub(super) fn connect_from(from: [u8; 4], to: SocketAddr) -> Client {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind((IpAddr::from(from), 0).into()).expect("all of 127.0.0.0/8 is this host");
        socket.connect(to).await.expect("the proxy listens").into_std().expect("it is registered")
    });
    stream.set_nonblocking(false).expect("it is open");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    Client(BufReader::new(stream))
}

/// An upstream that holds each request back until the test answers it.
pub(super) struct Holding {
    pub(super) address: SocketAddr,
    requests: Receiver<Held>,
}

/// A request at the upstream.
pub(super) struct Held {
    pub(super) head: Message,
    pub(super) connection: BufReader<TcpStream>,
}

impl Holding {
    /// Starts the upstream. It hands a connection over with its first request, and leaves the rest
    /// to the test.
    pub(super) fn start() -> Holding {
        let (sender, requests): (Sender<Held>, _) = mpsc::channel();
        let address = upstream(move |mut connection| {
            if let Some(head) = Message::read_head(&mut connection) {
                // The test may have ended by then.
                let _ = sender.send(Held { head, connection });
            }
        });
        Holding { address, requests }
    }

    pub(super) fn next(&self) -> Held {
        self.requests.recv_timeout(PATIENCE).expect("the upstream is asked")
    }

    /// Returns a request that has already arrived.
    pub(super) fn try_next(&self) -> Option<Held> {
        self.requests.try_recv().ok()
    }
}

impl Held {
    pub(super) fn write(&mut self, text: &str) {
        // The proxy may have closed the connection.
        let _ = self.connection.get_ref().write_all(text.as_bytes());
    }

    /// Reads all bytes until the proxy ends the connection.
    pub(super) fn rest(self) -> Vec<u8> {
        rest(&mut Client(self.connection))
    }

    pub(super) fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.connection.read_exact(&mut bytes).expect("the proxy sends the body");
        bytes
    }
}

/// Starts an upstream that answers each request with 200 and `ok`, and counts the connections.
pub(super) fn answering() -> (SocketAddr, Arc<Mutex<usize>>) {
    let connections = Arc::new(Mutex::new(0));
    let counted = connections.clone();
    let address = upstream(move |mut connection| {
        *counted.lock().expect("nothing panics under it") += 1;
        while let Some(head) = Message::read_head(&mut connection) {
            let length = head.header("content-length").map_or(0, |length| length.parse().expect("a number"));
            if connection.read_exact(&mut vec![0; length]).is_err() {
                return;
            }
            let _ = connection.get_ref().write_all(OK.as_bytes());
        }
    });
    (address, connections)
}

/// Starts an upstream that upgrades connections, and sends each byte back. Without an upgrade it
/// answers 200.
pub(super) fn upgrading() -> SocketAddr {
    upstream(|mut connection| {
        while let Some(head) = Message::read_head(&mut connection) {
            if head.header("upgrade").is_none() {
                let _ = connection.get_ref().write_all(OK.as_bytes());
                continue;
            }
            let _ = connection.get_ref().write_all(UPGRADED.as_bytes());
            let mut byte = [0];
            while connection.read(&mut byte).is_ok_and(|read| read == 1) {
                let _ = connection.get_ref().write_all(&byte);
            }
            return;
        }
    })
}

/// Opens a WebSocket whose upstream has sent back a byte.
pub(super) fn websocket(proxy: &Proxy) -> Client {
    let mut client = proxy.connect();
    client.write(UPGRADE);
    assert_eq!(Message::read_head(&mut client.0).expect("a response").status, 101);
    client.write("?");
    let mut byte = [0];
    client.0.read_exact(&mut byte).expect("the upstream sends it back");
    assert_eq!(&byte, b"?");
    client
}

pub(super) const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const UPGRADED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
pub(super) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
pub(super) const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

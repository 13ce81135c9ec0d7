//! Connections to one upstream, for a client of `hyper_util`.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper::Uri;
use hyper::http::uri::{Authority, Scheme};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Instant, Sleep};
use tower::ServiceExt;

use super::listen::Io;
use super::settings::{Timeouts, Upstream};

/// The text of the error when an upstream does not accept a connection in time.
pub(crate) const CONNECT_TIMED_OUT: &str = "connecting took too long";
/// The text of the error when an upstream stands still for too long.
pub(crate) const STALLED: &str = "the upstream stood still for too long";

/// The pause before another attempt at a Unix socket whose backlog is full.
const BACK_OFF: Duration = Duration::from_millis(10);
/// The beginning of the response that makes a connection a tunnel.
const SWITCHING: &[u8] = b"HTTP/1.1 101";

type BoxError = Box<dyn Error + Send + Sync>;

/// A connector to its upstream, whatever the URI.
#[derive(Clone)]
pub(crate) struct Connector {
    to: Upstream,
    /// The time-outs, which a reload shares, and which are read for each connection.
    timeouts: Arc<RwLock<Timeouts>>,
}

impl Connector {
    pub(crate) fn new(to: Upstream, timeouts: Arc<RwLock<Timeouts>>) -> Connector {
        Connector { to, timeouts }
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<TokioIo<Link>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let to = self.to.clone();
        let timeouts = self.timeouts.read().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            let io = match tokio::time::timeout(timeouts.connect, connect(to, timeouts.connect)).await {
                Ok(Ok(io)) => io,
                Ok(Err(error)) if !is_timeout(&*error) => return Err(error),
                _ => return Err(timed_out(CONNECT_TIMED_OUT).into()),
            };
            Ok(TokioIo::new(Link::new(io, &timeouts)))
        })
    }
}

async fn connect(to: Upstream, limit: Duration) -> Result<Box<dyn Io>, BoxError> {
    match to {
        Upstream::Tcp(authority) => connect_tcp(authority, limit).await,
        Upstream::Unix(path) => loop {
            match UnixStream::connect(&path).await {
                Ok(stream) => return Ok(Box::new(stream)),
                // Over TCP, the system waits for a place in the backlog.
                Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::time::sleep(BACK_OFF).await,
                Err(error) => return Err(error.into()),
            }
        },
    }
}

/// Connects to the first address of the host that accepts.
///
/// Each address has its part of the time, so that the connector passes a silent one by.
async fn connect_tcp(authority: Authority, limit: Duration) -> Result<Box<dyn Io>, BoxError> {
    let uri = Uri::builder().scheme(Scheme::HTTP).authority(authority).path_and_query("/").build()?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(limit));
    Ok(Box::new(connector.oneshot(uri).await?.into_inner()))
}

/// Returns whether an error is a time-out, or comes from one.
fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::TimedOut) {
            return true;
        }
        next = error.source();
    }
    false
}

fn timed_out(text: &'static str) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, text)
}

/// A connection to an upstream, which fails once the upstream stands still for too long.
///
/// A read is bounded by `tunnel`, in an upgraded connection only. This time begins anew with each
/// byte in either direction. The time-outs of a response bound the reads of a request. A write is
/// bounded by `tunnel` in an upgraded connection, and by `response_head` before.
///
/// The library that upgrades connections does not tell which ones it upgrades. A connection counts
/// as upgraded once a read begins with the response 101.
pub(crate) struct Link {
    io: Box<dyn Io>,
    before: Duration,
    tunnel: Duration,
    is_tunnel: bool,
    timer: Pin<Box<Sleep>>,
    /// Whether the timer is set for an operation that waits.
    is_waiting: bool,
}

impl Link {
    fn new(io: Box<dyn Io>, timeouts: &Timeouts) -> Link {
        Link {
            io,
            before: timeouts.response_head,
            tunnel: timeouts.tunnel,
            is_tunnel: false,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            is_waiting: false,
        }
    }

    /// Returns the result, or an error if the result is pending and the time is over.
    fn bound<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            // The timer may still fire, without an effect.
            self.is_waiting = false;
            return result;
        }
        if !self.is_waiting {
            let limit = if self.is_tunnel { self.tunnel } else { self.before };
            self.timer.as_mut().reset(Instant::now() + limit);
            self.is_waiting = true;
        }
        match self.timer.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(timed_out(STALLED))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let begin = buf.filled().len();
        let result = Pin::new(&mut self.io).poll_read(cx, buf);
        if buf.filled()[begin..].starts_with(SWITCHING) {
            self.is_tunnel = true;
        }
        if result.is_pending() && !self.is_tunnel {
            return result;
        }
        self.bound(cx, result)
    }
}

impl AsyncWrite for Link {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.io).poll_write(cx, buf);
        self.bound(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.bound(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// Flushes nothing: a socket has no buffer of its own.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    /// Shuts down at once: a socket does not wait for that.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;

    use http_body_util::{BodyExt, Empty};
    use hyper::body::Bytes;
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixSocket};
    use tower::Service;

    use super::*;
    use crate::proxy::listen::tests::Folder;
    use crate::proxy::settings::Settings;

    fn timeouts() -> Timeouts {
        Settings::default().timeouts
    }

    fn connector(to: Upstream) -> Connector {
        Connector::new(to, Arc::new(RwLock::new(timeouts())))
    }

    fn tcp(authority: &str) -> Upstream {
        Upstream::Tcp(authority.parse().unwrap())
    }

    fn unix(path: &Path) -> Upstream {
        Upstream::Unix(path.to_owned())
    }

    /// Connects for a URI of another host, which the connector ignores.
    async fn connect(connector: &mut Connector) -> Result<Link, BoxError> {
        let uri = Uri::from_static("http://192.0.2.1:9/elsewhere");
        Ok(connector.call(uri).await?.into_inner())
    }

    async fn fault(connector: &mut Connector) -> BoxError {
        connect(connector).await.err().expect("the connection is not accepted")
    }

    fn assert_time(elapsed: Duration, limit: Duration) {
        assert!(elapsed >= limit && elapsed < limit + Duration::from_millis(20), "{elapsed:?}");
    }

    /// Returns a listener whose backlog holds one connection and is full. The next connection
    /// waits.
    async fn full() -> (TcpListener, TcpStream, SocketAddr) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let first = TcpStream::connect(address).await.unwrap();
        (listener, first, address)
    }

    #[tokio::test]
    async fn requests_go_to_the_upstream_whatever_the_uri() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = tcp(&listener.local_addr().unwrap().to_string());
        let client = Client::builder(TokioExecutor::new()).build(connector(to));
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            (head, stream)
        });
        let uri = Uri::from_static("http://elsewhere.invalid/path");
        let request = hyper::Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
        let response = client.request(request).await.unwrap();
        let (head, _stream) = serving.await.unwrap();
        assert!(head.starts_with(b"GET /path HTTP/1.1\r\nhost: elsewhere.invalid\r\n"));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "ok");
    }

    #[tokio::test]
    async fn tcp_is_connected() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut link = connect(&mut connector(tcp(&address.to_string()))).await.unwrap();
        link.write_all(b"?").await.unwrap();
        assert_eq!(listener.accept().await.unwrap().0.read_u8().await.unwrap(), b'?');
    }

    #[tokio::test]
    async fn the_name_of_an_upstream_is_looked_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut link = connect(&mut connector(tcp(&format!("localhost:{port}")))).await.unwrap();
        link.write_all(b"?").await.unwrap();
        assert_eq!(listener.accept().await.unwrap().0.read_u8().await.unwrap(), b'?');
    }

    #[tokio::test]
    async fn an_upstream_of_ipv6_is_connected() {
        let Ok(listener) = TcpListener::bind("[::1]:0").await else {
            return eprintln!("not tested: this host has no IPv6");
        };
        let to = tcp(&listener.local_addr().unwrap().to_string());
        let mut link = connect(&mut connector(to)).await.unwrap();
        link.write_all(b"?").await.unwrap();
        assert_eq!(listener.accept().await.unwrap().0.read_u8().await.unwrap(), b'?');
    }

    #[tokio::test]
    async fn a_unix_socket_is_connected() {
        let folder = Folder::new();
        let path = folder.path("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut link = connect(&mut connector(unix(&path))).await.unwrap();
        link.write_all(b"?").await.unwrap();
        assert_eq!(listener.accept().await.unwrap().0.read_u8().await.unwrap(), b'?');
    }

    #[tokio::test]
    async fn a_refusal_is_no_time_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = fault(&mut connector(tcp(&address.to_string()))).await;
        assert!(!is_timeout(&*error) && error.to_string() != CONNECT_TIMED_OUT, "{error}");
        let folder = Folder::new();
        let error = fault(&mut connector(unix(&folder.path("none")))).await;
        assert!(error.to_string().starts_with("No such file"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_upstream_with_a_full_backlog_is_a_time_out() {
        let (_listener, _first, address) = full().await;
        let mut connector = connector(tcp(&address.to_string()));
        let start = Instant::now();
        let error = fault(&mut connector).await;
        assert_eq!(error.to_string(), CONNECT_TIMED_OUT);
        assert_time(start.elapsed(), timeouts().connect);
    }

    /// The library around the client reports an error as the texts of its chain.
    #[tokio::test(start_paused = true)]
    async fn the_text_of_a_time_out_is_in_the_error_of_the_client() {
        let (_listener, _first, address) = full().await;
        let client = Client::builder(TokioExecutor::new()).build(connector(tcp(&address.to_string())));
        let request = hyper::Request::get("http://a/").body(Empty::<Bytes>::new()).unwrap();
        let error = client.request(request).await.unwrap_err();
        assert!(error.is_connect());
        assert_eq!(error.source().unwrap().to_string(), CONNECT_TIMED_OUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_unix_socket_with_a_full_backlog_is_tried_until_the_time_is_over() {
        let folder = Folder::new();
        let path = folder.path("socket");
        let socket = UnixSocket::new_stream().unwrap();
        socket.bind(&path).unwrap();
        let listener = socket.listen(0).unwrap();
        let _first = UnixStream::connect(&path).await.unwrap();
        let mut connector = connector(unix(&path));
        let start = Instant::now();
        assert_eq!(fault(&mut connector).await.to_string(), CONNECT_TIMED_OUT);
        assert_time(start.elapsed(), timeouts().connect);

        // A place in the backlog becomes free.
        let start = Instant::now();
        let freeing = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            listener.accept().await.unwrap();
        };
        let (link, ()) = tokio::join!(connect(&mut connector), freeing);
        assert!(link.is_ok());
        assert_time(start.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_out_that_is_changed_holds_for_the_next_connection() {
        let (_listener, _first, address) = full().await;
        let mut connector = connector(tcp(&address.to_string()));
        let shared = connector.clone().timeouts;
        for seconds in [1, 7] {
            let connect = Duration::from_secs(seconds);
            *shared.write().unwrap() = Timeouts { connect, ..timeouts() };
            let start = Instant::now();
            assert_eq!(fault(&mut connector).await.to_string(), CONNECT_TIMED_OUT);
            assert_time(start.elapsed(), connect);
        }
    }

    /// Returns the other end and a connection, which is a tunnel if `is_tunnel` is true.
    async fn linked(is_tunnel: bool) -> (DuplexStream, Link) {
        let (mut upstream, io) = duplex(64);
        let mut link = Link::new(Box::new(io), &timeouts());
        if is_tunnel {
            let mut head = [0; 36];
            upstream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").await.unwrap();
            link.read_exact(&mut head).await.unwrap();
        }
        (upstream, link)
    }

    async fn assert_stalled<T>(operation: impl Future<Output = io::Result<T>>) {
        let day = Duration::from_secs(86_400);
        let result = tokio::time::timeout(day, operation).await.expect("it fails long before");
        let error = result.err().expect("the upstream stands still");
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::TimedOut, STALLED));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_whose_upstream_is_silent_ends() {
        let (_upstream, mut link) = linked(true).await;
        let start = Instant::now();
        assert_stalled(link.read_u8()).await;
        assert_time(start.elapsed(), timeouts().tunnel);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_whose_upstream_does_not_read_ends() {
        let (_upstream, mut link) = linked(true).await;
        let start = Instant::now();
        assert_stalled(link.write_all(&[0; 65])).await;
        assert_time(start.elapsed(), timeouts().tunnel);
    }

    /// The time begins anew with each byte, in either direction.
    #[tokio::test(start_paused = true)]
    async fn a_tunnel_in_use_does_not_end() {
        let step = timeouts().tunnel * 9 / 10;
        let (mut upstream, link) = linked(true).await;
        let (mut reads, mut writes) = tokio::io::split(link);
        let start = Instant::now();
        let using = async {
            for _ in 0..3 {
                tokio::time::sleep(step).await;
                upstream.write_u8(b'!').await.unwrap();
            }
            for _ in 0..3 {
                tokio::time::sleep(step).await;
                writes.write_u8(b'?').await.unwrap();
            }
            start.elapsed()
        };
        let reading = async {
            let mut answers = Vec::new();
            assert_stalled(reads.read_to_end(&mut answers)).await;
            assert_eq!(answers, b"!!!");
            start.elapsed()
        };
        let (used, ended) = tokio::join!(using, reading);
        assert_eq!(used, step * 6);
        // A read that waits polls its timer again only when the timer fires.
        assert!(ended >= used + timeouts().tunnel && ended <= used + timeouts().tunnel * 2, "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_of_a_request_is_bounded_elsewhere() {
        let (mut upstream, mut link) = linked(false).await;
        let hour = Duration::from_secs(3_600);
        assert!(tokio::time::timeout(hour, link.read_u8()).await.is_err());
        upstream.write_u8(b'!').await.unwrap();
        assert_eq!(link.read_u8().await.unwrap(), b'!');
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_whose_upstream_does_not_read_ends() {
        let (mut upstream, mut link) = linked(false).await;
        // The other end reads for a while.
        let start = Instant::now();
        let reading = async {
            for _ in 0..3 {
                tokio::time::sleep(timeouts().response_head * 9 / 10).await;
                upstream.read_u8().await.unwrap();
            }
            start.elapsed()
        };
        let writing = async {
            assert_stalled(link.write_all(&[0; 68])).await;
            start.elapsed()
        };
        let (read, ended) = tokio::join!(reading, writing);
        assert_time(ended, read + timeouts().response_head);
    }
}

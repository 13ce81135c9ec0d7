//! New connections to an upstream, and the reasons for which one has no response.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::time::Duration;

use h2::Reason;
use hyper::Uri;
use hyper::http::uri::{Authority, Scheme};
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::net::UnixStream;
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt;

use crate::config::settings::{Timeouts, Upstream};
use tollgate_common::net::io::Io;

/// The pause before another attempt at a Unix socket whose backlog is full.
const BACK_OFF: Duration = Duration::from_millis(10);

/// The silence after which the system asks whether the other host is there.
const ALIVE: Duration = Duration::from_secs(15);

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// A connection to an upstream. A write fails with [`is_stall`] once the upstream takes no byte for
/// the time-out `response_head`. The time-outs of a response bound the reads.
pub(crate) type Link = Pin<Box<TimeoutStream<Box<dyn Io>>>>;

/// The reason for which an attempt has no response.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no connection, so the request was not sent.
    Unreached(BoxError),
    /// The same, after the time-out `connect`.
    NotAccepted,
    /// The request was sent, or a part of it.
    Broken(hyper::Error),
    /// The upstream has not looked at the request, and says so.
    Refused(hyper::Error),
    /// The stream of the request was reset, by the upstream or for its malformed response.
    Reset(Reason),
    /// The response switches protocols, and the request does not ask for that.
    Mismatched,
    /// The response did not begin in time.
    TooLate,
    /// The body of the request has ended by a fault of the client.
    OfClient(BodyFault),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum BodyFault {
    /// The client broke the body off, or the body is malformed.
    Broken,
    /// The client paused for too long.
    TimedOut,
    /// The body has more bytes than it may.
    TooLarge,
}

/// Connects to the upstream within the time-out `connect`.
pub(crate) async fn connect(to: &Upstream, timeouts: &Timeouts) -> Result<Link, Failure> {
    within(timeouts.connect, open(to, timeouts.connect)).await.map(|io| linked(io, timeouts))
}

/// Waits for a part of the way to an upstream.
pub(super) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, BoxError>>,
) -> Result<T, Failure> {
    let done = tokio::time::timeout(limit, work).await.map_err(|_| Failure::NotAccepted)?;
    done.map_err(|error| if is_timeout(&*error) { Failure::NotAccepted } else { Failure::Unreached(error) })
}

pub(super) fn linked(io: Box<dyn Io>, timeouts: &Timeouts) -> Link {
    let mut link = TimeoutStream::new(io);
    link.set_write_timeout(Some(timeouts.response_head));
    Box::pin(link)
}

/// Connects to the upstream, and leaves TLS to the caller.
pub(super) async fn open(to: &Upstream, limit: Duration) -> Result<Box<dyn Io>, BoxError> {
    match to {
        Upstream::Tcp(authority) | Upstream::H2c(authority) => open_tcp(authority.clone(), limit).await,
        Upstream::Tls(authority) if authority.port().is_some() => open_tcp(authority.clone(), limit).await,
        Upstream::Tls(authority) => open_tcp(format!("{authority}:443").parse()?, limit).await,
        Upstream::Unix(path) => loop {
            match UnixStream::connect(path).await {
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
async fn open_tcp(authority: Authority, limit: Duration) -> Result<Box<dyn Io>, BoxError> {
    let uri = Uri::builder().scheme(Scheme::HTTP).authority(authority).path_and_query("/").build()?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(limit));
    // A host that is gone is noticed, also under requests that are silent for long.
    connector.set_keepalive(Some(ALIVE));
    connector.set_keepalive_interval(Some(ALIVE));
    connector.set_keepalive_retries(Some(3));
    Ok(Box::new(connector.oneshot(uri).await?.into_inner()))
}

impl Failure {
    pub(super) fn of(error: hyper::Error) -> Failure {
        let of_http2 = causes(&error).find_map(|error| error.downcast_ref::<h2::Error>());
        match of_http2 {
            // A stream ends by a goodbye if its number is above the last that the peer has seen.
            Some(error) if error.is_go_away() && error.is_remote() => (),
            Some(error) if error.reason() == Some(Reason::REFUSED_STREAM) && error.is_remote() => (),
            // By the upstream, or for its malformed head.
            Some(error) if error.is_reset() => {
                return Failure::Reset(error.reason().unwrap_or(Reason::CANCEL));
            }
            _ if is_stall(&error) => return Failure::TooLate,
            _ => return Failure::Broken(error),
        }
        Failure::Refused(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error: &(dyn Error + 'static) = match self {
            Failure::Unreached(error) => &**error,
            Failure::Broken(error) | Failure::Refused(error) => error,
            Failure::Reset(reason) => return write!(f, "the stream was reset: {reason}"),
            Failure::NotAccepted => return f.write_str("the upstream does not accept connections"),
            Failure::Mismatched => return f.write_str("its switch of protocols does not match the request"),
            Failure::TooLate => return f.write_str("the upstream stood still for too long"),
            Failure::OfClient(_) => return f.write_str("the client did not send its body"),
        };
        let texts: Vec<String> = causes(error).map(ToString::to_string).collect();
        f.write_str(&texts.join(": "))
    }
}

/// Returns whether an error is a time-out, or comes from one.
fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    io_errors(error).any(|error| error.kind() == ErrorKind::TimedOut)
}

/// Returns whether an error comes from a [`Link`] whose upstream stood still. A time-out of the
/// system has a number, and is a broken connection.
fn is_stall(error: &(dyn Error + 'static)) -> bool {
    io_errors(error).any(|error| error.kind() == ErrorKind::TimedOut && error.raw_os_error().is_none())
}

fn io_errors<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a io::Error> {
    causes(error).filter_map(|error| error.downcast_ref())
}

/// Returns an error, the error that it comes from, and so on.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixSocket};
    use tokio::time::Instant;

    use super::*;
    use crate::config::settings::Settings;
    use tollgate_common::testing::Folder;
    use tollgate_testing::upstream::refusing;

    fn timeouts() -> Timeouts {
        Settings::default().timeouts
    }

    fn tcp(authority: &str) -> Upstream {
        Upstream::Tcp(authority.parse().unwrap())
    }

    fn unix(path: &Path) -> Upstream {
        Upstream::Unix(path.to_owned())
    }

    async fn fault(to: &Upstream) -> Failure {
        connect(to, &timeouts()).await.err().expect("the connection is not accepted")
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
    async fn tcp_is_connected() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut link = connect(&tcp(&address.to_string()), &timeouts()).await.unwrap();
        link.write_all(b"?").await.unwrap();
        assert_eq!(listener.accept().await.unwrap().0.read_u8().await.unwrap(), b'?');
    }

    #[tokio::test]
    async fn the_name_of_an_upstream_is_looked_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut link = connect(&tcp(&format!("localhost:{port}")), &timeouts()).await.unwrap();
        link.write_all(b"?").await.unwrap();
        assert_eq!(listener.accept().await.unwrap().0.read_u8().await.unwrap(), b'?');
    }

    #[tokio::test]
    async fn an_upstream_of_ipv6_is_connected() {
        let Ok(listener) = TcpListener::bind("[::1]:0").await else {
            return eprintln!("not tested: this host has no IPv6");
        };
        let to = tcp(&listener.local_addr().unwrap().to_string());
        let mut link = connect(&to, &timeouts()).await.unwrap();
        link.write_all(b"?").await.unwrap();
        assert_eq!(listener.accept().await.unwrap().0.read_u8().await.unwrap(), b'?');
    }

    #[tokio::test]
    async fn a_unix_socket_is_connected() {
        let folder = Folder::new();
        let path = folder.path("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut link = connect(&unix(&path), &timeouts()).await.unwrap();
        link.write_all(b"?").await.unwrap();
        assert_eq!(listener.accept().await.unwrap().0.read_u8().await.unwrap(), b'?');
    }

    #[tokio::test]
    async fn a_refusal_is_no_time_out() {
        let url = refusing();
        let fault = async |to: &Upstream| match fault(to).await {
            Failure::Unreached(error) => error.to_string(),
            _ => panic!("{to} is no time-out"),
        };
        assert_eq!(fault(&tcp(url.trim_start_matches("http://"))).await, "tcp connect error");
        let folder = Folder::new();
        let error = fault(&unix(&folder.path("none"))).await;
        assert!(error.starts_with("No such file"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_upstream_with_a_full_backlog_is_a_time_out() {
        let (_listener, _first, address) = full().await;
        let start = Instant::now();
        let fault = fault(&tcp(&address.to_string())).await;
        assert!(matches!(fault, Failure::NotAccepted), "{fault:?}");
        assert_time(start.elapsed(), timeouts().connect);
    }

    #[tokio::test(start_paused = true)]
    async fn a_unix_socket_with_a_full_backlog_is_tried_until_the_time_is_over() {
        let folder = Folder::new();
        let path = folder.path("socket");
        let socket = UnixSocket::new_stream().unwrap();
        socket.bind(&path).unwrap();
        let listener = socket.listen(0).unwrap();
        let _first = UnixStream::connect(&path).await.unwrap();
        let to = unix(&path);
        let start = Instant::now();
        let fault = fault(&to).await;
        assert!(matches!(fault, Failure::NotAccepted), "{fault:?}");
        assert_time(start.elapsed(), timeouts().connect);

        // A place in the backlog becomes free.
        let timeouts = timeouts();
        let start = Instant::now();
        let freeing = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            listener.accept().await.unwrap();
        };
        let (link, ()) = tokio::join!(connect(&to, &timeouts), freeing);
        assert!(link.is_ok());
        assert_time(start.elapsed(), Duration::from_secs(1));
    }

    /// The other end reads for a while, and then stands still.
    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_does_not_read_is_a_stall() {
        let (mut upstream, io) = tokio::io::duplex(64);
        let mut link = TimeoutStream::new(io);
        link.set_write_timeout(Some(timeouts().response_head));
        let mut link = Box::pin(link);
        let start = Instant::now();
        let reading = async {
            for _ in 0..3 {
                tokio::time::sleep(timeouts().response_head * 9 / 10).await;
                upstream.read_u8().await.unwrap();
            }
            start.elapsed()
        };
        let writing = async {
            let error = link.write_all(&[0; 68]).await.expect_err("the upstream stands still");
            assert!(is_stall(&error) && is_timeout(&error), "{error:?}");
            start.elapsed()
        };
        let (read, ended) = tokio::join!(reading, writing);
        assert_time(ended, read + timeouts().response_head);
    }

    #[test]
    fn a_time_out_of_the_system_is_no_stall() {
        let error = io::Error::from_raw_os_error(rustix::io::Errno::TIMEDOUT.raw_os_error());
        assert!(is_timeout(&error) && !is_stall(&error), "{error:?}");
    }
}

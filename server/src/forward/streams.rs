//! The HTTP/2 connections to one upstream, each shared by many requests.
//!
//! A connection takes requests until its peer's limit on streams is reached, or [`MOST`]; then
//! another one is opened. One whose peer says goodbye, or that is silent for a whole time-out, takes
//! no other request. The requests on it go on.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{self, HeaderValue};
use hyper::http::uri::{Authority, Scheme, Uri};
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::{Instant, timeout};

use super::bodies::Sent;
use super::connect::{BoxError, Link};

/// The most requests on a connection at a time, whatever its peer allows.
const MOST: usize = 100;
/// The most bytes of one response that wait for its client.
const WINDOW: u32 = 128 << 10;
/// The longest head of a response.
const HEAD: u32 = 64 << 10;
/// The most bytes of a request that wait for the upstream.
const SEND_BUFFER: usize = 64 << 10;
/// The pause before another look at a connection whose settings have not come.
const LOOK: Duration = Duration::from_millis(1);
/// The silence after which a ping is sent while requests wait. Servers of gRPC take more than three
/// within 5 minutes each for an attack.
const PING: Duration = Duration::from_secs(301);
/// The time for the answer to a ping.
const PONG: Duration = Duration::from_secs(10);

/// The connections of one upstream.
#[derive(Default)]
pub(crate) struct Streams {
    connections: Mutex<Vec<Arc<Connection>>>,
}

struct Connection {
    sender: SendRequest<Sent>,
    /// The streams that the peer allows.
    limit: Arc<AtomicUsize>,
    used: AtomicUsize,
    /// No other request is to be sent.
    is_retired: AtomicBool,
    start: Instant,
    /// Milliseconds from `start` to the last use or answer.
    last: AtomicU64,
}

/// A stream of a connection, until its response has ended.
pub(crate) struct Stream(Arc<Connection>);

impl Streams {
    /// Takes a stream of a connection that has a free one. The first connections are preferred, so
    /// that others become idle.
    pub(crate) fn take(&self) -> Option<Stream> {
        let mut connections = self.connections();
        connections.retain(|connection| connection.is_open());
        connections.iter().find_map(Connection::take)
    }

    /// Drops the connections that were idle for a time.
    pub(crate) fn drop_idle(&self, longest: Duration) {
        let is_idle = |it: &Arc<Connection>| it.used.load(Relaxed) == 0 && it.since_last() >= longest;
        self.connections().retain(|connection| connection.is_open() && !is_idle(connection));
    }

    /// Retires the connections without an answer since this time.
    pub(crate) fn retire_silent(&self, since: Instant) {
        self.connections().retain(|connection| connection.since_last() < since.elapsed());
    }

    /// Begins HTTP/2 on a new connection, and returns a stream of it.
    ///
    /// The function waits for the peer's settings: they tell the number of streams, and that the
    /// peer speaks HTTP/2 at all.
    pub(crate) async fn begin(&self, link: Link) -> Result<Stream, BoxError> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .initial_max_send_streams(0)
            .initial_stream_window_size(WINDOW)
            // No response that waits for its client stops the others of the connection.
            .initial_connection_window_size(WINDOW * MOST as u32)
            .max_header_list_size(HEAD)
            .max_send_buf_size(SEND_BUFFER);
        let (sender, mut connection) = builder.handshake(TokioIo::new(link)).await?;
        while connection.current_max_send_streams() == 0 {
            match timeout(LOOK, &mut connection).await {
                Err(_) => (),
                Ok(Err(error)) => return Err(error.into()),
                Ok(Ok(())) => return Err("the upstream does not speak HTTP/2, or ends at once".into()),
            }
        }
        let limit = Arc::new(AtomicUsize::new(connection.current_max_send_streams()));
        let told = limit.clone();
        // Its errors are those of its requests.
        tokio::spawn(poll_fn(move |context| {
            let ended = Pin::new(&mut connection).poll(context);
            told.store(connection.current_max_send_streams(), Relaxed);
            ended.map(drop)
        }));
        let (used, last) = (AtomicUsize::new(1), AtomicU64::new(0));
        let (is_retired, start) = (AtomicBool::new(false), Instant::now());
        let connection = Arc::new(Connection { sender, limit, used, is_retired, start, last });
        self.connections().push(connection.clone());
        Ok(Stream(connection))
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    fn is_open(&self) -> bool {
        !self.sender.is_closed() && !self.is_retired.load(Relaxed)
    }

    /// The caller holds the lock, so no stream is taken concurrently.
    fn take(this: &Arc<Connection>) -> Option<Stream> {
        let most = this.limit.load(Relaxed).min(MOST);
        (this.used.load(Relaxed) < most).then(|| {
            this.used.fetch_add(1, Relaxed);
            Stream(this.clone())
        })
    }

    fn note(&self) {
        self.last.store(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns the time since the last use or answer.
    fn since_last(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.last.load(Relaxed)))
    }
}

impl Stream {
    /// Sends a request. One that was not sent comes back in the error.
    pub(crate) async fn send(
        &self,
        mut request: Request<Sent>,
        scheme: Scheme,
    ) -> Result<Response<Incoming>, TrySendError<Request<Sent>>> {
        name_authority(&mut request, scheme);
        let response = self.0.sender.clone().try_send_request(request).await?;
        self.0.note();
        Ok(response)
    }

    /// Ends the use of the connection for other requests.
    pub(crate) fn retire(&self) {
        self.0.is_retired.store(true, Relaxed);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Relaxed);
    }
}

/// Moves the host of a request into its URL, as HTTP/2 has it.
fn name_authority(request: &mut Request<Sent>, scheme: Scheme) {
    let host = request.headers_mut().remove(header::HOST);
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(scheme);
    parts.authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    *request.version_mut() = Version::HTTP_2;
}

/// Moves the host of a request back into its headers, as HTTP/1.1 has it.
pub(crate) fn name_host(request: &mut Request<Sent>) {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    let host = parts.authority.take().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    parts.scheme = None;
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    if let Some(host) = host {
        request.headers_mut().insert(header::HOST, host);
    }
    *request.version_mut() = Version::HTTP_11;
}

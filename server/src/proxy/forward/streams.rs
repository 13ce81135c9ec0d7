//! The HTTP/2 connections to one upstream, each shared by many requests.
//!
//! A connection takes requests until its peer's limit on streams is reached, or [`MOST`]; then
//! another one is opened. One whose peer says goodbye, or is silent for a whole time-out, takes no
//! other request. The requests on it go on.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{self, HeaderValue};
use hyper::http::uri::{Authority, Scheme, Uri};
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::bodies::Sent;
use super::connect::{BoxError, Failure, Link};
use super::exchange::{Unanswered, unanswered};

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
pub(crate) struct Streams(Mutex<Vec<Arc<Connection>>>);

struct Connection {
    /// `None` once the connection has ended.
    sender: Mutex<Option<SendRequest<Sent>>>,
    ended: watch::Receiver<()>,
    /// The streams that the peer allows.
    limit: Arc<AtomicUsize>,
    used: AtomicUsize,
    /// No other request is to be sent.
    is_retired: AtomicBool,
    start: Instant,
    /// Milliseconds from `start` to the last head of a response.
    last: AtomicU64,
    /// The time-out of the head of a response.
    patience: Duration,
}

/// A stream of a connection, until its response has ended.
pub(crate) struct Stream {
    of: Arc<Connection>,
    since: Instant,
    is_answered: bool,
}

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
        let is_idle = |it: &Arc<Connection>| it.used.load(Relaxed) == 0 && it.last().elapsed() >= longest;
        self.connections().retain(|connection| connection.is_open() && !is_idle(connection));
    }

    /// Begins HTTP/2 on a new connection, and returns a stream of it.
    ///
    /// The function waits for the peer's settings: they tell the number of streams, and that the
    /// peer speaks HTTP/2 at all.
    pub(crate) async fn begin(&self, link: Link, patience: Duration) -> Result<Stream, BoxError> {
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
        let (ends, ended) = watch::channel(());
        let (used, last) = (AtomicUsize::new(1), AtomicU64::new(0));
        let (is_retired, start) = (AtomicBool::new(false), Instant::now());
        let (told, sender) = (limit.clone(), Mutex::new(Some(sender)));
        let shared = Connection { sender, ended, limit, used, is_retired, start, last, patience };
        let shared = Arc::new(shared);
        let driven = Arc::downgrade(&shared);
        // Its errors are those of its requests.
        tokio::spawn(async move {
            let driving = poll_fn(|context| {
                let ended = Pin::new(&mut connection).poll(context);
                told.store(connection.current_max_send_streams(), Relaxed);
                ended.map(drop)
            });
            driving.await;
            drop((driven.upgrade().and_then(|shared| shared.sender().take()), ends));
        });
        self.connections().push(shared.clone());
        Ok(Stream::of(shared))
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    fn is_open(&self) -> bool {
        !self.is_retired.load(Relaxed) && self.sender().as_ref().is_some_and(SendRequest::is_ready)
    }

    fn sender(&self) -> MutexGuard<'_, Option<SendRequest<Sent>>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller holds the lock, so no stream is taken concurrently.
    fn take(this: &Arc<Connection>) -> Option<Stream> {
        let most = this.limit.load(Relaxed).min(MOST);
        (this.used.load(Relaxed) < most).then(|| {
            this.used.fetch_add(1, Relaxed);
            Stream::of(this.clone())
        })
    }

    /// Returns the time of the last head of a response, or that of the begin.
    fn last(&self) -> Instant {
        self.start + Duration::from_millis(self.last.load(Relaxed))
    }
}

impl Stream {
    fn of(connection: Arc<Connection>) -> Stream {
        Stream { of: connection, since: Instant::now(), is_answered: false }
    }

    /// Sends a request.
    ///
    /// A request may enter the queue of a connection at the moment at which that ends. Then it
    /// comes back once no sender is left.
    pub(crate) async fn send(
        &mut self,
        mut request: Request<Sent>,
        scheme: Scheme,
    ) -> Result<Response<Incoming>, Unanswered> {
        let Some(mut sender) = self.of.sender().clone() else {
            return Err((Failure::Unreached("the connection has ended".into()), Some(Box::new(request))));
        };
        let mut ended = self.of.ended.clone();
        name_authority(&mut request, scheme);
        let mut answer = pin!(sender.try_send_request(request));
        let answered = tokio::select! {
            biased;
            answered = answer.as_mut() => answered,
            // The other end is dropped with the connection.
            _ = ended.changed() => {
                drop(sender);
                answer.await
            }
        };
        // An error is a word of the upstream, too, or the end of the connection.
        self.is_answered = true;
        self.of.last.store(self.of.start.elapsed().as_millis() as u64, Relaxed);
        let mut failed = match answered {
            Ok(response) => return Ok(response),
            Err(error) => unanswered(error),
        };
        if let (_, Some(unsent)) = &mut failed {
            // The connection is about to end.
            self.of.is_retired.store(true, Relaxed);
            name_host(unsent);
        }
        Err(failed)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.of.used.fetch_sub(1, Relaxed);
        // The time-out began with the attempt, a little before.
        let is_late = !self.is_answered && self.since.elapsed() >= self.of.patience / 2;
        if is_late && self.of.last() <= self.since {
            self.of.is_retired.store(true, Relaxed);
        }
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
fn name_host(request: &mut Request<Sent>) {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    let host = parts.authority.take().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    parts.scheme = None;
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    if let Some(host) = host {
        request.headers_mut().insert(header::HOST, host);
    }
    *request.version_mut() = Version::HTTP_11;
}

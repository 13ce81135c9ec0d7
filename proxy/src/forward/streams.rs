//! The HTTP/2 connections to one upstream, each shared by many requests.
//!
//! A connection takes requests until its peer's limit on streams is reached, or [`MOST`]; then
//! another one is opened. One whose peer says goodbye, or is silent for a whole time-out, takes no
//! other request. The requests on it go on.
//!
//! A response that breaks the rules of HTTP/2 may end its connection, with the requests of others.
//! After that, fewer requests share a connection, down to one: [`Sharers`]. A request that is sent
//! again has a connection of its own.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use h2::Reason;
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
/// The factor by which fewer requests share a connection after one has broken under several.
const FEWER: usize = 4;
/// The time without such a fault after which that many more share one again.
const CALM: Duration = Duration::from_secs(60);
/// The most bytes of one response that wait for its client.
const WINDOW: u32 = 128 << 10;
/// The longest head of a response.
const HEAD: usize = 64 << 10;
/// The longest head that h2 reads. A longer one may end the connection, and with it all requests
/// on it. So this bound is above that of a head.
const HEAD_READ: u32 = 1 << 20;
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
    sharers: Arc<Sharers>,
}

/// The most requests that share a connection.
struct Sharers {
    start: Instant,
    /// The most after the last fault, and milliseconds from `start` to it.
    after: AtomicUsize,
    at: AtomicU64,
}

struct Connection {
    /// `None` once the connection has ended.
    sender: Mutex<Option<SendRequest<Sent>>>,
    ended: watch::Receiver<()>,
    /// The streams that the peer allows.
    limit: Arc<AtomicUsize>,
    used: AtomicUsize,
    sharers: Arc<Sharers>,
    /// No other request is to be sent.
    is_retired: AtomicBool,
    is_broken: AtomicBool,
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
        let most = self.sharers.most();
        connections.iter().find_map(|connection| Connection::take(connection, most))
    }

    /// Returns whether a new connection is for several requests.
    pub(crate) fn are_shared(&self) -> bool {
        self.sharers.most() > 1
    }

    /// Drops the connections that were idle for a time.
    pub(crate) fn drop_idle(&self, longest: Duration) {
        let is_idle = |it: &Arc<Connection>| it.used.load(Relaxed) == 0 && it.last().elapsed() >= longest;
        self.connections().retain(|connection| connection.is_open() && !is_idle(connection));
    }

    /// Begins HTTP/2 on a new connection, and returns a stream of it, which is the only one if
    /// `alone` is true.
    ///
    /// The function waits for the peer's settings: they tell the number of streams, and that the
    /// peer speaks HTTP/2 at all.
    pub(crate) async fn begin(
        &self,
        link: Link,
        patience: Duration,
        alone: bool,
    ) -> Result<Stream, BoxError> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .initial_max_send_streams(0)
            .initial_stream_window_size(WINDOW)
            // No response that waits for its client stops the others of the connection.
            .initial_connection_window_size(WINDOW * MOST as u32)
            .max_header_list_size(HEAD_READ)
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
        let (is_retired, is_broken) = (AtomicBool::new(false), AtomicBool::new(false));
        let (start, sharers) = (Instant::now(), self.sharers.clone());
        let (told, sender) = (limit.clone(), Mutex::new(Some(sender)));
        let shared =
            Connection { sender, ended, limit, used, sharers, is_retired, is_broken, start, last, patience };
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
        if !alone {
            self.connections().push(shared.clone());
        }
        Ok(Stream::of(shared))
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Sharers {
    fn default() -> Sharers {
        Sharers { start: Instant::now(), after: AtomicUsize::new(MOST), at: AtomicU64::new(0) }
    }
}

impl Sharers {
    /// Returns the most requests that share a connection now.
    fn most(&self) -> usize {
        let after = self.after.load(Relaxed);
        if after == MOST { MOST } else { self.recovered(after) }
    }

    #[cold]
    fn recovered(&self, after: usize) -> usize {
        let calm = self.start.elapsed().saturating_sub(Duration::from_millis(self.at.load(Relaxed)));
        let steps = (calm.as_secs() / CALM.as_secs()).min(u64::from(usize::BITS)) as u32;
        after.saturating_mul(FEWER.saturating_pow(steps)).min(MOST)
    }

    /// Notes a connection that broke under several requests.
    ///
    /// Relaxed: of faults at the same time, one may be lost.
    #[cold]
    fn note_fault(&self) {
        let fewer = (self.most() / FEWER).max(1);
        self.at.store(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX), Relaxed);
        self.after.store(fewer, Relaxed);
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
    fn take(this: &Arc<Connection>, most: usize) -> Option<Stream> {
        let most = this.limit.load(Relaxed).min(most);
        (this.used.load(Relaxed) < most).then(|| {
            this.used.fetch_add(1, Relaxed);
            Stream::of(this.clone())
        })
    }

    /// Notes the failure of one of its requests: the fault of one may have ended all of them.
    #[cold]
    fn note_failure(&self, failure: &Failure) {
        let is_broken = matches!(failure, Failure::Broken(_)) && !self.is_broken.swap(true, Relaxed);
        if is_broken && self.used.load(Relaxed) > 1 {
            self.sharers.note_fault();
        }
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
            Ok(response) if has_long_head(&response) => {
                return Err((Failure::Reset(Reason::PROTOCOL_ERROR), None));
            }
            Ok(response) => return Ok(response),
            Err(error) => unanswered(error),
        };
        self.of.note_failure(&failed.0);
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

/// Returns whether a head is over its bound, by the count of HTTP/2 (RFC 9113, 6.5.2).
fn has_long_head(response: &Response<Incoming>) -> bool {
    let fields = response.headers().iter();
    fields.map(|(name, value)| name.as_str().len() + value.len() + 32).sum::<usize>() > HEAD
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_fault_leaves_fewer_sharers_and_each_calm_minute_more() {
        let sharers = Sharers::default();
        for most in [100, 25, 6, 1, 1] {
            assert_eq!(sharers.most(), most);
            sharers.note_fault();
        }
        for most in [1, 4, 16, 64, 100, 100] {
            assert_eq!(sharers.most(), most);
            tokio::time::advance(CALM).await;
        }
        sharers.note_fault();
        assert_eq!(sharers.most(), 25);
    }
}

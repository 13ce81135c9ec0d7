//! The connections to one upstream: those that are kept alive, and new ones.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep};

use super::bodies::Sent;
use super::connect::{BoxError, Failure, Link, connect};
use super::exchange::{Unanswered, exchange};
use super::streams::{Stream, Streams};
use super::trust::Trust;
use crate::config::settings::{Settings, Timeouts, Upstream};
use tollgate_common::net::threads;

/// The time for which an idle connection is kept, and a quarter of that more.
const IDLE: Duration = Duration::from_secs(60);
/// The longest head of a response, and the most bytes of its body in one read.
const READ: usize = 64 << 10;

/// A connection, and since when it is idle.
type Idle = (SendRequest<Sent>, Instant);

/// The connections to one upstream.
///
/// A task of its own drives each connection, so that the end of an idle one is seen at once.
pub(crate) struct Pool {
    pub(super) to: Upstream,
    pub(super) timeouts: Timeouts,
    /// The most idle connections of a thread.
    most: usize,
    /// The idle connections of each thread. The one that was used last is the last.
    idle: Vec<Mutex<Vec<Idle>>>,
    /// The rest of a pool whose upstream may speak HTTP/2, and so say of a request that it was not
    /// looked at.
    pub(super) shared: Option<Sharing>,
}

/// The connections that many requests share, and the way to another one.
pub(super) struct Sharing {
    pub(super) streams: Streams,
    pub(super) trust: Option<Trust>,
    /// The lock of the request that connects for all that wait.
    pub(super) connecting: tokio::sync::Mutex<()>,
    /// Whether the upstream chose HTTP/1.1 the last time.
    pub(super) is_http1: AtomicBool,
}

/// The connection of a response that has not ended, or a part of one.
pub(crate) enum Used {
    /// `home` is the index of the thread that drives it.
    Whole {
        pool: Arc<Pool>,
        sender: SendRequest<Sent>,
        home: usize,
    },
    Part {
        _stream: Box<Stream>,
    },
}

/// The outcome of an attempt.
pub(crate) type Answered = Result<(Response<Incoming>, Option<Used>), Unanswered>;

impl Pool {
    /// Makes the pool of an upstream. A runtime must be running.
    pub(crate) fn new(to: Upstream, settings: &Settings, most: usize) -> Arc<Pool> {
        let shared = matches!(to, Upstream::Tls(_) | Upstream::H2c(_)).then(|| Sharing {
            streams: Streams::default(),
            trust: Trust::new(&to, settings),
            connecting: tokio::sync::Mutex::default(),
            is_http1: AtomicBool::new(false),
        });
        let timeouts = settings.timeouts.clone();
        let idle: Vec<_> = (0..threads::count()).map(|_| Mutex::default()).collect();
        let pool = Arc::new(Pool { to, timeouts, most: most.div_ceil(idle.len()), idle, shared });
        let weak = Arc::downgrade(&pool);
        tokio::spawn(async move {
            while let Some(pool) = weak.upgrade() {
                for home in 0..pool.idle.len() {
                    pool.idle(home).retain(|(sender, since)| !sender.is_closed() && since.elapsed() < IDLE);
                }
                if let Some(shared) = &pool.shared {
                    shared.streams.drop_idle(IDLE);
                }
                drop(pool);
                sleep(IDLE / 4).await;
            }
        });
        pool
    }

    /// Sends a request over a connection, which is a new one if `fresh` is true or none is idle. A
    /// connection that closes before it has taken the request is passed over.
    pub(crate) async fn send(self: &Arc<Self>, mut request: Request<Sent>, fresh: bool) -> Answered {
        if self.shared.is_some() {
            return self.send_by_choice(request, fresh).await;
        }
        while let Some((sender, home)) = if fresh { None } else { self.take() } {
            match exchange(sender, request).await {
                Ok((response, sender)) => return Ok((response, self.used(sender, home))),
                Err((_, Some(unsent))) => request = *unsent,
                Err(failed) => return Err(failed),
            }
        }
        let sender = match self.open().await {
            Ok(sender) => sender,
            Err(failure) => return Err((failure, Some(Box::new(request)))),
        };
        let (response, sender) = exchange(sender, request).await?;
        Ok((response, self.used(sender, threads::index())))
    }

    pub(super) fn used(self: &Arc<Self>, sender: Option<SendRequest<Sent>>, home: usize) -> Option<Used> {
        sender.map(|sender| Used::Whole { pool: self.clone(), sender, home })
    }

    async fn open(&self) -> Result<SendRequest<Sent>, Failure> {
        // Most requests find an idle connection, so this future has memory of its own.
        let link = Box::pin(connect(&self.to, &self.timeouts)).await?;
        begin(link).await.map_err(Failure::Unreached)
    }

    /// Takes the idle connection that was used last, and may take a request: one of this thread, or
    /// else of another. Returns the index of the thread as well.
    pub(super) fn take(&self) -> Option<(SendRequest<Sent>, usize)> {
        let (own, all) = (threads::index(), self.idle.len());
        (own..own + all).find_map(|home| {
            let mut idle = self.idle(home % all);
            let at = idle.iter().rposition(|(sender, _)| sender.is_ready())?;
            Some((idle.remove(at).0, home % all))
        })
    }

    fn idle(&self, home: usize) -> MutexGuard<'_, Vec<Idle>> {
        self.idle[home].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Used {
    /// Returns the connection to the pool once its response has ended. Its task may need a moment
    /// more until it takes another request.
    pub(crate) fn keep(self) {
        let Used::Whole { pool, sender, home } = self else { return };
        let mut idle = pool.idle(home);
        if idle.len() >= pool.most {
            idle.retain(|(sender, _)| !sender.is_closed());
        }
        if idle.len() < pool.most && !sender.is_closed() {
            idle.push((sender, Instant::now()));
        }
    }
}

/// Begins HTTP/1.1 on a new connection.
pub(super) async fn begin(link: Link) -> Result<SendRequest<Sent>, BoxError> {
    // Most requests are a head alone, which a list of parts would make dearer.
    let handshake = http1::Builder::new().max_buf_size(READ).writev(false).handshake(TokioIo::new(link));
    let (sender, connection) = handshake.await?;
    // Its errors are those of its requests.
    tokio::spawn(connection.with_upgrades());
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{BodyExt, Either, Full};
    use hyper::http::uri::Authority;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::config::settings::Settings;

    /// Returns a pool of `most` idle connections to a listener.
    async fn pool(most: usize) -> (Arc<Pool>, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let to = Upstream::Tcp(Authority::from_maybe_shared(address).unwrap());
        (Pool::new(to, &Settings::default(), most), listener)
    }

    /// Answers the next request of a connection.
    async fn answer(connection: &mut TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(connection.read_u8().await.unwrap());
        }
        connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    }

    fn request() -> Request<Sent> {
        Request::new(Either::Left(Full::<Bytes>::default()))
    }

    /// Sends a request over a new connection, and returns both of its ends once it may be kept.
    async fn used(pool: &Arc<Pool>, listener: &TcpListener) -> (Used, TcpStream) {
        let upstream = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            answer(&mut connection).await;
            connection
        };
        let (sent, connection) = tokio::join!(pool.send(request(), true), upstream);
        let Ok((response, Some(mut used))) = sent else { panic!("there is a response") };
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
        let Used::Whole { sender, .. } = &mut used else { panic!("HTTP/1.1 shares nothing") };
        sender.ready().await.unwrap();
        (used, connection)
    }

    #[tokio::test]
    async fn an_idle_connection_takes_the_next_request() {
        let (pool, listener) = pool(9).await;
        let (used, mut connection) = used(&pool, &listener).await;
        used.keep();
        let (sent, ()) = tokio::join!(pool.send(request(), false), answer(&mut connection));
        assert!(sent.is_ok());
        assert!(pool.idle(0).is_empty(), "it is in use");
    }

    #[tokio::test]
    async fn an_idle_connection_of_another_thread_is_used_and_goes_back_to_it() {
        let (pool, listener) = pool(9).await;
        let (mut used, _connection) = used(&pool, &listener).await;
        let last = pool.idle.len() - 1;
        let Used::Whole { home, .. } = &mut used else { panic!("HTTP/1.1 shares nothing") };
        *home = last;
        used.keep();
        let (sender, home) = pool.take().expect("it is idle");
        pool.used(Some(sender), home).expect("it is open").keep();
        assert_eq!((home, pool.idle(last).len()), (last, 1));
    }

    #[tokio::test]
    async fn no_more_connections_are_kept_than_may_be_idle() {
        let (pool, listener) = pool(1).await;
        let (first, _kept) = used(&pool, &listener).await;
        let (second, mut closed) = used(&pool, &listener).await;
        first.keep();
        second.keep();
        assert_eq!(pool.idle(0).len(), 1);
        assert_eq!(closed.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn an_idle_connection_is_closed_after_its_time() {
        let (pool, listener) = pool(9).await;
        let (used, mut connection) = used(&pool, &listener).await;
        used.keep();
        tokio::time::pause();
        let start = Instant::now();
        assert_eq!(connection.read(&mut [0]).await.unwrap(), 0);
        assert!((IDLE..IDLE * 3 / 2).contains(&start.elapsed()), "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn a_connection_that_has_ended_is_passed_over() {
        let (pool, listener) = pool(9).await;
        let (used, connection) = used(&pool, &listener).await;
        used.keep();
        drop(connection);
        while !pool.idle(0)[0].0.is_closed() {
            tokio::task::yield_now().await;
        }
        let upstream = async { answer(&mut listener.accept().await.unwrap().0).await };
        let (sent, ()) = tokio::join!(pool.send(request(), false), upstream);
        assert!(sent.is_ok());
    }
}

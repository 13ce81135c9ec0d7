//! Serving clients, and no longer serving them: whoever has connected is answered.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::forward::Forward;
use crate::limits::Limits;
use crate::say;
use crate::upstream::{Body, accept};

/// How long requests under way may take to finish once a signal says stop.
const DRAIN: Duration = Duration::from_secs(10);
/// How long a connection may be silent from then on before it is closed. A client that keeps asking is told by its next
/// response; to close at once would reset the connection under a request that is on its way.
const SILENCE: Duration = Duration::from_secs(1);

/// What every connection shares.
pub(crate) struct Proxy {
    limits: Arc<Limits>,
    forward: Forward,
    /// Each response is the last of its connection.
    closing: AtomicBool,
}

impl Proxy {
    pub(crate) fn new(limits: Arc<Limits>, forward: Forward) -> Self {
        Self { limits, forward, closing: AtomicBool::new(false) }
    }

    async fn answer(&self, peer: IpAddr, request: Request<Incoming>) -> Response<Body> {
        let mut response = self.limits.send(peer, request, |request| self.forward.send(peer, request)).await;
        // Relaxed: nothing else is read that was written before it.
        if self.closing.load(Relaxed) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Serves up to `clients` connections at a time until `stop`, then waits for the requests under way.
pub(crate) async fn serve(
    proxy: Arc<Proxy>,
    listener: TcpListener,
    clients: usize,
    stop: impl Future<Output = ()>,
) {
    let draining = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(clients));
    let mut stop = std::pin::pin!(stop);
    loop {
        // A client that finds no place waits in the listener's backlog.
        let next = async { (places.clone().acquire_owned().await, accept(&listener).await) };
        let (place, client) = tokio::select! {
            (place, client) = next => (place.expect("nobody closes it"), client),
            () = &mut stop => break,
        };
        connect(&proxy, &draining, place, client);
    }
    proxy.closing.store(true, Relaxed);
    accept_backlog(listener, |client| match places.clone().try_acquire_owned() {
        Ok(place) => {
            connect(&proxy, &draining, place, client);
            true
        }
        Err(_) => false,
    });
    say(format_args!("draining {} connections", draining.count()));
    let silent = tokio::time::Instant::now() + SILENCE;
    while draining.count() > 0 && tokio::time::Instant::now() < silent {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let _ = tokio::time::timeout(DRAIN, draining.shutdown()).await;
}

/// Takes all that have connected meanwhile, for whom it looks as if they were accepted; then closes the listener. The system is
/// asked, since the runtime learns of them later.
fn accept_backlog(listener: TcpListener, mut take: impl FnMut((TcpStream, SocketAddr)) -> bool) {
    let Ok(listener) = listener.into_std() else { return };
    while let Ok((stream, peer)) = listener.accept() {
        let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
        if let Ok(stream) = stream
            && !take((stream, peer))
        {
            return;
        }
    }
}

fn connect(
    proxy: &Arc<Proxy>,
    draining: &GracefulShutdown,
    place: OwnedSemaphorePermit,
    (stream, peer): (TcpStream, SocketAddr),
) {
    let proxy = proxy.clone();
    // One host is one key, whether it comes over IPv4 or IPv4-mapped to a dual-stack socket.
    let peer = peer.ip().to_canonical();
    let service = service_fn(move |request| {
        let proxy = proxy.clone();
        async move { Ok::<_, Infallible>(proxy.answer(peer, request).await) }
    });
    // The timer lets hyper close a connection that has sent no request head for 30 seconds.
    let mut server = http1::Builder::new();
    let connection = server.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    let connection = draining.watch(connection);
    tokio::spawn(async move {
        // An error is a client that left or does not speak HTTP: nobody is there to be told.
        let _ = connection.await;
        drop(place);
    });
}

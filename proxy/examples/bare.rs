//! A proxy of hyper's own parts, with which `verify/rigs/proxy-load` compares `tollgate-proxy`.
//!
//! Each thread has a runtime and connections to the upstream of its own. A request gets three of
//! the seven headers of the proxy. There is no limit, no bound on times or places, and no retry.
//!
//! ```sh
//! cargo run --release -p tollgate-proxy --example bare -- 127.0.0.1:8000
//! ```

use std::cell::RefCell;
use std::error::Error;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONNECTION, HeaderName, HeaderValue, VIA};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::runtime;
use tokio::sync::mpsc;

type BoxError = Box<dyn Error + Send + Sync>;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

thread_local! {
    /// The connections of this thread to the upstream, of which some may be in use.
    static KEPT: RefCell<Vec<SendRequest<Incoming>>> = const { RefCell::new(Vec::new()) };
}

fn main() -> Result<(), BoxError> {
    let upstream = std::env::args().nth(1).ok_or("the address of the upstream is missing")?.parse()?;
    let threads = thread::available_parallelism()?.get();
    let senders = Vec::from_iter((0..threads).map(|_| {
        let (sender, sockets) = mpsc::unbounded_channel();
        thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_io().build();
            runtime.expect("a runtime").block_on(serve(sockets, upstream));
        });
        sender
    }));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("on http://{}", listener.local_addr()?);
    for (socket, sender) in listener.incoming().zip(senders.iter().cycle()) {
        sender.send(socket?)?;
    }
    Ok(())
}

async fn serve(mut sockets: mpsc::UnboundedReceiver<TcpStream>, upstream: SocketAddr) {
    while let Some(socket) = sockets.recv().await {
        // An error is a connection that has ended already.
        let (Ok(peer), Ok(socket)) = (socket.peer_addr(), in_runtime(socket)) else { continue };
        let service = service_fn(move |request| forward(request, peer.ip(), upstream));
        let server = hyper::server::conn::http1::Builder::new();
        tokio::spawn(server.serve_connection(socket, service));
    }
}

async fn forward(
    mut request: Request<Incoming>,
    peer: IpAddr,
    upstream: SocketAddr,
) -> Result<Response<Incoming>, BoxError> {
    let headers = request.headers_mut();
    headers.remove(CONNECTION);
    headers.insert(X_FORWARDED_FOR, HeaderValue::try_from(peer.to_string())?);
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
    headers.insert(VIA, HeaderValue::from_static("1.1 bare"));
    let kept = KEPT.with_borrow_mut(|kept| {
        kept.retain(|sender| !sender.is_closed());
        kept.iter().rposition(SendRequest::is_ready).map(|at| kept.swap_remove(at))
    });
    let mut sender = match kept {
        Some(sender) => sender,
        None => connect(upstream).await?,
    };
    let mut response = sender.send_request(request).await?;
    KEPT.with_borrow_mut(|kept| kept.push(sender));
    response.headers_mut().remove(CONNECTION);
    Ok(response)
}

async fn connect(upstream: SocketAddr) -> Result<SendRequest<Incoming>, BoxError> {
    let socket = in_runtime(TcpStream::connect(upstream)?)?;
    let (sender, connection) = hyper::client::conn::http1::handshake(socket).await?;
    tokio::spawn(connection);
    Ok(sender)
}

fn in_runtime(socket: TcpStream) -> std::io::Result<TokioIo<tokio::net::TcpStream>> {
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    tokio::net::TcpStream::from_std(socket).map(TokioIo::new)
}

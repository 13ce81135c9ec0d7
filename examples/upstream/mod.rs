//! The upstream that the examples bring along: it answers with the head of the request, or streams
//! the body back if there is one.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::http::uri::{Authority, Scheme};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// The pause after an `accept` that failed, which is nearly always for want of descriptors.
const BACK_OFF: Duration = Duration::from_millis(20);

pub(crate) type Body = Either<Incoming, Full<Bytes>>;

/// Serves on a free port of this host until the process ends.
pub(crate) async fn start() -> io::Result<Authority> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move {
        loop {
            let (stream, _) = accept(&listener).await;
            let service = service_fn(async |request| Ok::<_, Infallible>(mirror(request)));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(Authority::from_maybe_shared(address).expect("an address with a port is an authority"))
}

/// Answers with the request's body or, if it has none, with its head.
fn mirror(request: Request<Incoming>) -> Response<Body> {
    if !request.body().is_end_stream() {
        return Response::new(Either::Left(request.into_body()));
    }
    let mut head = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
    for (name, value) in request.headers() {
        head += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    text(StatusCode::OK, head)
}

pub(crate) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // It fails only on a connection that is already gone, as the first read will find
                // out.
                let _ = stream.set_nodelay(true);
                return (stream, peer);
            }
            Err(_) => tokio::time::sleep(BACK_OFF).await,
        }
    }
}

pub(crate) fn text(status: StatusCode, line: impl Into<Bytes>) -> Response<Body> {
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, plain);
    response.body(Either::Right(Full::new(line.into()))).expect("the header is valid")
}

/// Reads `http://HOST[:PORT]`, the option that names another upstream.
pub(crate) fn url(text: &str) -> Result<Authority, &'static str> {
    const FORM: &str = "expected http://HOST or http://HOST:PORT";
    let url = text.parse::<Uri>().map_err(|_| FORM)?;
    if url.scheme() == Some(&Scheme::HTTPS) {
        return Err("https upstreams are not supported, only http");
    }
    let bare = url.scheme() == Some(&Scheme::HTTP) && url.path() == "/" && url.query().is_none();
    let authority =
        url.authority().filter(|authority| bare && !authority.as_str().contains('@')).ok_or(FORM)?;
    // `port` is `None`, too, for one that is not a number below 65,536.
    if authority.port().is_none() && authority.as_str() != authority.host() {
        return Err("the port is not a number from 0 to 65535");
    }
    Ok(authority.clone())
}

//! The upstream that the proxy brings along. It answers with the head of a request as it arrived,
//! or with the body if there is one.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::{Either, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::config::settings::Upstream;

/// The pause after a connection that could not be accepted, for want of a socket.
const REST: Duration = Duration::from_millis(100);

/// Starts the upstream on a free port of this host, where it serves until the process ends.
pub(crate) async fn start() -> io::Result<Upstream> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(serve(listener));
    Ok(Upstream::Tcp(Authority::from_maybe_shared(address).expect("an address with a port is an authority")))
}

async fn serve(listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(REST).await;
            continue;
        };
        let service = service_fn(async |request| Ok::<_, Infallible>(mirror(request)));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

fn mirror<B: Body>(request: Request<B>) -> Response<Either<B, Full<Bytes>>> {
    if !request.body().is_end_stream() {
        return Response::new(Either::Left(request.into_body()));
    }
    let mut head = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
    for (name, value) in request.headers() {
        head += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    let mut response = Response::new(Either::Right(head.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

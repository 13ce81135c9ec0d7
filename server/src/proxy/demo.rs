//! The upstream that the proxy brings along. It answers with the head of a request as it arrived,
//! or with the body if there is one.

use std::io;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use tokio::net::TcpListener;

use super::settings::Upstream;

/// Starts the upstream on a free port of this host, where it serves until the process ends.
pub(crate) async fn start() -> io::Result<Upstream> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let service = Router::new().fallback(mirror);
    tokio::spawn(async { axum::serve(listener, service).await });
    Ok(Upstream::Tcp(Authority::from_maybe_shared(address).expect("an address with a port is an authority")))
}

async fn mirror(request: Request) -> Response {
    if !request.body().is_end_stream() {
        return Response::new(Body::new(request.into_body()));
    }
    let mut head = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
    for (name, value) in request.headers() {
        head += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    head.into_response()
}

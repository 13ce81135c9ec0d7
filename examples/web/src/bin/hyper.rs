//! A server of hyper alone with a limit for each client address. A refusal has its reason in JSON.
//!
//! ```text
//! cargo run --release --manifest-path examples/web/Cargo.toml --bin hyper
//! for _ in 1 2 3 4 5 6; do curl -i http://127.0.0.1:8080/; done
//! ```

use std::convert::Infallible;
use std::error::Error;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tollgate::{Quota, RateLimiter};
use tollgate_http::{ClientIp, Problem, RateLimitLayer};
use tollgate_web_examples::{listen, stop};
use tower::{Layer, ServiceExt, service_fn};

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello\n")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A table: a server in front of the internet has many clients.
    let limiter = RateLimiter::builder(Quota::per_second(5)).max_keys(100_000).inline()?.build();
    let layer =
        RateLimitLayer::builder(limiter).key(ClientIp::peer()).reject_as(Problem::QUOTA_EXCEEDED).build();
    let listener = listen().await?;
    let (draining, mut stop) = (GracefulShutdown::new(), std::pin::pin!(stop()));
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => accepted?,
            () = &mut stop => break,
        };
        // A service for each connection. All of them count together, as the layer has the buckets.
        let service = layer.layer(service_fn(hello)).map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            request
        });
        let mut server = http1::Builder::new();
        let server = server.timer(TokioTimer::new());
        let connection = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        // An error is a client that left.
        tokio::spawn(draining.watch(connection));
    }
    draining.shutdown().await;
    Ok(())
}

//! A server of hyper alone, without tower, with a limit for each client address: it decides on the
//! heads of its requests. A refusal has its reason in JSON.
//!
//! ```text
//! cargo run --release --manifest-path examples/web/Cargo.toml --bin hyper
//! for _ in 1 2 3 4 5 6; do curl -i http://127.0.0.1:8080/; done
//! ```

use std::convert::Infallible;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tollgate::{Quota, RateLimiter};
use tollgate_http::{ClientIp, Head, Problem, RateLimitLayer, ResponseBody, Verdict};
use tollgate_web_examples::{listen, stop};

type Limited = Response<ResponseBody<Full<Bytes>>>;

async fn hello(_: Request<Incoming>) -> Response<Full<Bytes>> {
    Response::new(Full::from("hello\n"))
}

async fn limited(
    layer: RateLimitLayer<IpAddr>,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Limited, Infallible> {
    let passed = match layer.decide(Head::from(&request).with_peer(peer.ip())).await {
        Verdict::Passed(passed) => passed,
        Verdict::Refused(refusal) => return Ok(refusal.map(ResponseBody::from)),
    };
    let mut response = hello(request).await;
    let meter = passed.respond(&mut response);
    Ok(response.map(|body| ResponseBody::metered(body, meter)))
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
        // A clone is the same layer, so all connections count together.
        let layer = layer.clone();
        let service = service_fn(move |request| limited(layer.clone(), peer, request));
        let mut server = http1::Builder::new();
        let connection = server.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
        // An error is a client that left.
        tokio::spawn(draining.watch(connection));
    }
    draining.shutdown().await;
    Ok(())
}

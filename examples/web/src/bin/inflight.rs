//! A server of axum that limits the requests in flight to each of its upstreams.
//!
//! ```text
//! cargo run --release --manifest-path examples/web/Cargo.toml --bin inflight
//! for _ in $(seq 200); do curl -so /dev/null -w '%{http_code}\n' http://127.0.0.1:8080/search & done; wait
//! curl http://127.0.0.1:8080/metrics
//! ```
//!
//! The upstreams are stand-ins: `/search` has two workers, and `/pay` answers at once. Each has an
//! `Inflight` of its own, so a slow search closes no payment.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Method;
use axum::routing::get;
use tokio::sync::Semaphore;
use tollgate::{Quota, RateLimiter};
use tollgate_adaptive::{Inflight, InvalidLimit, Priority};
use tollgate_adaptive::{InflightLayer, prometheus_inflight};
use tollgate_http::{ClientIp, RateLimitLayer};
use tollgate_web_examples::{listen, stop};

/// Nine tenths of the answers come within this: two to three times a calm upstream's.
const TARGET: Duration = Duration::from_millis(100);

fn upstream(name: &str) -> Result<InflightLayer, InvalidLimit> {
    let inflight = Inflight::adaptive(TARGET, 1_000).build()?;
    let layer = InflightLayer::builder(inflight)
        .name(name)
        .expect("it is a name")
        // By the route and the method, which the server knows. Never by a header that a client
        // writes.
        .priority(|head| match *head.method {
            Method::GET => Priority::Default,
            _ => Priority::Critical,
        });
    Ok(layer.build())
}

async fn search(workers: Arc<Semaphore>) -> &'static str {
    let _worker = workers.acquire().await.expect("it is never closed");
    tokio::time::sleep(Duration::from_millis(40)).await;
    "found\n"
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let (searches, payments) =
        (upstream("search").map_err(io::Error::other)?, upstream("pay").map_err(io::Error::other)?);
    let peer = ClientIp::peer_from(|info: &axum::extract::ConnectInfo<std::net::SocketAddr>| info.0.ip());
    let rate = RateLimitLayer::builder(RateLimiter::new(Quota::per_second(1_000))).key(peer).build();
    let workers = Arc::new(Semaphore::new(2));
    let layers = [searches.clone(), payments.clone()];
    let app = Router::new()
        .route("/search", get(move || search(workers.clone())).layer(searches))
        .route("/pay", get(|| async { "paid\n" }).layer(payments))
        // Outside of the limits in flight: a request over its quota takes no place.
        .layer(rate)
        .route(
            "/metrics",
            get(async move || prometheus_inflight(&layers.each_ref().map(InflightLayer::stats))),
        );
    let service = app.into_make_service_with_connect_info::<std::net::SocketAddr>();
    axum::serve(listen().await?, service).with_graceful_shutdown(stop()).await
}

//! A page in a browser that tries a layer: exempt paths, refusals in the log, a ban, a download
//! that costs its bytes, and a request that waits for its turn.
//!
//! ```text
//! cargo run --release --manifest-path examples/web/Cargo.toml --bin axum
//! chromium http://127.0.0.1:8080/
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::response::Html;
use axum::routing::get;
use tollgate::{Quota, RateLimiter};
use tollgate_http::{ClientIp, Cost, DelayLayer, Exempt, Problem, RateLimitLayer, prometheus};
use tollgate_web_examples::{listen, stop};
use tower::ServiceBuilder;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let peer = || ClientIp::peer_from(|info: &ConnectInfo<SocketAddr>| info.0.ip());
    // Tables, for many addresses.
    let limiter = |quota| RateLimiter::builder(quota).max_keys(100_000).inline().map(|it| it.build());

    // 1. The page, the probes and the files take no tokens.
    // 2. Each refusal is a line in the log: at most five lines a second.
    // 3. A client that is refused five times in half a minute is banned for ten seconds.
    let requests = RateLimitLayer::builder(limiter(Quota::every(Duration::from_secs(2)).burst(3))?)
        .key(peer())
        .name("requests")?
        .exempt(Exempt::paths(["/", "/health", "/stats", "/static/*"])?)
        .log_refusals(Quota::per_second(5))
        .ban_after(5, Duration::from_secs(30))
        .for_(Duration::from_secs(10))?
        .reject_as(Problem::QUOTA_EXCEEDED)
        .build();

    // 4. A download costs its bytes, of which a client has 1,000 a second. The next one is refused
    //    until the bytes of the last one are earned.
    let bytes = RateLimitLayer::builder(limiter(Quota::per_second(1_000).burst(5_000))?)
        .key(peer())
        .name("bytes")?
        .settle_on(|_| Cost::bytes())
        .build();

    // 5. A request over its limit waits for up to one second.
    let line = RateLimitLayer::builder(limiter(Quota::per_second(2))?).key(peer()).name("line")?.build();
    let delay = DelayLayer::new(Duration::from_secs(1)).max_waiting(100);

    let layers = (requests.clone(), bytes.clone(), line.clone());
    let stats = async move || prometheus(&[layers.0.stats(), layers.1.stats(), layers.2.stats()]);
    let app = Router::new()
        .route("/", get(|| async { Html(include_str!("axum.html")) }))
        .route("/health", get(|| async { "healthy\n" }))
        .route("/static/logo.txt", get(|| async { "tollgate\n" }))
        .route("/stats", get(stats))
        .route("/hello", get(|| async { "hello\n" }))
        .layer(requests)
        .route("/download", get(|| async { vec![b'x'; 4_000] }).layer(bytes))
        .route(
            "/slow",
            get(|| async { "your turn\n" }).layer(ServiceBuilder::new().layer(delay).layer(line)),
        );
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listen().await?, service).with_graceful_shutdown(stop()).await?)
}

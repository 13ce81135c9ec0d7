//! A server of axum with a limit for each client address.
//!
//! ```text
//! cargo run --release --manifest-path examples/web/Cargo.toml --bin hello
//! curl -i http://127.0.0.1:8080/
//! ```

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use tollgate::{Quota, RateLimiter};
use tollgate_http::{ClientIp, RateLimitLayer};
use tollgate_web_examples::{listen, stop};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let limiter = RateLimiter::new(Quota::per_second(1_000));
    let peer = ClientIp::peer_from(|info: &ConnectInfo<SocketAddr>| info.0.ip());
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(RateLimitLayer::builder(limiter).key(peer).build());
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listen().await?, service).with_graceful_shutdown(stop()).await
}

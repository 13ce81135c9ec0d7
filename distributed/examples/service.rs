//! A service of axum in several processes, which hold one limit on a Redis.
//!
//! ```text
//! cargo run -p tollgate-distributed --features redis,http --example service 127.0.0.1:3000
//! cargo run -p tollgate-distributed --features redis,http --example service 127.0.0.1:3001
//! ```

use axum::{Router, extract::ConnectInfo, routing::get};
use std::{env, net::SocketAddr};
use tollgate::Quota;
use tollgate_distributed::{DistributedLimiter, OnOutage, RedisStore};
use tollgate_http::{ClientIp, RateLimitLayer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = env::args().nth(1).unwrap_or("127.0.0.1:3000".into());
    let redis = env::var("REDIS_URL").unwrap_or("redis://localhost".into());
    // `lazy` connects at the first request: the service also starts without the server.
    let store = RedisStore::builder().lazy(&redis)?;
    let limiter = DistributedLimiter::builder(Quota::per_second(5), store).name("clients");
    let limiter = limiter.on_outage(OnOutage::Deny).build()?;
    let layer = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer_from(|info: &ConnectInfo<SocketAddr>| info.0.ip()))
        .build();
    let app = Router::new().route("/", get(|| async { "hello\n" })).layer(layer);

    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

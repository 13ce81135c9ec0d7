//! A server of tonic with a limit for each client address: two calls a second.
//!
//! ```text
//! cargo run --release --manifest-path examples/web/Cargo.toml --bin grpc_server
//! cargo run --release --manifest-path examples/web/Cargo.toml --bin grpc_client
//! ```
//!
//! The service is gRPC's own health service, since it needs no `protoc`; any other goes in its
//! place. A refused call gets `RESOURCE_EXHAUSTED` with the time to wait, before its message is
//! read.

use std::error::Error;

use tollgate::{Quota, RateLimiter};
use tollgate_http::{ClientIp, RateLimitLayer};
use tollgate_web_examples::{listen, stop};
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = RateLimiter::builder(Quota::per_second(2)).max_keys(100_000).inline()?.build();
    let peer = ClientIp::peer_from(|info: &TcpConnectInfo| info.remote_addr().map(|peer| peer.ip()));
    let layer = RateLimitLayer::builder(limiter).key(peer).build();
    let (_, service) = tonic_health::server::health_reporter();
    let incoming = TcpIncoming::from(listen().await?);
    Server::builder()
        .layer(layer)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, stop())
        .await?;
    Ok(())
}

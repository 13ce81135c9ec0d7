//! The servers that `verify/rigs/service-load` sets `tollgate serve` beside.
//!
//! `grpc` is tonic with its transport, which answers `ShouldRateLimit` with as many statuses as
//! there are descriptors. `http` is hyper, with an empty answer. Neither limits.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_prost::ProstCodec;

use tollgate_server::serve::messages::{
    Code, CurrentLimit, DescriptorStatus, RateLimitRequest, RateLimitResponse, WholeSeconds,
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl Service<Request<Body>> for Echo {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(async { Ok(Grpc::new(ProstCodec::default()).unary(Echo, request).await) })
    }
}

impl UnaryService<RateLimitRequest> for Echo {
    type Response = RateLimitResponse;
    type Future = Ready<Result<tonic::Response<RateLimitResponse>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        let limit = CurrentLimit { requests_per_unit: 1_000_000_000, unit: 3, name: String::new() };
        let status = DescriptorStatus {
            code: Code::Ok.into(),
            current_limit: Some(limit),
            limit_remaining: 999_999_999,
            duration_until_reset: Some(WholeSeconds { seconds: 3_000 }),
        };
        ready(Ok(tonic::Response::new(RateLimitResponse {
            overall_code: Code::Ok.into(),
            statuses: vec![status; request.get_ref().descriptors.len()],
            ..RateLimitResponse::default()
        })))
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("echo on http://{}", listener.local_addr()?);
    if std::env::args().nth(1).as_deref() == Some("grpc") {
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        return Ok(Server::builder().add_service(Echo).serve_with_incoming(incoming).await?);
    }
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let empty = service_fn(async |_| Ok::<_, Infallible>(Response::new(String::new())));
        // A connection ends with its client.
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), empty),
        );
    }
}

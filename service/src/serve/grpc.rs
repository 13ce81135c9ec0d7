//! The calls of gRPC: `ShouldRateLimit`, those of reservations, and `Check` and `Watch` of health.

use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use prost::Message;
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;
use tonic::body::Body;
use tonic::server::{ServerStreamingService, UnaryService};

use super::decided::{PATIENCE, decided, grpc, late};
use super::messages::{HealthCheckRequest, HealthCheckResponse, RateLimitRequest, ServingStatus};
use super::reserve::calls;
use super::state::{Condition, MESSAGE, Service};

const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// Answers a call. The answers of a `Watch` go on behind it: a connection that has no other call is
/// idle.
pub(super) async fn answer(service: Arc<Service>, request: Request<Incoming>) -> Response<Body> {
    let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if !kind.starts_with(b"application/grpc") {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return response;
    }
    let read = |bytes: &[u8]| HealthCheckRequest::decode(bytes);
    let answered = match request.uri().path() {
        "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => {
            return decided::<RateLimitRequest>(service, request).await;
        }
        "/grpc.health.v1.Health/Check" => {
            timeout(PATIENCE, grpc(read, MESSAGE).unary(CheckHealth(service), request)).await
        }
        "/grpc.health.v1.Health/Watch" => {
            timeout(PATIENCE, grpc(read, MESSAGE).server_streaming(WatchHealth(service), request)).await
        }
        _ => return of_others(service, request).await,
    };
    answered.unwrap_or_else(|_| late().into_http())
}

/// Answers a call of Kuadrant's service, or of none.
async fn of_others(service: Arc<Service>, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    if let Some(answered) = calls::answer(&service, &path, request).await {
        return answered;
    }
    let known = "there are ShouldRateLimit of Envoy's RateLimitService, CheckRateLimit, Report, Reserve and \
                 Commit of Kuadrant's, and Check and Watch of Health";
    Status::unimplemented(format!("{path} is unknown: {known}")).into_http()
}

/// Returns the status of a service, or `None` if it is unknown.
fn status(health: Condition, service: &str) -> Option<HealthCheckResponse> {
    let status = match health {
        Condition::Serving => ServingStatus::Serving,
        Condition::NotServing | Condition::Stopping => ServingStatus::NotServing,
    };
    matches!(service, "" | "ratelimit" | NAME | calls::NAME)
        .then(|| HealthCheckResponse { status: status.into() })
}

struct CheckHealth(Arc<Service>);

impl UnaryService<HealthCheckRequest> for CheckHealth {
    type Response = HealthCheckResponse;
    type Future = Ready<Result<tonic::Response<HealthCheckResponse>, Status>>;

    fn call(&mut self, request: tonic::Request<HealthCheckRequest>) -> Self::Future {
        let service = &request.get_ref().service;
        let unknown = || Status::not_found(format!("no service has the name {service:?}"));
        ready(status(*self.0.health.borrow(), service).map(tonic::Response::new).ok_or_else(unknown))
    }
}

struct WatchHealth(Arc<Service>);

impl ServerStreamingService<HealthCheckRequest> for WatchHealth {
    type Response = HealthCheckResponse;
    type ResponseStream = HealthChanges;
    type Future = Ready<Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<HealthCheckRequest>) -> Self::Future {
        let name = request.into_inner().service;
        let health = Some(WatchStream::new(self.0.health.subscribe()));
        ready(Ok(tonic::Response::new(HealthChanges { health, name })))
    }
}

/// The health of a service, now and at each change. It ends with the answer that the service stops.
struct HealthChanges {
    health: Option<WatchStream<Condition>>,
    name: String,
}

impl Stream for HealthChanges {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(health) = &mut self.health else { return Poll::Ready(None) };
        let Some(now) = ready!(Pin::new(health).poll_next(cx)) else { return Poll::Ready(None) };
        if now == Condition::Stopping {
            self.health = None;
        }
        let unknown = HealthCheckResponse { status: ServingStatus::ServiceUnknown.into() };
        Poll::Ready(Some(Ok(status(now, &self.name).unwrap_or(unknown))))
    }
}

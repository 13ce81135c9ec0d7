//! The calls of gRPC: `ShouldRateLimit`, and `Check` and `Watch` of health.

use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec};
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic::{Code, Status};
use tonic_prost::{ProstDecoder, ProstEncoder};

use super::messages::{
    HealthCheckRequest, HealthCheckResponse, RateLimitRequest, RateLimitResponse, ServingStatus,
};
use super::state::{Condition, MESSAGE, Service, Undecided};
use crate::net::crowd::Busy;

const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// The longest time for the message of a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// The first size of both buffers of a call, which has room for most messages. That of tonic is
/// 8 KB: of 256 calls at a time, most of the memory of the process.
const BUFFER: usize = 512;

/// Answers a call. The connection is busy until the answer has ended.
pub(super) async fn answer(service: Arc<Service>, busy: Busy, request: Request<Incoming>) -> Response<Body> {
    let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if !kind.starts_with(b"application/grpc") {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return response;
    }
    let statistics = service.clone();
    let answered = match request.uri().path() {
        "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => {
            timeout(PATIENCE, grpc().unary(Ask(service), request)).await
        }
        "/grpc.health.v1.Health/Check" => {
            timeout(PATIENCE, grpc().unary(CheckHealth(service), request)).await
        }
        "/grpc.health.v1.Health/Watch" => {
            timeout(PATIENCE, grpc().server_streaming(WatchHealth(service, Some(busy)), request)).await
        }
        path => {
            let known =
                "there are ShouldRateLimit of Envoy's RateLimitService, and Check and Watch of Health";
            Ok(Status::unimplemented(format!("{path} is unknown: {known}")).into_http())
        }
    };
    let late = || Status::deadline_exceeded(format!("the message did not come within {PATIENCE:?}"));
    exhausted(answered.unwrap_or_else(|_| late().into_http()), &statistics)
}

/// The codec of messages that are mostly short.
struct ShortCodec<Answer, Question>(PhantomData<(Answer, Question)>);

impl<Answer, Question> Codec for ShortCodec<Answer, Question>
where
    Answer: prost::Message + Send + 'static,
    Question: prost::Message + Default + Send + 'static,
{
    type Encode = Answer;
    type Decode = Question;
    type Encoder = ProstEncoder<Answer>;
    type Decoder = ProstDecoder<Question>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(BUFFER, MESSAGE))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::new(BUFFER, MESSAGE))
    }
}

fn grpc<Answer, Question>() -> Grpc<ShortCodec<Answer, Question>>
where
    ShortCodec<Answer, Question>: Codec<Encode = Answer, Decode = Question>,
{
    Grpc::new(ShortCodec(PhantomData)).max_decoding_message_size(MESSAGE)
}

/// Returns the answer with the status of a bound for a message that is too long, which is counted.
fn exhausted(mut response: Response<Body>, service: &Service) -> Response<Body> {
    if let Some(status) = response.headers_mut().get_mut(Status::GRPC_STATUS)
        && status.as_bytes() == (Code::OutOfRange as i32).to_string().as_bytes()
    {
        *status = HeaderValue::from(Code::ResourceExhausted as i32);
        service.counts.statistics.service_error();
    }
    response
}

struct Ask(Arc<Service>);

impl UnaryService<RateLimitRequest> for Ask {
    type Response = RateLimitResponse;
    type Future = Ready<Result<tonic::Response<RateLimitResponse>, Status>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        ready(self.0.ask(request.get_ref()).map(tonic::Response::new).map_err(|undecided| match undecided {
            Undecided::TooLarge(what) => Status::resource_exhausted(what),
            Undecided::Problem(problem) => Status::unknown(problem.to_string()),
        }))
    }
}

/// Returns the status of a service, or `None` if it is unknown.
fn status(health: Condition, service: &str) -> Option<HealthCheckResponse> {
    let status = match health {
        Condition::Serving => ServingStatus::Serving,
        Condition::NotServing | Condition::Stopping => ServingStatus::NotServing,
    };
    matches!(service, "" | "ratelimit" | NAME).then(|| HealthCheckResponse { status: status.into() })
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

struct WatchHealth(Arc<Service>, Option<Busy>);

impl ServerStreamingService<HealthCheckRequest> for WatchHealth {
    type Response = HealthCheckResponse;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;
    type Future = Ready<Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<HealthCheckRequest>) -> Self::Future {
        let (name, mut health) = (request.into_inner().service, self.0.health.subscribe());
        health.mark_changed();
        let unknown = HealthCheckResponse { status: ServingStatus::ServiceUnknown.into() };
        let state = (health, self.1.take());
        // It ends with the answer that the service stops.
        let answers = stream::unfold(Some(state), move |state| {
            let name = name.clone();
            async move {
                let (mut health, busy) = state?;
                health.changed().await.ok()?;
                let now = *health.borrow_and_update();
                let next = (now != Condition::Stopping).then_some((health, busy));
                Some((Ok(status(now, &name).unwrap_or(unknown)), next))
            }
        });
        ready(Ok(tonic::Response::new(Box::pin(answers) as Self::ResponseStream)))
    }
}

//! The calls of gRPC: `ShouldRateLimit`, those of reservations, and `Check` and `Watch` of health.

use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Request, Response, StatusCode};
use prost::{DecodeError, Message};
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstEncoder;

use super::messages::{
    HealthCheckRequest, HealthCheckResponse, RateLimitRequest, RateLimitResponse, ServingStatus,
};
use super::reserve::calls;
use super::room::Roomed;
use super::state::{Condition, MESSAGE, Service, Undecided};

const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// The longest time for the message of a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// The first size of both buffers of a call, which has room for most messages. That of tonic is
/// 8 KB: of 256 calls at a time, most of the memory of the process.
const BUFFER: usize = 512;

/// Answers a call. The answers of a `Watch` go on behind it: a connection that has no other call is
/// idle.
pub(super) async fn answer(service: Arc<Service>, request: Request<Incoming>) -> Response<Body> {
    let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if !kind.starts_with(b"application/grpc") {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return response;
    }
    let answered = match request.uri().path() {
        "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => {
            return decided::<RateLimitRequest>(service, request).await;
        }
        "/grpc.health.v1.Health/Check" => {
            timeout(PATIENCE, grpc().unary(CheckHealth(service), request)).await
        }
        "/grpc.health.v1.Health/Watch" => {
            timeout(PATIENCE, grpc().server_streaming(WatchHealth(service), request)).await
        }
        _ => return of_others(service, request).await,
    };
    answered.unwrap_or_else(|_| late().into_http())
}

fn late() -> Status {
    Status::deadline_exceeded(format!("the message did not come within {PATIENCE:?}"))
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

/// A message that asks for a decision.
pub(super) trait Decide: Read {
    type Answer: Message + Default + 'static;

    fn decide(self, service: &Service) -> impl Future<Output = Result<Self::Answer, Status>> + Send;

    /// Returns the answer to a message that is too long to be read; `None` for an error.
    fn refused(_: &Service, _why: &str) -> Option<Self::Answer> {
        None
    }
}

impl Decide for RateLimitRequest {
    type Answer = RateLimitResponse;

    async fn decide(self, service: &Service) -> Result<RateLimitResponse, Status> {
        Ok(service.ask(&self).await?)
    }

    fn refused(service: &Service, why: &str) -> Option<RateLimitResponse> {
        Some(service.refuse_unread(why))
    }
}

impl From<Undecided> for Status {
    fn from(why: Undecided) -> Status {
        match why {
            Undecided::TooMany(_) => Status::resource_exhausted(why.to_string()),
            Undecided::Problem(_) => Status::unknown(why.to_string()),
        }
    }
}

/// Answers a call that decides. A client chooses the length of its message: one that is too long is
/// refused, as Envoy would let a request pass that is answered by an error.
pub(super) async fn decided<Question: Decide>(
    service: Arc<Service>,
    request: Request<Incoming>,
) -> Response<Body> {
    let request = request.map(|body| Roomed::new(body, &service.room));
    let ask = Ask::<Question>(service.clone(), PhantomData);
    let answered = timeout(PATIENCE, grpc().unary(ask, request)).await;
    let response = answered.unwrap_or_else(|_| late().into_http());
    let Some(status) = response.extensions().get::<Status>() else { return response };
    match status.code() {
        Code::OutOfRange => {
            if let Some(refused) = Question::refused(&service, status.message()) {
                return refusal(&refused);
            }
        }
        // The service has counted its own errors.
        Code::Unknown | Code::ResourceExhausted => (),
        _ => {
            service.counts.statistics.service_error();
            tracing::warn!("a call is answered by an error: {}", status.message());
        }
    }
    response
}

/// Returns a message as the answer to a call.
#[cold]
fn refusal(message: &impl Message) -> Response<Body> {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    let framed = Bytes::from([&[0][..], &length, &message].concat());
    let is_ok = HeaderMap::from_iter([(Status::GRPC_STATUS, HeaderValue::from_static("0"))]);
    let body = Full::new(framed).with_trailers(ready(Some(Ok(is_ok))));
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// A message that is read.
pub(super) trait Read: Sized + Send + 'static {
    fn read(bytes: &[u8]) -> Result<Self, DecodeError>;
}

impl Read for RateLimitRequest {
    fn read(bytes: &[u8]) -> Result<RateLimitRequest, DecodeError> {
        RateLimitRequest::read(bytes)
    }
}

impl Read for HealthCheckRequest {
    fn read(bytes: &[u8]) -> Result<HealthCheckRequest, DecodeError> {
        HealthCheckRequest::decode(bytes)
    }
}

/// The codec of messages that are mostly short.
struct ShortCodec<Answer, Question>(PhantomData<(Answer, Question)>);

impl<Answer: Message + 'static, Question: Read> Codec for ShortCodec<Answer, Question> {
    type Encode = Answer;
    type Decode = Question;
    type Encoder = ProstEncoder<Answer>;
    type Decoder = ShortDecoder<Question>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(BUFFER, BUFFER))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ShortDecoder(PhantomData)
    }
}

struct ShortDecoder<Question>(PhantomData<Question>);

impl<Question: Read> Decoder for ShortDecoder<Question> {
    type Item = Question;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Question>, Status> {
        // The message is in one piece.
        let read = Question::read(bytes.chunk());
        bytes.advance(bytes.remaining());
        read.map(Some).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, BUFFER)
    }
}

fn grpc<Answer: Message + 'static, Question: Read>() -> Grpc<ShortCodec<Answer, Question>> {
    Grpc::new(ShortCodec(PhantomData)).max_decoding_message_size(MESSAGE)
}

struct Ask<Question>(Arc<Service>, PhantomData<Question>);

impl<Question: Decide> UnaryService<Question> for Ask<Question> {
    type Response = Question::Answer;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Question::Answer>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Question>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move { request.into_inner().decide(&service).await.map(tonic::Response::new) })
    }
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

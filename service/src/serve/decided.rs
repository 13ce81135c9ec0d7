//! A call of gRPC that is one message and one answer to it, by a decision.

use std::future::ready;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Request, Response};
use prost::{DecodeError, Message};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstEncoder;

use super::messages::{RateLimitRequest, RateLimitResponse};
use super::room::Roomed;
use super::state::{MESSAGE, Service, Undecided};

/// The longest time for the message of a request.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The first size of both buffers of a call, which has room for most messages. That of tonic is
/// 8 KB: of 256 calls at a time, most of the memory of the process.
const BUFFER: usize = 512;

/// A message that asks for a decision.
pub(super) trait Decide: Sized + Send + 'static {
    type Answer: Message + Default + 'static;
    /// The most bytes of a message.
    const MOST: usize = MESSAGE;

    fn read(bytes: &[u8]) -> Result<Self, DecodeError>;

    fn decide(self, service: &Arc<Service>) -> impl Future<Output = Result<Self::Answer, Status>> + Send;

    /// Returns the answer to a message that is too long to be read; `None` for an error.
    fn refused(_: &Service, _why: &str) -> Option<Self::Answer> {
        None
    }
}

impl Decide for RateLimitRequest {
    type Answer = RateLimitResponse;

    fn read(bytes: &[u8]) -> Result<RateLimitRequest, DecodeError> {
        RateLimitRequest::read(bytes)
    }

    async fn decide(self, service: &Arc<Service>) -> Result<RateLimitResponse, Status> {
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
    let request = request.map(|body| Roomed::new(body, Question::MOST, &service.room));
    let ask = Ask::<Question>(service.clone(), PhantomData);
    let answered = timeout(PATIENCE, grpc(Question::read, Question::MOST).unary(ask, request)).await;
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

pub(super) fn late() -> Status {
    Status::deadline_exceeded(format!("the message did not come within {PATIENCE:?}"))
}

/// Reads a message.
type ReadMessage<Question> = fn(&[u8]) -> Result<Question, DecodeError>;

/// The codec of messages that are mostly short.
pub(super) struct ShortCodec<Answer, Question>(ReadMessage<Question>, PhantomData<Answer>);

impl<Answer, Question> Codec for ShortCodec<Answer, Question>
where
    Answer: Message + 'static,
    Question: Send + 'static,
{
    type Encode = Answer;
    type Decode = Question;
    type Encoder = ProstEncoder<Answer>;
    type Decoder = ShortDecoder<Question>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(BUFFER, BUFFER))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ShortDecoder(self.0)
    }
}

pub(super) struct ShortDecoder<Question>(ReadMessage<Question>);

impl<Question> Decoder for ShortDecoder<Question> {
    type Item = Question;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Question>, Status> {
        // The message is in one piece.
        let read = (self.0)(bytes.chunk());
        bytes.advance(bytes.remaining());
        read.map(Some).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, BUFFER)
    }
}

/// Returns the server of a call whose message is read so, and has at most as many bytes.
pub(super) fn grpc<Answer, Question>(
    read: ReadMessage<Question>,
    most: usize,
) -> Grpc<ShortCodec<Answer, Question>>
where
    Answer: Message + 'static,
    Question: Send + 'static,
{
    Grpc::new(ShortCodec(read, PhantomData)).max_decoding_message_size(most)
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

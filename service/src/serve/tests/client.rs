//! A client of gRPC for tests, and a listener of the service for it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::super::front::{Front, Protocol};
use super::super::messages::{DescriptorEntry, RateLimitDescriptor, RateLimitRequest};
use super::super::reload::Source;
use super::source;
use tollgate_common::net::serving;
use tollgate_common::net::socket::Listener;
use tollgate_common::settings::values::Address;

pub(super) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
pub(super) const WATCH: &str = "/grpc.health.v1.Health/Watch";
/// The connections of a listener.
pub(super) const PLACES: usize = 100;

/// A listener of the service.
pub(super) struct Server {
    pub(super) source: Arc<Source>,
    pub(super) at: SocketAddr,
    pub(super) stop: oneshot::Sender<()>,
    pub(super) serving: JoinHandle<bool>,
}

/// Serves the configuration at a path. One that cannot be loaded is none.
pub(super) fn serve(protocol: Protocol, path: &Path, given: &[(&str, &str)]) -> Server {
    let source = source(path, given);
    let _ = source.load();
    let listener = Listener::bind(&Address::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
    let Address::Tcp(at) = *listener.address() else { unreachable!("it was bound to an address") };
    let front = Front::new(&source.service, protocol, None, PLACES).unwrap();
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(serving::serve(front, listener, stopped));
    Server { source, at, stop, serving }
}

/// A connection of HTTP/2. Its task ends with the connection.
pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
    pub(super) connection: JoinHandle<hyper::Result<()>>,
}

/// The answer to a call: the status, its text, and the messages.
pub(super) type Answered<T> = (i32, String, Vec<T>);

impl Client {
    pub(super) async fn connect(server: &Server) -> Client {
        let stream = TcpStream::connect(server.at).await.unwrap();
        // Else the end of each call waits for an acknowledgement that is late on purpose.
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        Client { sender, connection: tokio::spawn(connection) }
    }

    pub(super) async fn send(
        &mut self,
        path: &str,
        head: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Response<Incoming> {
        let mut request = Request::post(format!("http://localhost{path}")).body(Full::from(body)).unwrap();
        request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        for (name, value) in head {
            let name: hyper::header::HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        self.sender.ready().await.unwrap();
        self.sender.send_request(request).await.unwrap()
    }

    /// Calls, and waits for the end of the answer.
    pub(super) async fn call<T: Message + Default>(
        &mut self,
        path: &str,
        message: &impl Message,
    ) -> Answered<T> {
        answered(self.send(path, &[], framed(message)).await).await
    }
}

/// Returns a message as gRPC sends it.
pub(super) fn framed(message: &impl Message) -> Vec<u8> {
    let length = u32::try_from(message.encoded_len()).unwrap();
    [&[0][..], &length.to_be_bytes(), &message.encode_to_vec()].concat()
}

/// Reads an answer to its end.
pub(super) async fn answered<T: Message + Default>(response: Response<Incoming>) -> Answered<T> {
    let head = response.headers().clone();
    let body = response.into_body().collect().await.unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    let text = |name| {
        let value = head.get(name).or(trailers.get(name)).map(|value| value.to_str().unwrap().to_owned());
        value.unwrap_or_default()
    };
    let (mut bytes, mut messages) = (&body.to_bytes()[..], Vec::new());
    while let Some((prefix, rest)) = bytes.split_at_checked(5) {
        let length = u32::from_be_bytes(prefix[1..].try_into().unwrap());
        let (message, rest) = rest.split_at(length as usize);
        messages.push(T::decode(message).unwrap());
        bytes = rest;
    }
    (text("grpc-status").parse().unwrap(), text("grpc-message"), messages)
}

/// Returns a request of one descriptor.
pub(super) fn request(domain: &str, entries: &[(&str, &str)]) -> RateLimitRequest {
    let entry =
        |&(key, value): &(&str, &str)| DescriptorEntry { key: key.to_owned(), value: value.to_owned() };
    let entries = entries.iter().map(entry).collect();
    let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

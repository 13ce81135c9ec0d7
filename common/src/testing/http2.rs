//! A client of HTTP/2 that writes valid requests.

use std::net::SocketAddr;

use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use hyper::body::Bytes;
use hyper::{Method, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tollgate_testing::wire::{Message, text};

use super::{block_on, spawn};

/// A connection to the proxy.
#[derive(Clone)]
pub struct Http2 {
    sender: SendRequest<Bytes>,
    scheme: &'static str,
}

impl Http2 {
    /// Connects with prior knowledge, without TLS.
    pub fn connect(address: SocketAddr) -> Http2 {
        let stream = block_on(tokio::net::TcpStream::connect(address)).expect("the proxy listens");
        stream.set_nodelay(true).expect("it is open");
        Http2::over(stream, "http")
    }

    pub fn over(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, scheme: &'static str) -> Http2 {
        let (sender, connection) = block_on(h2::client::handshake(io)).expect("the proxy speaks HTTP/2");
        spawn(connection);
        Http2 { sender, scheme }
    }

    pub fn get(&self, path: &str) -> Message {
        self.get_with(path, &[])
    }

    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Message {
        self.send(Method::GET, &format!("{}://a.example{path}", self.scheme), headers, "")
    }

    pub fn send(&self, method: Method, uri: &str, headers: &[(&str, &str)], body: &str) -> Message {
        let request = Request::builder().method(method).uri(uri);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(()).expect("the test writes valid requests");
        block_on(self.clone().whole(request, body.to_owned().into())).expect("a response")
    }

    /// Sends a request without a body, and returns the response, or an error if the stream was
    /// reset.
    pub fn ask(
        &self,
        request: Request<()>,
    ) -> impl Future<Output = Result<Message, h2::Error>> + Send + use<> {
        self.clone().whole(request, Bytes::new())
    }

    async fn whole(self, request: Request<()>, body: Bytes) -> Result<Message, h2::Error> {
        let mut sender = self.sender.ready().await?;
        let (response, mut up) = sender.send_request(request, body.is_empty())?;
        if !body.is_empty() {
            up.send_data(body, true)?;
        }
        let (head, mut body) = response.await?.into_parts();
        let mut bytes = Vec::new();
        while let Some(part) = next(&mut body).await {
            bytes.extend(part?);
        }
        let values = head.headers.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes())));
        let (start, status) = (format!("{:?}", head.version), head.status.as_u16());
        Ok(Message { start, status, headers: values.collect(), body: text(&bytes) })
    }

    /// Begins a request, whose body the test sends unless it is whole. Returns the response.
    pub async fn begin(
        &self,
        request: Request<()>,
        is_whole: bool,
    ) -> (impl Future<Output = Result<Response<RecvStream>, h2::Error>> + use<>, SendStream<Bytes>) {
        let mut sender = self.sender.clone().ready().await.expect("it is open");
        sender.send_request(request, is_whole).expect("it is open")
    }
}

/// Returns a request of gRPC.
pub fn call(path: &str) -> Request<()> {
    let request = Request::post(format!("http://a.example{path}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    request.body(()).expect("the test writes valid requests")
}

pub fn get(path: &str) -> Request<()> {
    Request::get(format!("http://a.example{path}")).body(()).expect("the test writes valid requests")
}

/// Returns the next part of a body, and lets the other side send as many bytes more.
pub async fn next(body: &mut RecvStream) -> Option<Result<Bytes, h2::Error>> {
    let part = body.data().await?;
    if let Ok(part) = &part {
        body.flow_control().release_capacity(part.len()).expect("so many came");
    }
    Some(part)
}

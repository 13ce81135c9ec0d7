//! An upstream of HTTP/2, whose streams the test answers, and a client of HTTP/2.

use std::net::SocketAddr;
use std::sync::Arc;

use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use hyper::body::Bytes;
use hyper::{HeaderMap, Request, Response, StatusCode};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::support::{block_on, spawn};

pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    asked: UnboundedReceiver<Asked>,
    /// The number of connections that were told to end.
    goodbyes: watch::Sender<usize>,
}

/// A request that the upstream has got.
pub(super) struct Asked {
    /// The number of the connection, from 0.
    pub(super) connection: usize,
    pub(super) request: Request<RecvStream>,
    pub(super) respond: SendResponse<Bytes>,
}

impl Upstream {
    /// Starts an upstream that speaks HTTP/2 from the first byte on.
    pub(super) fn start() -> Upstream {
        Upstream::start_with(None, 1_000)
    }

    /// Starts an upstream that allows `streams` streams at a time on each connection.
    pub(super) fn start_with(tls: Option<Arc<ServerConfig>>, streams: u32) -> Upstream {
        let listener = block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let (sender, asked) = unbounded_channel();
        let goodbyes = watch::Sender::new(0);
        let goodbye = goodbyes.subscribe();
        spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (sender, tls, goodbye) = (sender.clone(), tls.clone(), goodbye.clone());
                spawn(async move {
                    match tls {
                        None => serve(stream, connection, streams, sender, goodbye).await,
                        Some(tls) => {
                            // The proxy may not trust this upstream.
                            if let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await {
                                serve(stream, connection, streams, sender, goodbye).await;
                            }
                        }
                    }
                });
            }
        });
        Upstream { address, asked, goodbyes }
    }

    /// Returns the next request.
    pub(super) async fn asked(&mut self) -> Asked {
        self.asked.recv().await.expect("it runs as long as the process")
    }

    /// Tells the next connection to end with its streams.
    pub(super) fn say_goodbye(&self) {
        self.goodbyes.send_modify(|number| *number += 1);
    }
}

async fn serve(
    io: impl AsyncRead + AsyncWrite + Send + Unpin,
    number: usize,
    streams: u32,
    asked: UnboundedSender<Asked>,
    mut goodbyes: watch::Receiver<usize>,
) {
    let handshake = h2::server::Builder::new().max_concurrent_streams(streams).handshake(io).await;
    let Ok(mut connection) = handshake else { return };
    let mut ends = false;
    loop {
        tokio::select! {
            accepted = connection.accept() => match accepted {
                // The test may have ended by then.
                Some(Ok((request, respond))) => drop(asked.send(Asked { connection: number, request, respond })),
                _ => return,
            },
            _ = goodbyes.wait_for(|goodbyes| *goodbyes > number), if !ends => {
                ends = true;
                connection.graceful_shutdown();
            }
        }
    }
}

impl Asked {
    /// Answers with a text as the whole body.
    pub(super) fn answer(&mut self, text: &'static str) {
        let mut body = self.begin();
        body.send_data(Bytes::from(text), true).expect("the proxy reads");
    }

    /// Sends the head of the response.
    pub(super) fn begin(&mut self) -> SendStream<Bytes> {
        self.respond.send_response(Response::new(()), false).expect("the proxy waits")
    }
}

/// A client's connection to the proxy.
pub(super) async fn client(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.expect("the proxy listens");
    let (sender, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
    spawn(connection);
    sender
}

/// Returns a request of gRPC.
pub(super) fn call(path: &str) -> Request<()> {
    let request = Request::post(format!("http://a.example{path}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    request.body(()).expect("the test writes valid requests")
}

pub(super) fn get(path: &str) -> Request<()> {
    Request::get(format!("http://a.example{path}")).body(()).expect("the test writes valid requests")
}

/// Sends a request without a body, and returns the status and the body of its response.
pub(super) async fn ask(
    sender: &SendRequest<Bytes>,
    request: Request<()>,
) -> Result<(StatusCode, String), h2::Error> {
    let mut sender = sender.clone().ready().await?;
    let (response, _) = sender.send_request(request, true)?;
    let (head, mut body) = response.await?.into_parts();
    let mut text = Vec::new();
    while let Some(part) = next(&mut body).await {
        text.extend(part?);
    }
    Ok((head.status, String::from_utf8(text).expect("text")))
}

/// Returns the next part of a body, and lets the other side send as many bytes more.
pub(super) async fn next(body: &mut RecvStream) -> Option<Result<Bytes, h2::Error>> {
    let part = body.data().await?;
    if let Ok(part) = &part {
        body.flow_control().release_capacity(part.len()).expect("so many came");
    }
    Some(part)
}

/// Returns trailers with one field.
pub(super) fn trailers(name: &'static str, value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(name.parse().expect("a name"), value.parse().expect("a value"))])
}

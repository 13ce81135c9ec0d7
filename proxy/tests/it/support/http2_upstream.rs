//! An upstream of HTTP/2, whose streams the test answers.

use std::net::SocketAddr;
use std::sync::Arc;

use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use hyper::body::Bytes;
use hyper::{HeaderMap, Request, Response};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::{Proxy, block_on, spawn};

pub(crate) struct Http2Upstream {
    pub(crate) address: SocketAddr,
    asked: UnboundedReceiver<Asked>,
    /// The number of connections that were told to end.
    goodbyes: watch::Sender<usize>,
}

/// A request that the upstream has got.
pub(crate) struct Asked {
    /// The number of the connection, from 0.
    pub(crate) connection: usize,
    pub(crate) request: Request<RecvStream>,
    pub(crate) respond: SendResponse<Bytes>,
}

impl Http2Upstream {
    /// Starts an upstream that speaks HTTP/2 from the first byte on.
    pub(crate) fn start() -> Http2Upstream {
        Http2Upstream::start_with(None, 1_000)
    }

    /// Starts an upstream that allows `streams` streams at a time on each connection.
    pub(crate) fn start_with(tls: Option<Arc<ServerConfig>>, streams: u32) -> Http2Upstream {
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
        Http2Upstream { address, asked, goodbyes }
    }

    /// Starts a proxy over this upstream.
    pub(crate) fn proxy(&self, options: &str) -> Proxy {
        Proxy::over(&format!("h2c://{}", self.address), options)
    }

    /// Returns the next request.
    pub(crate) async fn asked(&mut self) -> Asked {
        self.asked.recv().await.expect("it runs as long as the process")
    }

    /// Answers the next request, and returns the number of its connection.
    pub(crate) async fn answer(&mut self, text: &'static str) -> usize {
        let mut asked = self.asked().await;
        asked.answer(text);
        asked.connection
    }

    /// Tells the next connection to end with its streams.
    pub(crate) fn say_goodbye(&self) {
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
    pub(crate) fn answer(&mut self, text: &'static str) {
        let mut body = self.begin();
        body.send_data(Bytes::from(text), true).expect("the proxy reads");
    }

    /// Sends the head of the response.
    pub(crate) fn begin(&mut self) -> SendStream<Bytes> {
        self.respond.send_response(Response::new(()), false).expect("the proxy waits")
    }
}

/// Returns trailers with one field.
pub(crate) fn trailers(name: &'static str, value: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(name.parse().expect("a name"), value.parse().expect("a value"))])
}

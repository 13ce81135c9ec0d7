//! Upgraded connections: WebSockets, whose bytes pass both ways unread.

use std::io::{self, Cursor};
use std::pin::pin;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::{Either, select};
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    UPGRADE,
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::time::timeout;

use super::bodies::Held;
use super::connect::Link;
use super::forwarded::{has_token, tokens};

/// The longest time between a response 101 and the upgrade of both connections.
const HANDOVER: Duration = Duration::from_secs(5);
/// The text behind a key (RFC 6455, 1.3).
const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The client's half of a WebSocket handshake.
pub(crate) struct Handshake {
    client: OnUpgrade,
    /// The answer to the client's key.
    accept: String,
    /// The protocols that the client offers.
    protocols: Vec<Vec<u8>>,
}

impl Handshake {
    /// Returns the handshake of a request, once its headers for one connection are dropped: an
    /// `Upgrade` that is left is one.
    pub(crate) fn of(request: &mut Request<Incoming>) -> Option<Box<Handshake>> {
        if !request.headers().contains_key(UPGRADE) {
            return None;
        }
        let key = request.headers().get(SEC_WEBSOCKET_KEY)?;
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), MAGIC].concat());
        let protocols = tokens(request.headers(), &SEC_WEBSOCKET_PROTOCOL).map(<[u8]>::to_vec).collect();
        let accept = BASE64_STANDARD.encode(hash);
        Some(Box::new(Handshake { client: hyper::upgrade::on(request), accept, protocols }))
    }

    /// Returns whether a response 101 answers this handshake (RFC 6455, 4.1).
    pub(crate) fn matches(&self, response: &HeaderMap) -> bool {
        let offers = |chosen: &HeaderValue| self.protocols.iter().any(|offered| offered == chosen.as_bytes());
        has_token(response, &CONNECTION, "upgrade")
            && has_token(response, &UPGRADE, "websocket")
            && response.get(SEC_WEBSOCKET_ACCEPT).is_some_and(|accept| accept == self.accept.as_str())
            && response.get(SEC_WEBSOCKET_PROTOCOL).is_none_or(offers)
    }

    /// Copies both ways once the response is on its way to the client. Holds `flight` until both
    /// connections are closed.
    pub(crate) fn open(self, response: &mut Response<Incoming>, silence: Duration, flight: Option<Held>) {
        let upstream = hyper::upgrade::on(response);
        tokio::spawn(async move {
            let _flight = flight;
            let both = async { tokio::try_join!(self.client, upstream) };
            if let Ok(Ok((client, upstream))) = timeout(HANDOVER, both).await
                && let Err(error) = pass(client, upstream, silence).await
            {
                tracing::debug!(%error, "a tunnel has ended");
            }
        });
    }
}

async fn pass(client: Upgraded, upstream: Upgraded, silence: Duration) -> io::Result<()> {
    let Ok(upstream) = upstream.downcast::<TokioIo<Link>>() else {
        return Err(io::Error::other("the upstream's connection is of another type"));
    };
    copy_both_ways(TokioIo::new(client), upstream.io.into_inner(), &upstream.read_buf, silence).await
}

/// Copies until both ends have closed, or one has failed. Ends after a `silence` of the upstream:
/// without a byte from it, or without a byte that it takes.
async fn copy_both_ways(
    client: impl AsyncRead + AsyncWrite,
    mut upstream: Link,
    early: &[u8],
    silence: Duration,
) -> io::Result<()> {
    upstream.as_mut().set_read_timeout_pinned(Some(silence));
    upstream.as_mut().set_write_timeout_pinned(Some(silence));
    let (mut from_client, mut to_client) = split(client);
    let (from_upstream, mut to_upstream) = split(upstream);
    let mut from_upstream = Cursor::new(early).chain(from_upstream);
    let up = pin!(async {
        copy(&mut from_client, &mut to_upstream).await?;
        to_upstream.shutdown().await
    });
    let down = pin!(async {
        copy(&mut from_upstream, &mut to_client).await?;
        to_client.shutdown().await
    });
    match select(up, down).await {
        Either::Left((up, down)) => {
            up?;
            down.await
        }
        // No byte will come from the upstream any more.
        Either::Right((down, up)) => {
            down?;
            timeout(silence, up).await?
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::{JoinHandle, spawn};
    use tokio::time::{Instant, sleep};
    use tokio_io_timeout::TimeoutStream;

    use super::*;
    use tollgate_common::net::io::Io;

    const SILENCE: Duration = Duration::from_secs(300);

    /// Returns the client, the upstream, and the tunnel between them. It holds the time at its end.
    fn tunnel() -> (DuplexStream, DuplexStream, JoinHandle<(io::Result<()>, Instant)>) {
        let ((client, near), (upstream, far)) = (duplex(64), duplex(64));
        let io: Box<dyn Io> = Box::new(far);
        let link = Box::pin(TimeoutStream::new(io));
        let tunnel = async move { (copy_both_ways(near, link, b"early", SILENCE).await, Instant::now()) };
        (client, upstream, spawn(tunnel))
    }

    /// Waits until the tunnel ends for the silence of its upstream. Returns the time of its end.
    async fn stalled(tunnel: JoinHandle<(io::Result<()>, Instant)>) -> Instant {
        let ended = timeout(SILENCE * 9, tunnel).await.expect("it ends long before");
        let (result, at) = ended.expect("no panic");
        assert_eq!(result.expect_err("the upstream is silent").kind(), io::ErrorKind::TimedOut);
        at
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_with_a_silent_upstream_ends_though_its_client_sends() {
        let (mut client, mut upstream, tunnel) = tunnel();
        let start = Instant::now();
        for _ in 0..3 {
            sleep(SILENCE * 9 / 10).await;
            upstream.write_u8(b'!').await.expect("it is open");
        }
        let last = start.elapsed();
        let sends = spawn(async move {
            while client.write_u8(b'?').await.is_ok() {
                sleep(SILENCE / 10).await;
            }
        });
        let reads = spawn(async move { while upstream.read_u8().await.is_ok() {} });
        let ended = stalled(tunnel).await;
        assert!(ended - start - last <= SILENCE + Duration::from_millis(20), "{:?}", ended - start);
        sends.await.expect("no panic");
        reads.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_whose_upstream_does_not_read_ends() {
        let (mut client, mut upstream, tunnel) = tunnel();
        let sends = spawn(async move { while client.write_u8(b'?').await.is_ok() {} });
        let writes = spawn(async move {
            while upstream.write_u8(b'!').await.is_ok() {
                sleep(SILENCE / 10).await;
            }
        });
        stalled(tunnel).await;
        sends.await.expect("no panic");
        writes.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_whose_upstream_has_sent_all_ends() {
        let (mut client, mut upstream, tunnel) = tunnel();
        upstream.shutdown().await.expect("it is open");
        let mut all = Vec::new();
        client.read_to_end(&mut all).await.expect("it is open");
        assert_eq!(all, b"early");
        let reads = spawn(async move { while upstream.read_u8().await.is_ok() {} });
        let sends = spawn(async move {
            while client.write_u8(b'?').await.is_ok() {
                sleep(SILENCE / 10).await;
            }
        });
        stalled(tunnel).await;
        sends.await.expect("no panic");
        reads.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_passes_the_end_of_each_side_on() {
        let (mut client, mut upstream, tunnel) = tunnel();
        client.write_all(b"question").await.expect("it is open");
        client.shutdown().await.expect("it is open");
        let mut all = Vec::new();
        upstream.read_to_end(&mut all).await.expect("it is open");
        assert_eq!(all, b"question");
        upstream.write_all(b" answer").await.expect("it is open");
        upstream.shutdown().await.expect("it is open");
        all.clear();
        client.read_to_end(&mut all).await.expect("it is open");
        assert_eq!(all, b"early answer");
        tunnel.await.expect("no panic").0.expect("both have ended");
    }
}

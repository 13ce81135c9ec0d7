//! Connections of clients: from a listener to a stream of requests.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_io_timeout::TimeoutWriter;
use tracing::debug;

use super::crowd::Activity;
use super::frames::Calm;
use super::io::Io;
use super::socket::Socket;
use super::tls::Tls;

/// The stream of bytes from a client, once its connection is open.
///
/// A write fails with [`io::ErrorKind::TimedOut`] when the client reads nothing for the time
/// [`Door::slow_reader`]. A read fails after a flood of HTTP/2 frames.
pub type Stream = Box<dyn Io>;

/// The fault of a client for which its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// A PROXY header is missing, malformed or of a peer that is not trusted.
    ProxyHeader,
    TlsHandshake,
    /// The client did not read its response in time.
    SlowReader,
    /// The connection was idle for longest, and left for a new one.
    Idle,
    /// The address has its share of the connections, and all of them are busy.
    Refused,
    /// The client sent a flood of HTTP/2 frames that ask for nothing.
    Flood,
}

/// The function that counts such faults.
pub type Count = Arc<dyn Fn(Closed) + Send + Sync>;

/// The function that reads a header and returns the stream behind it, and the source that the
/// header names. It is `None` if the peer speaks for itself.
pub type Source = Box<dyn Fn(Stream, IpAddr) -> Reading + Send + Sync>;
/// The work of a [`Source`].
pub type Reading = Pin<Box<dyn Future<Output = io::Result<(Stream, Option<IpAddr>)>> + Send>>;

/// The settings for a connection, at the time when it is accepted.
pub struct Door {
    /// Reads the header that connections begin with. `None`: they have none.
    pub source: Option<Source>,
    /// The certificate, if connections are TLS.
    pub tls: Option<Arc<Tls>>,
    /// The longest times for a PROXY header, for a handshake, and for a client that does not read.
    pub header: Duration,
    pub handshake: Duration,
    pub slow_reader: Duration,
    /// The longest time for the bytes that a client still sends after the last answer. A tunnel
    /// reads on behind that answer and would lose them: with zero they are left to it.
    pub rest: Duration,
    pub count: Count,
    /// Notes the bytes of the client.
    pub activity: Arc<Activity>,
}

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The source in the connection's PROXY header. Without a header it is the same as `connected`.
    pub address: IpAddr,
    /// The other end of the socket.
    pub connected: IpAddr,
    pub is_tls: bool,
}

/// Reads the PROXY header and shakes hands for TLS, where the door asks for it.
///
/// A connection that fails to do so in time is counted and closed, and the result is `None`. The
/// function waits for the client, so it belongs in the connection's own task.
pub async fn open(socket: Socket, door: &Door) -> Option<(Stream, Peer)> {
    let Socket { io, peer: connected } = socket;
    let io = io().ok()?;
    let mut io = TimeoutWriter::new(io);
    io.set_timeout(Some(door.slow_reader));
    let (count, activity) = (Some(door.count.clone()), door.activity.clone());
    let mut io: Stream =
        Box::new(SlowReader { io: Box::pin(io), count, activity, rest: door.rest, resting: None });
    let mut address = connected;

    if let Some(source) = &door.source {
        match within(door.header, source(io, connected)).await {
            Ok((behind, source)) => {
                io = behind;
                address = source.unwrap_or(connected);
            }
            Err(error) => {
                debug!(%connected, %error, "closed for its PROXY header");
                (door.count)(Closed::ProxyHeader);
                return None;
            }
        }
    }

    let count = door.count.clone();
    let flooded = move || count(Closed::Flood);
    let Some(tls) = &door.tls else {
        let peer = Peer { address, connected, is_tls: false };
        return Some((Box::new(Calm::new(io, flooded)), peer));
    };
    match within(door.handshake, tls.accept(io)).await {
        Ok(io) => {
            let peer = Peer { address, connected, is_tls: true };
            Some((Box::new(Calm::new(io, flooded)), peer))
        }
        Err(error) => {
            debug!(%address, %connected, %error, "closed for its TLS handshake");
            (door.count)(Closed::TlsHandshake);
            None
        }
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(limit, work).await?
}

/// A socket whose writes fail once the other end takes no byte for a time. The failure is counted,
/// and the bytes from the other end are noted.
///
/// The socket lies below TLS, where a write waits for nothing but the other end.
struct SlowReader {
    io: Pin<Box<TimeoutWriter<Box<dyn Io>>>>,
    /// The function that counts, or `None` once the connection is counted.
    count: Option<Count>,
    activity: Arc<Activity>,
    rest: Duration,
    /// The time for the rest of the client's bytes, once it began.
    resting: Option<Pin<Box<Sleep>>>,
}

impl SlowReader {
    /// Reads what the client still sends, to its end or for the time of a rest. A socket that is
    /// closed with bytes unread resets the connection, and the client may lose the answer.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Before the reads: a client that sends on and on leaves no turn to a timer behind them.
        if let Some(resting) = &mut self.resting
            && resting.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(());
        }
        let mut is_sending = self.resting.is_some() || self.activity.is_sending();
        loop {
            let mut bytes = [0; 4096];
            let mut rest = ReadBuf::new(&mut bytes);
            match self.io.as_mut().poll_read(cx, &mut rest) {
                Poll::Ready(Ok(())) if !rest.filled().is_empty() => is_sending = true,
                Poll::Pending if is_sending => break,
                _ => return Poll::Ready(()),
            }
        }
        self.resting.get_or_insert_with(|| Box::pin(sleep(self.rest))).as_mut().poll(cx)
    }

    fn count<T>(&mut self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result
            && error.kind() == io::ErrorKind::TimedOut
            && let Some(count) = self.count.take()
        {
            count(Closed::SlowReader);
        }
        result
    }
}

impl AsyncRead for SlowReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = self.io.as_mut().poll_read(cx, buf);
        if buf.filled().len() > before {
            self.activity.note_read();
        }
        read
    }
}

impl AsyncWrite for SlowReader {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = self.io.as_mut().poll_write(cx, buf);
        self.count(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = self.io.as_mut().poll_flush(cx);
        self.count(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.resting.is_none() {
            let result = self.io.as_mut().poll_shutdown(cx);
            ready!(self.count(result))?;
        }
        if self.rest.is_zero() { Poll::Ready(Ok(())) } else { self.poll_rest(cx).map(Ok) }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = self.io.as_mut().poll_write_vectored(cx, bufs);
        self.count(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Instant, advance};

    use super::*;

    const REST: Duration = Duration::from_secs(5);

    fn reader(io: impl Io + 'static, rest: Duration) -> SlowReader {
        let io: Box<dyn Io> = Box::new(io);
        let io = Box::pin(TimeoutWriter::new(io));
        SlowReader { io, count: None, activity: Arc::new(Activity::new()), rest, resting: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_on_and_on_has_a_time() {
        let (mut client, server) = duplex(1 << 20);
        client.write_all(b"a").await.unwrap();
        let ends = tokio::spawn(async move { reader(server, REST).shutdown().await });
        for _ in 0..20 {
            // More than the task reads at one turn.
            let _ = client.write_all(&[0; 1 << 20]).await;
            advance(REST / 10).await;
            if ends.is_finished() {
                return;
            }
        }
        panic!("it is read on and on");
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_head_has_a_time_and_a_client_between_two_requests_none() {
        for (is_in_head, time) in [(true, REST), (false, Duration::ZERO)] {
            let (mut client, server) = duplex(64);
            let mut server = reader(server, REST);
            client.write_all(b"G").await.unwrap();
            assert_eq!(server.read_u8().await.unwrap(), b'G');
            if !is_in_head {
                server.activity.touch();
            }
            let begin = Instant::now();
            server.shutdown().await.unwrap();
            assert_eq!(begin.elapsed(), time, "{is_in_head}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_tunnel_still_reads_is_left() {
        let (mut client, server) = duplex(64);
        let mut server = reader(server, Duration::ZERO);
        client.write_all(b"a").await.unwrap();
        server.shutdown().await.unwrap();
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(server.read_u8().await.unwrap(), b'a');
    }
}

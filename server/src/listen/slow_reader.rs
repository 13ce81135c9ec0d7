//! A bound on the time that a client leaves its response unread, and a note of the bytes it sends.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_io_timeout::TimeoutWriter;

use super::crowd::Activity;
use crate::counters::{Counters, Event};
use crate::io::Io;

/// A socket whose writes fail once the other end takes no byte for a time. The failure is counted.
///
/// The socket lies below TLS, where a write waits for nothing but the other end.
pub(super) struct SlowReader {
    io: Pin<Box<TimeoutWriter<Box<dyn Io>>>>,
    /// The counters, or `None` once the connection is counted.
    counters: Option<Arc<Counters>>,
    activity: Arc<Activity>,
}

impl SlowReader {
    pub(super) fn new(
        io: Box<dyn Io>,
        limit: Duration,
        counters: Arc<Counters>,
        activity: Arc<Activity>,
    ) -> SlowReader {
        let mut io = TimeoutWriter::new(io);
        io.set_timeout(Some(limit));
        SlowReader { io: Box::pin(io), counters: Some(counters), activity }
    }

    fn count<T>(&mut self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result
            && error.kind() == io::ErrorKind::TimedOut
            && let Some(counters) = self.counters.take()
        {
            counters.add(Event::SlowReader);
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
        let result = self.io.as_mut().poll_shutdown(cx);
        self.count(result)
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

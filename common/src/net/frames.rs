//! A bound on the frames of HTTP/2 that ask for nothing.
//!
//! A `PING`, a `SETTINGS`, a `PRIORITY`, a `WINDOW_UPDATE`, a `RST_STREAM`, an empty `DATA`, a
//! `CONTINUATION` and an unknown frame each take the time of a thread, and no limit on requests
//! counts them. A connection has [`BURST`] of them. It earns more with time, with each request, and
//! with the bytes that it is sent: a client that downloads opens its windows. One that has spent
//! all is told to calm down, and ends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::io::Io;

/// The most such frames that a connection has at a time.
const BURST: u64 = 10_000;
/// The frames that it earns in a second, and with each request.
const A_SECOND: u64 = 1_000;
const A_REQUEST: u64 = 4;
/// The bytes that are sent to it for one more frame. The answer to a `PING` has 17.
const BYTES: u64 = 64;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The length of a frame's head.
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;

/// `GOAWAY` with the code `ENHANCE_YOUR_CALM` (RFC 9113, 6.8 and 7).
const CALM_DOWN: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 11];

/// The frames of a client.
struct FrameCount {
    next: Next,
    /// The frames that it may still send.
    left: u64,
    /// Requests, and bytes sent to the client, since frames were earned the last time.
    requests: u64,
    sent: u64,
    since: Instant,
}

/// What the next bytes belong to.
enum Next {
    /// The preface, of which a number of bytes have come.
    Preface(usize),
    /// The head of a frame, of which a number of bytes have come.
    Head([u8; HEAD], usize),
    /// Bytes of a frame behind its head.
    Payload(usize),
    /// Those of HTTP/1.
    Other,
}

impl FrameCount {
    fn new() -> FrameCount {
        FrameCount { next: Next::Preface(0), left: BURST, requests: 0, sent: 0, since: Instant::now() }
    }

    /// Reads the heads of frames. Returns `false` if there are too many.
    fn read(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let taken = match &mut self.next {
                Next::Other => return true,
                Next::Preface(come) => {
                    let taken = bytes.len().min(PREFACE.len() - *come);
                    let is_preface = bytes[..taken] == PREFACE[*come..*come + taken];
                    *come += taken;
                    if !is_preface {
                        self.next = Next::Other;
                    } else if *come == PREFACE.len() {
                        self.next = Next::Head([0; HEAD], 0);
                    }
                    taken
                }
                Next::Payload(rest) => {
                    let taken = bytes.len().min(*rest);
                    *rest -= taken;
                    if *rest == 0 {
                        self.next = Next::Head([0; HEAD], 0);
                    }
                    taken
                }
                Next::Head(head, come) => {
                    let taken = bytes.len().min(HEAD - *come);
                    head[*come..*come + taken].copy_from_slice(&bytes[..taken]);
                    *come += taken;
                    if *come == HEAD {
                        let head = *head;
                        if !self.begin(head) {
                            return false;
                        }
                    }
                    taken
                }
            };
            bytes = &bytes[taken..];
        }
        true
    }

    fn begin(&mut self, [a, b, c, kind, flags, ..]: [u8; HEAD]) -> bool {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        self.next = if length > 0 { Next::Payload(length) } else { Next::Head([0; HEAD], 0) };
        match kind {
            HEADERS => self.requests += 1,
            DATA if length > 0 || flags & END_STREAM != 0 => (),
            _ if self.left > 0 => self.left -= 1,
            _ => return self.earn(),
        }
        true
    }

    /// Takes a frame of those earned meanwhile. Returns `false` if there are none.
    #[cold]
    fn earn(&mut self) -> bool {
        let time = self.since.elapsed().as_millis() as u64 * A_SECOND / 1_000;
        let earned = (time + self.requests * A_REQUEST + self.sent / BYTES).min(BURST);
        let Some(left) = earned.checked_sub(1) else { return false };
        *self = FrameCount { next: std::mem::replace(&mut self.next, Next::Other), ..FrameCount::new() };
        self.left = left;
        true
    }
}

/// The stream of a client, which ends with a flood of frames. `flooded` is called then.
pub(super) struct Calm<S, F> {
    io: S,
    frames: FrameCount,
    /// Whether all frames to the client are written whole.
    is_flushed: bool,
    flooded: F,
}

impl<S: Io, F: Fn() + Send + Unpin> Calm<S, F> {
    pub(super) fn new(io: S, flooded: F) -> Calm<S, F> {
        Calm { io, frames: FrameCount::new(), is_flushed: true, flooded }
    }

    #[cold]
    fn end(&mut self, cx: &mut Context<'_>) -> io::Error {
        (self.flooded)();
        if self.is_flushed {
            // The client may read nothing: it learns of the end in any case.
            let _ = Pin::new(&mut self.io).poll_write(cx, CALM_DOWN);
            let _ = Pin::new(&mut self.io).poll_flush(cx);
        }
        io::Error::other("a flood of HTTP/2 frames")
    }

    fn sent(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.is_flushed = false;
        if let Poll::Ready(Ok(bytes)) = written {
            self.frames.sent += bytes as u64;
        }
        written
    }
}

impl<S: Io, F: Fn() + Send + Unpin> AsyncRead for Calm<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        if self.frames.read(&buf.filled()[before..]) {
            return Poll::Ready(Ok(()));
        }
        buf.set_filled(before);
        Poll::Ready(Err(self.end(cx)))
    }
}

impl<S: Io, F: Fn() + Send + Unpin> AsyncWrite for Calm<S, F> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.sent(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        self.is_flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        [&[0, 0, length, kind, flags, 0, 0, 0, 0][..], &vec![0; length.into()]].concat()
    }

    /// Returns the frames of a client that has sent its preface.
    fn begun() -> FrameCount {
        let mut frames = FrameCount::new();
        assert!(frames.read(PREFACE));
        frames
    }

    /// Each frame comes in parts, cut at each place.
    #[tokio::test(start_paused = true)]
    async fn a_flood_ends_after_its_burst() {
        for (flood, length) in [(2, 5), (3, 4), (4, 0), (4, 6), (6, 8), (8, 4), (9, 0), (0, 0), (99, 16)] {
            let (mut frames, frame) = (begun(), frame(flood, 0, length));
            for number in 0..BURST {
                let (first, second) = frame.split_at(number as usize % frame.len());
                assert!(frames.read(first) && frames.read(second), "{number} of kind {flood}");
            }
            assert!(!frames.read(&frame), "kind {flood}");
        }
    }

    /// The second of each pair is one frame too many.
    #[tokio::test(start_paused = true)]
    async fn frames_are_earned_by_time_by_requests_and_by_bytes() {
        let (ping, request) = (frame(6, 0, 8), frame(HEADERS, 5, 40));
        let mut frames = begun();
        let pings = |frames: &mut FrameCount| (0..).take_while(|_| frames.read(&ping)).count() as u64;
        assert_eq!(pings(&mut frames), BURST);
        let mut frames = begun();
        frames.left = 0;
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(pings(&mut frames), 2 * A_SECOND);
        let mut frames = begun();
        frames.left = 0;
        assert!(frames.read(&request.repeat(500)));
        frames.sent = 100 * BYTES;
        assert_eq!(pings(&mut frames), 500 * A_REQUEST + 100);
        let mut frames = begun();
        frames.left = 0;
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert_eq!(pings(&mut frames), BURST, "no more are kept");
    }

    /// 1 GB at once, by a client that opens both windows after each 4 KB.
    #[tokio::test(start_paused = true)]
    async fn downloads_uploads_and_calls_pass() {
        let (window, mut frames) = (frame(8, 0, 4), begun());
        for _ in 0..250_000 {
            frames.sent += 4 << 10;
            assert!(frames.read(&window) && frames.read(&window));
        }
        let mut frames = begun();
        // A call, its priority, its window and its reset; an upload in small parts.
        let call = [frame(HEADERS, 4, 40), frame(16, 0, 9), frame(8, 0, 4), frame(3, 0, 4)].concat();
        assert!((0..100_000).all(|_| frames.read(&call)));
        assert!((0..100_000).all(|_| frames.read(&frame(DATA, 0, 1))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_told_to_calm_down_and_is_counted_once() {
        let (client, server) = tokio::io::duplex(1 << 20);
        let counted = AtomicU64::new(0);
        let mut calm = Calm::new(server, || {
            counted.fetch_add(1, Relaxed);
        });
        let (mut answers, mut requests) = tokio::io::split(client);
        let flood = [PREFACE, &frame(2, 0, 5).repeat(BURST as usize + 1)].concat();
        requests.write_all(&flood).await.unwrap();
        let read = calm.read_to_end(&mut Vec::new()).await;
        assert_eq!(read.unwrap_err().to_string(), "a flood of HTTP/2 frames");
        drop(calm);
        let mut told = Vec::new();
        answers.read_to_end(&mut told).await.unwrap();
        assert_eq!((&*told, counted.load(Relaxed)), (CALM_DOWN, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_of_http1_are_no_frames() {
        for first in ["GET / HTTP/1.1\r\n", "PRI / HTTP/1.1\r\n"] {
            let mut frames = FrameCount::new();
            assert!(first.bytes().all(|byte| frames.read(&[byte])));
            assert!((0..=BURST).all(|_| frames.read(&frame(6, 0, 8))));
        }
    }
}

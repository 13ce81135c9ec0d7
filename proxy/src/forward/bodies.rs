//! Bodies on their way through the proxy, with a bound on every pause.

use std::any::Any;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::connect::{BodyFault, BoxError};
use super::forwarded::{drop_from_trailers, drop_from_upload};
use crate::config::settings::Settings;
use crate::pace::{Pace, Patience};

const TOO_SLOW: &str = "the body came too slowly";

/// The next frame of a body.
type Framed = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// A value that is held until a request has ended.
pub(crate) type Held = Arc<dyn Any + Send + Sync>;
/// The body of a request to an upstream: whole, or on its way.
pub(crate) type Sent = Either<Full<Bytes>, Attempt>;
/// The body of a response: the proxy's own, or the upstream's.
pub(crate) type Returned = Either<Full<Bytes>, Incoming>;

/// The progress of a request's body, which outlives the attempts to send it.
pub(crate) struct Upload {
    /// The places of the request. An attempt may go on after the response, and then still has a
    /// connection to the upstream.
    _flight: Held,
    /// Whether the body was asked for a part.
    pub(crate) is_begun: AtomicBool,
    fault: OnceLock<BodyFault>,
    /// Whether the proxy waits for the client.
    waiting: AtomicBool,
    /// Milliseconds from `start` to the last part.
    last: AtomicU64,
    start: Instant,
}

impl Upload {
    /// Returns the body to send, and its progress.
    pub(crate) fn new(body: Incoming, settings: &Settings, flight: Held) -> (Arc<Upload>, Attempt) {
        let upload = Arc::new(Upload {
            _flight: flight,
            is_begun: AtomicBool::new(false),
            fault: OnceLock::new(),
            waiting: AtomicBool::new(false),
            last: AtomicU64::new(0),
            start: Instant::now(),
        });
        let attempt = Attempt {
            upload: upload.clone(),
            body: Some(body),
            pace: Pace::new(settings.patience()),
            rest: settings.bounds.request_body.unwrap_or(u64::MAX),
        };
        (upload, attempt)
    }

    pub(crate) fn fault(&self) -> Option<BodyFault> {
        self.fault.get().copied()
    }

    /// Returns the last instant at which the proxy did not wait for the upstream.
    pub(crate) fn last(&self) -> Instant {
        if self.waiting.load(Relaxed) {
            return Instant::now();
        }
        self.start + Duration::from_millis(self.last.load(Relaxed))
    }
}

/// A body on its way to an upstream.
pub(crate) struct Attempt {
    upload: Arc<Upload>,
    body: Option<Incoming>,
    pace: Pace,
    /// Bytes that the body may still have.
    rest: u64,
}

impl Attempt {
    fn fail(&mut self, fault: BodyFault, error: BoxError) -> Framed {
        // It is the first, as no part is asked for after it.
        let _ = self.upload.fault.set(fault);
        self.body = None;
        Poll::Ready(Some(Err(error)))
    }
}

impl http_body::Body for Attempt {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Framed {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        this.upload.is_begun.store(true, Relaxed);
        let Poll::Ready(frame) = Pin::new(body).poll_frame(context) else {
            this.upload.waiting.store(true, Relaxed);
            ready!(this.pace.poll_wait(context));
            return this.fail(BodyFault::TimedOut, TOO_SLOW.into());
        };
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        if !this.pace.note(bytes) && frame.is_some() {
            return this.fail(BodyFault::TimedOut, TOO_SLOW.into());
        }
        match this.rest.checked_sub(bytes as u64) {
            Some(rest) => this.rest = rest,
            None => return this.fail(BodyFault::TooLarge, "the body is too large".into()),
        }
        let since = this.upload.start.elapsed();
        this.upload.last.store(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), Relaxed);
        this.upload.waiting.store(false, Relaxed);
        match frame {
            Some(Err(error)) => this.fail(BodyFault::Broken, error.into()),
            Some(Ok(mut frame)) => {
                frame.trailers_mut().into_iter().for_each(drop_from_upload);
                Poll::Ready(Some(Ok(frame)))
            }
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}

/// The longest part of a response that takes turns with others of its connection.
const LONGEST_PART: usize = 8 << 10;

/// The parts of a response that wait in the proxy for the client to take them.
pub(crate) struct Delivery {
    /// The places of the request, until the last part is taken. Until then the response takes
    /// memory.
    _held: [Option<Held>; 2],
    parts: AtomicUsize,
    start: Instant,
    /// Milliseconds from `start` to the last time that a part was taken, or that a first part began
    /// to wait.
    last: AtomicU64,
}

impl Delivery {
    fn note(&self) {
        self.last.store(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns the time for which the client has not taken the next part, or `None` if no part
    /// waits.
    pub(crate) fn paused(&self) -> Option<Duration> {
        let since = || self.start.elapsed().saturating_sub(Duration::from_millis(self.last.load(Relaxed)));
        (self.parts.load(Relaxed) > 0).then(since)
    }
}

/// A part of a response, dropped once its last byte is written to the client's connection.
struct Part {
    bytes: Bytes,
    delivery: Arc<Delivery>,
}

impl Part {
    fn new(bytes: Bytes, delivery: &Arc<Delivery>) -> Part {
        if delivery.parts.fetch_add(1, Relaxed) == 0 {
            delivery.note();
        }
        Part { bytes, delivery: delivery.clone() }
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.delivery.note();
        self.delivery.parts.fetch_sub(1, Relaxed);
    }
}

/// The end of a response's body, as its [`Download`] saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    /// The upstream broke the body off.
    Broken,
    /// The upstream paused for too long.
    TimedOut,
    /// The whole body took too long.
    TooLong,
    /// The client left.
    Dropped,
}

/// The body of a response. `at_end` is called once, with the end of the body and its number of
/// bytes. It is also called when the body is dropped.
pub(crate) struct Download<F: FnOnce(End, u64)> {
    body: Returned,
    /// Bytes of the body that were read and not handed on.
    rest: Bytes,
    longest_part: usize,
    pace: Pace,
    delivery: Arc<Delivery>,
    bytes: u64,
    at_end: Option<F>,
}

impl<F: FnOnce(End, u64)> Download<F> {
    pub(crate) fn new(body: Returned, patience: Patience, held: [Option<Held>; 2], at_end: F) -> Download<F> {
        let (parts, start, last) = (AtomicUsize::new(0), Instant::now(), AtomicU64::new(0));
        Download {
            body,
            rest: Bytes::new(),
            longest_part: usize::MAX,
            pace: Pace::new(patience),
            delivery: Arc::new(Delivery { _held: held, parts, start, last }),
            bytes: 0,
            at_end: Some(at_end),
        }
    }

    /// Makes the parts short, and returns their delivery, for a response that is one of several at
    /// a time.
    pub(crate) fn among_others(&mut self) -> &Arc<Delivery> {
        self.longest_part = LONGEST_PART;
        &self.delivery
    }

    fn end(&mut self, end: End) {
        if let Some(at_end) = self.at_end.take() {
            at_end(end, self.bytes);
        }
    }

    fn ended(&mut self, end: End, last: Option<Result<Frame<Bytes>, BoxError>>) -> Framed {
        self.end(end);
        Poll::Ready(last)
    }

    fn is_whole(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}

impl<F: FnOnce(End, u64) + Unpin> http_body::Body for Download<F> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Framed {
        let this = &mut *self;
        if this.rest.is_empty() {
            let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) else {
                ready!(this.pace.poll_wait(context));
                return this.ended(End::TimedOut, Some(Err(TOO_SLOW.into())));
            };
            if !this.pace.note(0) && frame.is_some() {
                return this.ended(End::TooLong, Some(Err("the body took too long".into())));
            }
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => this.rest = data,
                Some(Ok(Err(mut last))) => {
                    last.trailers_mut().into_iter().for_each(drop_from_trailers);
                    return this.ended(End::Whole, Some(Ok(last)));
                }
                Some(Err(error)) => return this.ended(End::Broken, Some(Err(error))),
                None => return this.ended(End::Whole, None),
            }
        }
        let part = this.rest.split_to(this.rest.len().min(this.longest_part));
        this.bytes += part.len() as u64;
        if this.is_whole() {
            this.end(End::Whole);
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(Part::new(part, &this.delivery))))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_whole()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        if let Some(exact) = hint.exact() {
            hint.set_exact(exact + self.rest.len() as u64);
        }
        hint
    }
}

impl<F: FnOnce(End, u64)> Drop for Download<F> {
    fn drop(&mut self) {
        let end = if self.is_whole() { End::Whole } else { End::Dropped };
        self.end(end);
    }
}

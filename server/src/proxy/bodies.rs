//! Bodies on their way through the proxy, with a bound on every pause.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

use super::forwarded::drop_from_trailers;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A time-out that starts at the first pause, and ends with it.
#[derive(Default)]
struct Pause(Option<Pin<Box<Sleep>>>);

impl Pause {
    fn end(&mut self) {
        self.0 = None;
    }

    /// Ready once the pause has taken this long.
    fn poll(&mut self, longest: Duration, context: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + longest)));
        sleep.as_mut().poll(context)
    }
}

/// The body of a request, of which a part of the state outlives the attempts to send it.
pub(crate) struct Upload {
    shared: Arc<Shared>,
    longest_pause: Duration,
}

struct Shared {
    /// The body while no attempt has it.
    unsent: Mutex<Option<Incoming>>,
    /// A [`Progress`].
    progress: AtomicU8,
    /// The client is waited for.
    waiting: AtomicBool,
    /// Milliseconds from `start` to the last part.
    last: AtomicU64,
    start: Instant,
}

/// How far a request's body has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Progress {
    /// No part of it was read.
    Untouched,
    Reading,
    /// The client broke it off, or it is malformed.
    Broken,
    /// The client paused for too long.
    TimedOut,
}

impl Upload {
    pub(crate) fn new(body: Incoming, longest_pause: Duration) -> Upload {
        let shared = Arc::new(Shared {
            unsent: Mutex::new(Some(body)),
            progress: AtomicU8::new(Progress::Untouched as u8),
            waiting: AtomicBool::new(false),
            last: AtomicU64::new(0),
            start: Instant::now(),
        });
        Upload { shared, longest_pause }
    }

    /// The body for an attempt. Empty if an earlier attempt has read a part of it.
    pub(crate) fn body(&self) -> Body {
        let body = self.shared.unsent.lock().unwrap_or_else(PoisonError::into_inner).take();
        match body {
            None => Body::empty(),
            Some(body) => Body::new(Attempt {
                shared: self.shared.clone(),
                body: Some(body),
                pause: Pause::default(),
                longest_pause: self.longest_pause,
            }),
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        match self.shared.progress.load(Relaxed) {
            0 => Progress::Untouched,
            1 => Progress::Reading,
            2 => Progress::Broken,
            _ => Progress::TimedOut,
        }
    }

    /// The last instant at which the upstream was not the side that is waited for.
    pub(crate) fn last(&self) -> Instant {
        if self.shared.waiting.load(Relaxed) {
            return Instant::now();
        }
        self.shared.start + Duration::from_millis(self.shared.last.load(Relaxed))
    }
}

/// The body as one attempt sends it. It goes back, if no part of it was read.
struct Attempt {
    shared: Arc<Shared>,
    body: Option<Incoming>,
    pause: Pause,
    longest_pause: Duration,
}

impl Attempt {
    fn fail(&mut self, progress: Progress, error: BoxError) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.shared.progress.store(progress as u8, Relaxed);
        self.body = None;
        Poll::Ready(Some(Err(error)))
    }
}

impl http_body::Body for Attempt {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        if this.shared.progress.load(Relaxed) == Progress::Untouched as u8 {
            this.shared.progress.store(Progress::Reading as u8, Relaxed);
        }
        let Poll::Ready(frame) = Pin::new(body).poll_frame(context) else {
            this.shared.waiting.store(true, Relaxed);
            ready!(this.pause.poll(this.longest_pause, context));
            return this.fail(Progress::TimedOut, "the client paused for too long".into());
        };
        this.pause.end();
        let since = this.shared.start.elapsed();
        this.shared.last.store(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), Relaxed);
        this.shared.waiting.store(false, Relaxed);
        match frame {
            Some(Err(error)) => this.fail(Progress::Broken, error.into()),
            Some(Ok(frame)) => Poll::Ready(Some(Ok(frame))),
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

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.shared.progress.load(Relaxed) == Progress::Untouched as u8 {
            let mut unsent = self.shared.unsent.lock().unwrap_or_else(PoisonError::into_inner);
            *unsent = self.body.take();
        }
    }
}

/// When the client last took a part of a response, for a connection to see a client that does not.
pub(crate) struct Delivery {
    start: Instant,
    /// Milliseconds from `start` to the last part, or [`UPSTREAM`].
    last: AtomicU64,
}

/// The upstream is waited for, and not the client.
const UPSTREAM: u64 = u64::MAX;

impl Delivery {
    fn note(&self, last: u64) {
        self.last.store(last, Relaxed);
    }

    /// How long the client has not taken the next part.
    pub(crate) fn paused(&self) -> Duration {
        match self.last.load(Relaxed) {
            UPSTREAM => Duration::ZERO,
            last => self.start.elapsed().saturating_sub(Duration::from_millis(last)),
        }
    }
}

/// The end of a response's body, as its [`Download`] saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    /// The upstream broke it off.
    Broken,
    /// The upstream paused for too long.
    TimedOut,
    /// The client left.
    Dropped,
}

/// The body of a response. `at_end` learns how it ended and its bytes; it is also told when the body
/// is dropped.
pub(crate) struct Download<F: FnOnce(End, u64)> {
    body: Body,
    pause: Pause,
    longest_pause: Duration,
    delivery: Option<Arc<Delivery>>,
    bytes: u64,
    at_end: Option<F>,
}

impl<F: FnOnce(End, u64)> Download<F> {
    pub(crate) fn new(body: Body, longest_pause: Duration, at_end: F) -> Download<F> {
        Download { body, pause: Pause::default(), longest_pause, delivery: None, bytes: 0, at_end: Some(at_end) }
    }

    /// Notes when the client takes parts.
    pub(crate) fn deliveries(&mut self) -> Arc<Delivery> {
        let delivery = Delivery { start: Instant::now(), last: AtomicU64::new(0) };
        self.delivery.insert(Arc::new(delivery)).clone()
    }

    fn end(&mut self, end: End) {
        if let Some(at_end) = self.at_end.take() {
            at_end(end, self.bytes);
        }
    }
}

impl<F: FnOnce(End, u64) + Unpin> http_body::Body for Download<F> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Poll::Ready(mut frame) = Pin::new(&mut this.body).poll_frame(context) else {
            if let Some(delivery) = &this.delivery {
                delivery.note(UPSTREAM);
            }
            ready!(this.pause.poll(this.longest_pause, context));
            this.end(End::TimedOut);
            return Poll::Ready(Some(Err("the upstream paused for too long".into())));
        };
        this.pause.end();
        if let Some(delivery) = &this.delivery {
            let since = delivery.start.elapsed().as_millis();
            delivery.note(u64::try_from(since).unwrap_or(UPSTREAM));
        }
        match &mut frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    drop_from_trailers(trailers);
                }
                this.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                if this.body.is_end_stream() {
                    this.end(End::Whole);
                }
            }
            Some(Err(_)) => this.end(End::Broken),
            None => this.end(End::Whole),
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<F: FnOnce(End, u64)> Drop for Download<F> {
    fn drop(&mut self) {
        let end = if self.body.is_end_stream() { End::Whole } else { End::Dropped };
        self.end(end);
    }
}

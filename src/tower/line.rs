//! The line of requests that wait for their turn.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::limiter::place::Place;
use crate::time::clock::nanos_of;

pub(crate) type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The line of a layer: its longest wait, and the most requests in it.
pub(crate) struct WaitingLine {
    pub(crate) max_delay: Duration,
    pub(crate) max_waiting: usize,
    pub(crate) sleep: Box<dyn Fn(Duration) -> Timer + Send + Sync>,
    /// Requests in line. Relaxed: the number alone is the bound, and it orders no other memory.
    waiting: Arc<AtomicUsize>,
}

/// The most requests in line, unless it is set.
pub(super) const MAX_WAITING: usize = 1_024;

impl WaitingLine {
    pub(crate) fn new(
        max_delay: Duration,
        sleep: Box<dyn Fn(Duration) -> Timer + Send + Sync>,
    ) -> WaitingLine {
        WaitingLine { max_delay, max_waiting: MAX_WAITING, sleep, waiting: Arc::default() }
    }

    pub(crate) fn max_wait(&self) -> u64 {
        nanos_of(self.max_delay)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Enters the line, unless it is full.
    pub(crate) fn enter(&self) -> Option<InLine> {
        let room = |waiting: usize| (waiting < self.max_waiting).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(InLine { waiting: self.waiting.clone() })
    }

    /// Begins the wait of a request that is in line.
    pub(crate) fn wait(&self, in_line: InLine, places: Vec<Place>) -> Turn {
        let delay = places.iter().map(Place::delay).max().unwrap_or_default();
        Turn { delay, timer: (self.sleep)(delay), places, _in_line: in_line }
    }
}

/// One request of those in line. It leaves the line when it is dropped.
pub(crate) struct InLine {
    waiting: Arc<AtomicUsize>,
}

impl Drop for InLine {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The turn of a request. It gives its tokens back if it is dropped before it has come.
pub(crate) struct Turn {
    delay: Duration,
    pub(crate) timer: Timer,
    places: Vec<Place>,
    _in_line: InLine,
}

impl Turn {
    pub(crate) fn delay(&self) -> Duration {
        self.delay
    }

    /// Uses the tokens.
    pub(crate) fn commit(self) {
        self.places.into_iter().for_each(Place::commit);
    }
}

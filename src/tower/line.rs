//! The line of requests that wait for their turn.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::limiter::place::Place;
use crate::limiter::waiting::NextStep;
use crate::time::clock::nanos_of;
use crate::word::decision::Denied;

pub(crate) type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A function that makes timers.
pub(crate) type Sleep = Arc<dyn Fn(Duration) -> Timer + Send + Sync>;

/// The line of a [`DelayLayer`](super::DelayLayer): its longest wait, and the most requests in it.
#[derive(Clone)]
pub(crate) struct WaitingLine {
    pub(crate) max_delay: Duration,
    /// The most requests in line, of all keys and of each.
    pub(crate) max_waiting: usize,
    pub(crate) max_waiting_per_key: Option<usize>,
    pub(crate) sleep: Sleep,
}

/// The most requests in line, unless it is set.
const MAX_WAITING: usize = 1_024;
/// The part of them that one key may have, unless it is set, and its least.
const KEYS: usize = 8;
const LEAST_OF_A_KEY: usize = 16;

impl WaitingLine {
    pub(crate) fn new(max_delay: Duration, sleep: Sleep) -> WaitingLine {
        WaitingLine { max_delay, max_waiting: MAX_WAITING, max_waiting_per_key: None, sleep }
    }

    pub(crate) fn max_wait(&self) -> u64 {
        nanos_of(self.max_delay)
    }

    pub(crate) fn of_a_key(&self) -> usize {
        self.max_waiting_per_key.unwrap_or_else(|| (self.max_waiting / KEYS).max(LEAST_OF_A_KEY))
    }

    /// Enters the line of the requests that `waiting` counts, unless it is full.
    pub(crate) fn enter(&self, waiting: &Arc<AtomicUsize>) -> Option<InLine> {
        let room = |waiting: usize| (waiting < self.max_waiting).then_some(waiting + 1);
        waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(InLine { waiting: waiting.clone() })
    }

    /// Begins the wait of a request that is in line.
    pub(crate) fn wait(&self, in_line: InLine, places: Vec<Place>) -> Turn {
        let delay = places.iter().map(Place::told).max().unwrap_or_default();
        let timed = |place: Place| {
            let timer = place.first_timer().map(|wait| (self.sleep)(wait));
            (place, timer)
        };
        let places = places.into_iter().map(timed).collect();
        Turn { delay, places, sleep: self.sleep.clone(), _in_line: in_line }
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
    /// The places, each with its timer while it waits.
    places: Vec<(Place, Option<Timer>)>,
    sleep: Sleep,
    _in_line: InLine,
}

impl Turn {
    /// Returns the longest time until the turn, from the beginning.
    pub(crate) fn delay(&self) -> Duration {
        self.delay
    }

    /// Waits until the tokens of all places are there, or one has none to come.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Denied>> {
        let mut turn = Poll::Ready(Ok(()));
        for (place, timer) in &mut self.places {
            loop {
                let fired = timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready());
                if fired {
                    *timer = None;
                }
                match place.poll(fired, context.waker()) {
                    None | Some(NextStep::Done(Ok(_))) => *timer = None,
                    Some(NextStep::Done(Err(denied))) => return Poll::Ready(Err(denied)),
                    Some(NextStep::Waits) => turn = Poll::Pending,
                    Some(NextStep::Sets(wait)) => {
                        *timer = Some((self.sleep)(wait));
                        continue;
                    }
                }
                break;
            }
        }
        turn
    }

    /// Uses the tokens.
    pub(crate) fn commit(self) {
        self.places.into_iter().for_each(|(place, _)| place.commit());
    }
}

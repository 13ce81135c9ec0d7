//! The lanes of a store: its parts that fail alone, each with a breaker.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use papaya::HashMap;
use tokio::time::Instant;

use super::breaker::{Breaker, Change, Pauses};

/// The lanes of a store: the health of each of its parts, as this process sees it.
///
/// All limiters on clones of one handle share its breakers, and so the probes of a store that does
/// not answer. A clone is another handle to the same lanes.
#[derive(Clone)]
pub struct Lanes(Arc<LanesInner>);

struct LanesInner {
    begun: Instant,
    lanes: HashMap<u32, Arc<Lane>>,
    /// The number of open breakers.
    open: AtomicU64,
}

/// A part of a store.
pub(crate) struct Lane {
    pub(crate) number: u32,
    pub(crate) breaker: Breaker,
    /// The longest latency of recent calls, in nanoseconds: each call takes an eighth off the
    /// earlier ones.
    rtt: AtomicU64,
    /// The time of the next probe after an error that may be that of a key.
    suspected: AtomicU64,
}

impl Default for Lanes {
    /// Returns lanes that answer.
    fn default() -> Lanes {
        let inner = LanesInner { begun: Instant::now(), lanes: HashMap::new(), open: AtomicU64::new(0) };
        Lanes(Arc::new(inner))
    }
}

impl Lanes {
    /// Returns the time of the lanes, which all their users share: nanoseconds on the clock of
    /// tokio.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.0.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns a lane by its number.
    pub(crate) fn lane(&self, number: u32) -> Arc<Lane> {
        let new = || {
            let (rtt, suspected) = (AtomicU64::new(0), AtomicU64::new(0));
            Arc::new(Lane { number, breaker: Breaker::default(), rtt, suspected })
        };
        self.0.lanes.pin().get_or_insert_with(number, new).clone()
    }

    /// Returns how many lanes had a call so far.
    pub(crate) fn len(&self) -> usize {
        self.0.lanes.len()
    }

    /// Tells whether a breaker is open.
    #[inline]
    pub(crate) fn is_any_open(&self) -> bool {
        self.0.open.load(Relaxed) > 0
    }

    /// Returns the lanes whose breakers are open.
    pub(crate) fn open(&self) -> Vec<Arc<Lane>> {
        if !self.is_any_open() {
            return Vec::new();
        }
        self.0.lanes.pin().values().filter(|lane| lane.breaker.is_open()).cloned().collect()
    }

    /// Returns the number of times that a breaker has opened.
    pub(crate) fn opened(&self) -> u64 {
        self.0.lanes.pin().values().map(|lane| lane.breaker.opened()).sum()
    }

    /// Notes the outcome of a call of a lane, and returns a change of its breaker.
    pub(crate) fn note(&self, lane: &Lane, succeeded: bool, pauses: &Pauses) -> Option<Change> {
        let change = lane.breaker.note(succeeded, self.now(), pauses);
        match change {
            Some(Change::Opened) => _ = self.0.open.fetch_add(1, Relaxed),
            Some(Change::Closed) => _ = self.0.open.fetch_sub(1, Relaxed),
            None => {}
        }
        change
    }

    /// Tells whether two handles are of the same lanes.
    pub(crate) fn is_same(&self, other: &Lanes) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Lane {
    pub(crate) fn rtt(&self) -> Duration {
        Duration::from_nanos(self.rtt.load(Relaxed))
    }

    /// Notes the latency of a call that was answered in time.
    pub(crate) fn note_latency(&self, latency: Duration) {
        let faded = self.rtt.load(Relaxed) / 8 * 7;
        self.rtt.store(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).max(faded), Relaxed);
    }

    /// Returns the time from which an error that may be that of a key is a reason to probe.
    pub(crate) fn suspected(&self) -> u64 {
        self.suspected.load(Relaxed)
    }

    /// Takes the probe of such an error, if it is due. The next one is due after `pause`.
    pub(crate) fn take_suspicion(&self, now: u64, pause: Duration) -> bool {
        let (due, next) = (self.suspected(), now.saturating_add(pause.as_nanos() as u64));
        now >= due && self.suspected.compare_exchange(due, next, Relaxed, Relaxed).is_ok()
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("open", &self.0.open.load(Relaxed)).finish_non_exhaustive()
    }
}

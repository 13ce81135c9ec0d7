//! The signals of an adaptive limit, which threads write without a lock.

use crossbeam_utils::CachePadded;

use crate::signals::histogram::{Histogram, LatencyCounts};
use crate::signals::samples::Samples;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The outcomes of requests, and the most requests in flight.
///
/// Relaxed: each value has a meaning alone, and the word of the limit has the orderings.
pub(crate) struct Signals {
    pub(crate) latencies: Histogram,
    pub(crate) overloaded: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Whether a request was refused since the window began.
    pub(crate) refused: CachePadded<AtomicU32>,
    /// The most requests in flight since the window began.
    pub(crate) peak: CachePadded<AtomicU32>,
    /// The reading at which the limit last changed by more than a small rise, in nanoseconds.
    pub(crate) changed: CachePadded<AtomicU64>,
}

/// The outcome of a request, from its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    InTime,
    Overloaded,
    Failed,
    /// The outcome was noted earlier, and the place was held until now.
    Noted,
}

/// The signals at the beginning of a window.
pub(crate) struct Baseline {
    latencies: LatencyCounts,
    overloaded: u64,
    failed: u64,
    begun: u64,
}

impl Signals {
    pub(crate) fn new(now: u64) -> Signals {
        Signals {
            latencies: Histogram::default(),
            overloaded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            refused: CachePadded::new(AtomicU32::new(0)),
            peak: CachePadded::new(AtomicU32::new(0)),
            changed: CachePadded::new(AtomicU64::new(now)),
        }
    }

    /// Notes a refused request: by a load, unless it is the first of the window.
    #[inline]
    pub(crate) fn note_refused(&self) {
        if self.refused.load(Ordering::Relaxed) == 0 {
            self.refused.store(1, Ordering::Relaxed);
        }
    }

    /// Notes the number in flight: by a load, unless it is the most of the window.
    #[inline]
    pub(crate) fn note_peak(&self, count: u32) {
        if count > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(count, Ordering::Relaxed);
        }
    }

    /// Returns whether a request that was admitted at a reading is a sample of the limit in force.
    #[inline]
    pub(crate) fn is_sample(&self, start: u64) -> bool {
        start >= self.changed.load(Ordering::Relaxed)
    }

    pub(crate) fn baseline(&self, now: u64) -> Baseline {
        Baseline {
            latencies: self.latencies.look(),
            overloaded: self.overloaded.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            begun: now,
        }
    }

    /// Begins a window with `count` requests in flight.
    pub(crate) fn begin(&self, now: u64, count: u32) -> Baseline {
        self.refused.store(0, Ordering::Relaxed);
        self.peak.store(count, Ordering::Relaxed);
        self.baseline(now)
    }

    /// Returns the window since a baseline.
    pub(crate) fn seen(&self, since: &Baseline, now: u64) -> Samples {
        let at = self.baseline(now);
        Samples {
            answered: at.latencies.since(&since.latencies),
            overloaded: at.overloaded - since.overloaded,
            failed: at.failed - since.failed,
            refused: self.refused.load(Ordering::Relaxed) != 0,
            peak: self.peak.load(Ordering::Relaxed),
            window: now.saturating_sub(since.begun),
            unchanged: now.saturating_sub(self.changed.load(Ordering::Relaxed)),
            now,
        }
    }
}

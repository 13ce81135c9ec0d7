//! Counts of decisions and calls.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::sourced::Source;
use crate::store::error::StoreErrorKind;

/// Latencies of a call, by their upper bounds: 2^7 to 2^23 microseconds, and none.
pub(crate) const LATENCIES: usize = 18;

#[derive(Default)]
pub(crate) struct Counters {
    /// Decisions by source. Those by a lease are in the slots: here are only those of retired
    /// slots.
    pub(crate) decisions: [AtomicU64; 6],
    pub(crate) denied: AtomicU64,
    /// Calls by outcome: answered, late, refused, unknown, permanent.
    pub(crate) calls: [AtomicU64; 5],
    pub(crate) ops: AtomicU64,
    pub(crate) latencies: [AtomicU64; LATENCIES],
    /// Tokens of retired slots: granted, used, returned.
    pub(crate) gone: [AtomicU64; 3],
    /// Requests beyond the deadline whose store answers in time.
    pub(crate) overdue: AtomicU64,
    /// Tokens of calls without an answer, which the store may have granted.
    pub(crate) lost: AtomicU64,
}

/// The outcome of a call. Its name is a label of the metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    Answered,
    Late,
    Refused,
    Unknown,
    Permanent,
}

impl Outcome {
    pub(crate) fn of(kind: StoreErrorKind) -> Outcome {
        match kind {
            StoreErrorKind::Refused => Outcome::Refused,
            StoreErrorKind::Unknown => Outcome::Unknown,
            StoreErrorKind::Permanent => Outcome::Permanent,
        }
    }
}

impl Counters {
    #[inline]
    pub(crate) fn count(&self, source: Source) {
        self.decisions[source as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn count_call(&self, outcome: Outcome, latency: Duration) {
        self.calls[outcome as usize].fetch_add(1, Relaxed);
        let micros = latency.as_micros().max(1);
        let bucket = (micros.ilog2() as usize + 1).saturating_sub(7).min(LATENCIES - 1);
        self.latencies[bucket].fetch_add(1, Relaxed);
    }
}

//! The breaker: whether calls are sent to the store.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Failures in a row that open the breaker.
const IN_A_ROW: u32 = 5;
/// The fewest calls within a second of which half must have failed to open the breaker.
const CALLS: u32 = 20;
const SECOND: u64 = 1_000_000_000;

/// A breaker: while it is open no call is sent but probes.
///
/// It opens after 5 failures in a row, or when half of at least 20 calls in a second failed. A
/// failure is a call without an answer: an error of a key is none. The pause before the first probe
/// is the first of a limiter's [`Pauses`], and each later one is twice as long, up to the last.
/// Jitter shortens each by up to a half. Limiters that share the breaker have each probe once.
#[derive(Default)]
pub(crate) struct Breaker {
    /// The time of the next probe, in nanoseconds; 0 while the breaker is closed.
    probe_at: AtomicU64,
    counts: Mutex<Counts>,
}

/// The pauses before the first probe and before the last, and a random number from 0 to 1.
pub(crate) struct Pauses {
    pub(crate) first: Duration,
    pub(crate) last: Duration,
    pub(crate) jitter: f64,
}

#[derive(Default)]
struct Counts {
    in_a_row: u32,
    since: u64,
    calls: u32,
    failures: u32,
    pause: Duration,
    opened: u64,
}

/// A change of the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Opened,
    Closed,
}

impl Breaker {
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.probe_at.load(Ordering::Relaxed) != 0
    }

    /// Returns the time until the next probe, if the breaker is open.
    pub(crate) fn until_probe(&self, now: u64) -> Option<Duration> {
        let at = Some(self.probe_at.load(Ordering::Relaxed)).filter(|at| *at != 0)?;
        Some(Duration::from_nanos(at.saturating_sub(now)))
    }

    /// Returns the number of times that the breaker has opened.
    pub(crate) fn opened(&self) -> u64 {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).opened
    }

    /// Notes the outcome of a call, and returns a change.
    ///
    /// While the breaker is open, a failure is that of a probe, or of a call from before.
    pub(crate) fn note(&self, succeeded: bool, now: u64, pauses: &Pauses) -> Option<Change> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_open() {
            return succeeded.then(|| {
                (counts.in_a_row, counts.since, counts.calls, counts.failures) = (0, now, 0, 0);
                self.probe_at.store(0, Ordering::Relaxed);
                Change::Closed
            });
        }
        if now.saturating_sub(counts.since) >= SECOND {
            (counts.since, counts.calls, counts.failures) = (now, 0, 0);
        }
        counts.calls += 1;
        if succeeded {
            counts.in_a_row = 0;
            return None;
        }
        counts.in_a_row += 1;
        counts.failures += 1;
        let half = counts.calls >= CALLS && counts.failures * 2 >= counts.calls;
        if counts.in_a_row < IN_A_ROW && !half {
            return None;
        }
        counts.pause = pauses.first;
        counts.opened += 1;
        self.wait(&counts, now, pauses.jitter);
        Some(Change::Opened)
    }

    /// Takes the probe that is due. Returns whether there is one: each is for one caller, and the
    /// pause before the next one begins with it.
    pub(crate) fn take_probe(&self, now: u64, pauses: &Pauses) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = self.until_probe(now) == Some(Duration::ZERO);
        if is_due {
            counts.pause = (counts.pause * 2).min(pauses.last);
            self.wait(&counts, now, pauses.jitter);
        }
        is_due
    }

    /// Sets the time of the next probe: after half of the pause to all of it.
    fn wait(&self, counts: &Counts, now: u64, jitter: f64) {
        let pause = counts.pause.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
        self.probe_at.store(now + pause.as_nanos().max(1) as u64, Ordering::Relaxed);
    }
}

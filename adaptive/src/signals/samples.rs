//! The input of a controller: a window of requests.

use std::fmt;
use std::time::Duration;

use crate::signals::histogram::{LatencyCounts, rank};

/// The requests of a window, for a [`Controller`](crate::Controller).
///
/// A request is a sample if it was admitted since the limit last changed: a request that was
/// admitted under an earlier limit says nothing about the present one. A rise by at most 1/64
/// counts as no change, until such rises together are more than 1/16.
#[derive(Clone)]
pub struct Samples {
    /// Latencies of the answered samples.
    pub(crate) answered: LatencyCounts,
    pub(crate) overloaded: u64,
    pub(crate) failed: u64,
    pub(crate) refused: bool,
    pub(crate) peak: u32,
    /// Nanoseconds since the window began, and since the limit last changed.
    pub(crate) window: u64,
    pub(crate) unchanged: u64,
    /// The reading of the clock, in nanoseconds.
    pub(crate) now: u64,
}

impl Samples {
    /// Returns a window without requests, for tests of controllers.
    #[must_use]
    pub fn nothing() -> Samples {
        Samples {
            answered: LatencyCounts::NONE,
            overloaded: 0,
            failed: 0,
            refused: false,
            peak: 0,
            window: 0,
            unchanged: 0,
            now: 0,
        }
    }

    /// Returns the number of samples: answered and overloaded requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.answered() + self.overloaded
    }

    /// Returns the number of samples that were answered.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.answered.total()
    }

    /// Returns the number of samples that failed by a lack of capacity. They count as slow as can
    /// be.
    #[must_use]
    pub fn overloaded(&self) -> u64 {
        self.overloaded
    }

    /// Returns the number of requests that failed for another reason. They are not samples.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Returns whether a request was refused in the window.
    #[must_use]
    pub fn refused(&self) -> bool {
        self.refused
    }

    /// Returns the most requests in flight at a time in the window.
    #[must_use]
    pub fn peak(&self) -> u32 {
        self.peak
    }

    /// Returns the length of the window.
    #[must_use]
    pub fn window(&self) -> Duration {
        Duration::from_nanos(self.window)
    }

    /// Returns the latency that a share of the samples, in thousandths, does not exceed.
    ///
    /// It is off by an eighth at most. [`Duration::MAX`] if the share reaches the overloaded
    /// samples; `None` without samples.
    #[must_use]
    pub fn quantile(&self, thousandths: u16) -> Option<Duration> {
        let slow = self.nanos_at(thousandths)?;
        Some(if slow == u64::MAX { Duration::MAX } else { Duration::from_nanos(slow) })
    }

    pub(crate) fn nanos_at(&self, thousandths: u16) -> Option<u64> {
        let count = self.count();
        (count > 0).then(|| self.answered.at_rank(rank(count, thousandths)).unwrap_or(u64::MAX))
    }

    /// Returns the number of samples that took longer than `nanos`. A sample less than an eighth
    /// longer may not be counted.
    pub(crate) fn slower_than(&self, nanos: u64) -> u64 {
        self.answered.above(nanos) + self.overloaded
    }
}

impl fmt::Debug for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Samples")
            .field("samples", &self.count())
            .field("p90", &self.quantile(900))
            .field("overloaded", &self.overloaded)
            .field("failed", &self.failed)
            .field("refused", &self.refused)
            .field("peak", &self.peak)
            .finish_non_exhaustive()
    }
}

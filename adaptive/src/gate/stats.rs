//! The statistics of a limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::gate::inflight::Inflight;

/// The limit of an [`Inflight`], its use, and the changes so far; from [`Inflight::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InflightStats {
    /// The limit in force.
    pub limit: u32,
    /// Requests in flight. After a fall they may exceed the limit until enough have left.
    pub in_flight: u32,
    /// The target in force: the given one, or a longer one for a while. `None` if the limit is
    /// fixed.
    pub target: Option<Duration>,
    /// Rises of the limit, but for those of `in_vain`.
    pub rose: u64,
    /// Falls of the limit, but for those of `stalled`.
    pub fell: u64,
    /// Returns to the limit before falls that did not help.
    pub in_vain: u64,
    /// Falls of the limit because no request was answered.
    pub stalled: u64,
}

impl Inflight {
    /// Returns the limit, its use, and the changes so far.
    ///
    /// The limit and the use are of one instant. The changes are of about that time.
    /// [`set_limit`](Inflight::set_limit) is not counted.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_adaptive::Inflight;
    ///
    /// let uploads = Inflight::fixed(4);
    /// let flight = uploads.try_enter();
    /// let stats = uploads.stats();
    /// assert_eq!((stats.limit, stats.in_flight, stats.target), (4, 1, None));
    /// # drop(flight);
    /// ```
    #[must_use]
    pub fn stats(&self) -> InflightStats {
        let word = self.word.load();
        let stats =
            InflightStats { limit: word.limit(), in_flight: word.count(), ..InflightStats::default() };
        let Some(control) = &self.control else { return stats };
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let changes = &control.changes;
        InflightStats {
            target: Some(control.target()),
            rose: of(&changes.rose),
            fell: of(&changes.fell),
            in_vain: of(&changes.in_vain),
            stalled: of(&changes.stalled),
            ..stats
        }
    }
}

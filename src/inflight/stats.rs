//! The numbers of a limit, for people and dashboards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::gate::Inflight;

/// The limit of an [`Inflight`], its use, and the changes so far; from [`Inflight::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InflightStats {
    /// The limit in force.
    pub limit: u32,
    /// Requests in flight. After the limit fell, they may be more than it for a while.
    pub in_flight: u32,
    /// The target in force: the one that was asked for, or a longer one for a while. `None` if the
    /// limit is fixed.
    pub target: Option<Duration>,
    /// Changes to a higher limit, but for those `in_vain`.
    pub rose: u64,
    /// Changes to a lower limit, but for those of `stalled`.
    pub fell: u64,
    /// Returns to the limit before some falls that did not help.
    pub in_vain: u64,
    /// Changes to a lower limit since no request came back.
    pub stalled: u64,
}

impl Inflight {
    /// Returns the limit, its use, and the changes so far.
    ///
    /// Limit and use are of one instant. The changes are of about that time.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Inflight;
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
        let Some(adapt) = &self.adapt else { return stats };
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let changes = &adapt.changes;
        InflightStats {
            target: Some(adapt.target()),
            rose: of(&changes.rose),
            fell: of(&changes.fell),
            in_vain: of(&changes.in_vain),
            stalled: of(&changes.stalled),
            ..stats
        }
    }
}

//! The clock of a lease.

use std::time::Duration;

use tollgate::{Clock, Moment};

use crate::sync::{AtomicU64, Ordering};

/// A clock that runs while granted tokens mature, and else stands still.
///
/// A bucket on this clock earns exactly the tokens that the store granted: `end` is the time at
/// which the last of them has matured. A later grant moves `end`, and `offset` with it, so that the
/// time between two grants does not count.
///
/// # Orderings
///
/// There is one writer at a time. It stores `offset` before `end` (`Release`), and a reader loads
/// `end` before `offset` (`Acquire`). So a reader with a new `end` has the `offset` that belongs to
/// it, or a later one. A later `offset` makes the time earlier, so no token matures too soon.
/// Checked by `tests/models.rs`.
pub(crate) struct LeaseTime {
    clock: Clock,
    origin: Moment,
    pub(super) offset: AtomicU64,
    pub(super) end: AtomicU64,
}

impl LeaseTime {
    pub(crate) fn new(clock: Clock, origin: Moment) -> LeaseTime {
        LeaseTime { clock, origin, offset: AtomicU64::new(0), end: AtomicU64::new(0) }
    }

    /// Returns the nanoseconds since the origin.
    #[inline]
    pub(crate) fn real(&self) -> u64 {
        nanos(self.clock.now().since(self.origin))
    }

    /// Returns the time of the lease.
    #[inline]
    pub(crate) fn read(&self) -> Duration {
        let end = self.end.load(Ordering::Acquire);
        let offset = self.offset.load(Ordering::Acquire);
        Duration::from_nanos(self.real().saturating_sub(offset).min(end))
    }

    /// Moves the end of the lease to `end`. The added time begins at the real time `start` at the
    /// earliest.
    pub(crate) fn extend(&self, start: u64, end: u64) {
        let before = self.end.load(Ordering::Relaxed);
        let offset = self.offset.load(Ordering::Relaxed).max(start.saturating_sub(before));
        self.offset.store(offset, Ordering::Release);
        self.end.store(end, Ordering::Release);
    }

    /// Returns the time of the lease that is left until its end.
    pub(crate) fn rest(&self) -> Duration {
        Duration::from_nanos(self.end.load(Ordering::Acquire)).saturating_sub(self.read())
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(duration.subsec_nanos()))
}

//! A wait, computed when asked for.

use std::time::Duration;

use crate::time::tsc::raw_to_nanos;
use crate::word::state::{Reading, Refill};
use crate::word::tick::TickScale;

/// The wait until some units are earned, from a clock reading on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(super) units: u64,
    pub(super) from: u64,
    pub(super) clock: TickScale,
}

impl Wait {
    pub(crate) fn duration(self) -> Duration {
        Duration::from_nanos(self.nanos())
    }

    pub(crate) fn nanos(self) -> u64 {
        let counts = self.clock.nanos_for(self.from, self.units);
        if self.clock.is_counted() { raw_to_nanos(counts) } else { counts }
    }

    pub(super) fn of(wait: Duration) -> Wait {
        Wait::of_nanos(cut(wait), 0)
    }

    #[inline(always)]
    pub(super) fn of_nanos(nanos: u64, from: u64) -> Wait {
        Wait { units: nanos, from, clock: TickScale::NANOS }
    }

    /// Returns a wait in nanoseconds, with a number for the message beside it.
    pub(super) fn beside(nanos: u64, number: u64) -> Wait {
        // A wait in nanoseconds does not depend on the reading.
        Wait::of_nanos(nanos, number)
    }

    /// Returns the wait until the bucket has `goal` units, from the level after an outcome.
    #[inline]
    pub(crate) fn until<P: Refill>(goal: u64, level: u64, lag: u64, reading: &Reading<P>) -> Wait {
        let (units, clock) = reading.refill.wait(reading.tick, goal, level, lag);
        Wait { units, from: reading.at, clock }
    }
}

/// Returns the nanoseconds of a time, cut to 584 years.
pub(super) fn cut(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

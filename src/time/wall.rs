//! The wall clock: a monotonic clock, shifted to Unix time.
//!
//! The shift is looked up again after a second at most: a drift between the two clocks does not add
//! up, and a wall clock that is set is followed within that time. A reading may so be earlier than
//! the one before. A word takes it for one that is behind its stamp, and grants nothing anew.
//!
//! # Orderings
//!
//! *Release: a reader that sees the time of a look sees a shift that is no older. Partner: the
//! Acquire load of that time.* Two threads may look up at once. Each stores a shift that was right
//! just before.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::fault::{Fault, injected};
use crate::time::tsc;

/// Nanoseconds between two looks at the wall clock.
const EVERY: u64 = 1_000_000_000;

/// No reading: those are below 2^63.
const NEVER: u64 = u64::MAX - EVERY;

/// The shift from a monotonic clock to Unix time.
pub(crate) struct WallShift {
    shift: AtomicU64,
    /// The monotonic reading at which the shift was looked up.
    looked: AtomicU64,
}

impl WallShift {
    pub(crate) const fn new() -> WallShift {
        WallShift { shift: AtomicU64::new(0), looked: AtomicU64::new(NEVER) }
    }

    /// Returns the Unix time at a monotonic reading. `unix` reads the wall clock.
    #[inline]
    pub(crate) fn unix_at(&self, now: u64, unix: impl Fn() -> u64) -> u64 {
        let looked = self.looked.load(Ordering::Acquire);
        // One comparison: the difference wraps for a monotonic clock that was set back.
        if now.wrapping_sub(looked) < EVERY || (looked != NEVER && injected(Fault::IndexFromDrift)) {
            return now.wrapping_add(self.shift.load(Ordering::Relaxed));
        }
        self.look(now, unix())
    }

    #[cold]
    #[inline(never)]
    fn look(&self, now: u64, unix: u64) -> u64 {
        self.shift.store(unix.wrapping_sub(now), Ordering::Relaxed);
        self.looked.store(now, Ordering::Release);
        unix
    }
}

/// Returns the Unix time of the process at a reading of the monotonic clock.
#[inline]
pub(crate) fn unix_at(now: u64) -> u64 {
    static PROCESS: WallShift = WallShift::new();
    PROCESS.unix_at(now, unix_nanos)
}

/// Returns the Unix time now.
#[inline]
pub(crate) fn unix_now() -> u64 {
    unix_at(tsc::nanos())
}

/// Returns the system's time since 1970; 0 if it is earlier.
#[cold]
#[inline(never)]
fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

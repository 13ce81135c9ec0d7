//! The wall clock: a monotonic clock, shifted to Unix time.
//!
//! The shift is looked up again after a second at most: a drift between the two clocks does not add
//! up, and a wall clock that is set is followed within that time. A reading may so be earlier than
//! the one before. A word takes it for one that is behind its stamp, and grants nothing anew.
//!
//! *Invariant:* a shift never depends on the reading that is to be shifted, because a look reads
//! both clocks itself. So a stale reading of a coarse clock becomes a stale Unix time, and shifts
//! no other reading. The wall clock is read first: a thread that is stopped between the two
//! readings finds a Unix time that is late, never early.
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
const NEVER: u64 = u64::MAX - 2 * EVERY;

/// The shift from a monotonic clock to Unix time.
pub(crate) struct WallShift {
    shift: AtomicU64,
    /// A second before the monotonic reading at which the shift was looked up: a coarse clock may
    /// be so much behind a look, and need no other one.
    valid_from: AtomicU64,
}

impl WallShift {
    pub(crate) const fn new() -> WallShift {
        WallShift { shift: AtomicU64::new(0), valid_from: AtomicU64::new(NEVER) }
    }

    /// Returns the Unix time at a monotonic reading.
    ///
    /// `line` reads the monotonic clock, and `unix` the wall clock.
    #[inline]
    pub(crate) fn unix_at(&self, now: u64, line: impl Fn() -> u64, unix: impl Fn() -> u64) -> u64 {
        let valid_from = self.valid_from.load(Ordering::Acquire);
        // One comparison: the difference wraps for a monotonic clock that was set back.
        let valid = now.wrapping_sub(valid_from) < 2 * EVERY;
        if valid || (valid_from != NEVER && injected(Fault::IndexFromDrift)) {
            return now.wrapping_add(self.shift.load(Ordering::Relaxed));
        }
        self.look(now, line, unix)
    }

    /// Notes the shift by readings of both clocks, and returns the Unix time.
    #[cold]
    #[inline(never)]
    fn look(&self, now: u64, line: impl Fn() -> u64, unix: impl Fn() -> u64) -> u64 {
        let unix = unix();
        let line = if injected(Fault::ShiftByReading) { now } else { line() };
        let shift = unix.wrapping_sub(line);
        self.shift.store(shift, Ordering::Relaxed);
        self.valid_from.store(line.wrapping_sub(EVERY), Ordering::Release);
        now.wrapping_add(shift)
    }
}

/// Returns the Unix time of the process at a reading of the monotonic clock.
#[inline]
pub(crate) fn unix_at(now: u64) -> u64 {
    static PROCESS: WallShift = WallShift::new();
    PROCESS.unix_at(now, tsc::nanos, unix_nanos)
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

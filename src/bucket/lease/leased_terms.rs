//! Terms in which what is leased has no room.

use crate::bucket::atomic::{FreshReading, Read, ReadOnce};
use crate::fault::{Fault, injected};
use crate::sync::{AtomicU64, Ordering};
use crate::word::state::State;
use crate::word::terms::{Reading, Refill, Terms};
use crate::word::tick::TickScale;

/// A bucket's terms, with room for less.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeasedTerms {
    pub(super) terms: Terms,
    capacity: u64,
    /// Tokens that count as leased.
    pub(super) leased: u64,
}

impl Refill for LeasedTerms {
    #[inline]
    fn terms(&self) -> &Terms {
        &self.terms
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn nominal_capacity(&self) -> u64 {
        self.terms.capacity
    }

    fn min_level(&self) -> u64 {
        self.terms.min_level()
    }

    #[inline]
    fn earned(&self, now: u64, passed: u64) -> u64 {
        Refill::earned(&self.terms, now, passed)
    }

    fn ticks_for(&self, now: u64, units: u64) -> u64 {
        Refill::ticks_for(&self.terms, now, units)
    }

    fn wait(&self, now: u64, goal: u64, level: u64, lag: u64) -> (u64, TickScale) {
        self.terms.wait(now, goal, level, lag)
    }
}

impl Reading<LeasedTerms> {
    /// As if nothing were leased.
    pub(super) fn in_full(self) -> Reading {
        Reading { refill: self.refill.terms, at: self.at, tick: self.tick }
    }
}

/// A reading that counts with what is leased.
#[derive(Clone, Copy)]
pub(super) struct LeasedReading<'a, T> {
    pub(super) read: T,
    pub(super) leased: &'a AtomicU64,
    /// Tokens by which the reader has raised it, and has not taken yet.
    pub(super) raised: u64,
    /// The word is cut to the room there is, whatever was in it before.
    pub(super) cut: bool,
}

impl<T: Read<Reading>> Read<Reading<LeasedTerms>> for LeasedReading<'_, T> {
    #[inline]
    fn read(&self, state: State) -> Reading<LeasedTerms> {
        // No underflow: what the reader has raised it by is in it.
        let leased = self.leased.load(Ordering::Acquire) - self.raised;
        let leased = if injected(Fault::LeasesUncounted) { 0 } else { leased };
        let Reading { refill: terms, at, tick } = self.read.read(state);
        // More is leased than there is room for only where the burst was lowered.
        let room = terms.capacity.saturating_sub(terms.units(leased)).max(terms.empty_level);
        // What was there at the last commit has room beside all that is leased; `leased` may already be higher than that.
        let kept = if self.cut { 0 } else { state.stored(&terms).min(terms.capacity) };
        Reading { refill: LeasedTerms { terms, capacity: room.max(kept), leased }, at, tick }
    }
}

/// A reading for an attempt, while nothing is leased.
#[derive(Clone, Copy)]
pub(super) struct NoLeaseReading<'a, T>(pub(super) T, pub(super) &'a AtomicU64);

impl<T: ReadOnce> Read<Reading> for NoLeaseReading<'_, T> {
    fn read(&self, state: State) -> Reading {
        self.0.read(state)
    }
}

impl<T: ReadOnce> ReadOnce for NoLeaseReading<'_, T> {
    #[inline(always)]
    fn count(&self) -> u64 {
        self.0.count()
    }

    #[inline(always)]
    fn admitted(&self, state: State, count: u64) -> FreshReading {
        let once = self.0.admitted(state, count);
        let unleased = self.1.load(Ordering::Acquire) == 0 || injected(Fault::LeasesUncounted);
        FreshReading { fits: once.fits && unleased, ..once }
    }
}

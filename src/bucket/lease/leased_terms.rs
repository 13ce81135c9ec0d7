//! Terms whose capacity is reduced by the tokens that are out on lease.

use crate::bucket::atomic::{FreshReading, Order, ReadClock};
use crate::fault::{Fault, injected};
use crate::sync::{AtomicU64, Ordering};
use crate::word::state::{Reading, Refill, State};
use crate::word::terms::Terms;

/// The terms of a bucket, with its capacity reduced by the leases.
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
}

impl LeasedTerms {
    /// Returns the same reading as if no token were leased.
    pub(super) fn in_full(reading: Reading<LeasedTerms>) -> Reading {
        Reading { refill: reading.refill.terms, at: reading.at, tick: reading.tick }
    }
}

/// The clock of a spread bucket, and the leased tokens beside it.
#[derive(Clone, Copy)]
pub(super) struct LeaseClock<'a, T> {
    pub(super) read: T,
    pub(super) leased: &'a AtomicU64,
}

impl<T: ReadClock> LeaseClock<'_, T> {
    /// Returns a reading that counts with the leased tokens.
    ///
    /// The reader has added `raised` of them, and has not taken these yet. `cut` reduces the word
    /// to the room there is, whatever its level was before.
    #[inline]
    pub(super) fn beside_leases(self, state: State, raised: u64, cut: bool) -> Reading<LeasedTerms> {
        // No underflow: `raised` is part of `leased`.
        let leased = self.leased.load(Ordering::Acquire) - raised;
        let leased = if injected(Fault::LeasesUncounted) { 0 } else { leased };
        let Reading { refill: terms, at, tick } = self.read(state);
        // The leases exceed the room only after the burst was lowered.
        let room = terms.capacity.saturating_sub(terms.units(leased)).max(terms.empty_level);
        // The stored level never has to shrink: at its commit, level plus leases fitted the burst,
        // and leases counted since were taken from it.
        let kept = if cut { 0 } else { state.stored(&terms).min(terms.capacity) };
        Reading { refill: LeasedTerms { terms, capacity: room.max(kept), leased }, at, tick }
    }
}

/// Returns readings as if no token were leased. An attempt is admitted only while that is so.
impl<T: ReadClock> ReadClock for LeaseClock<'_, T> {
    #[inline]
    fn read(&self, state: State) -> Reading {
        self.read.read(state)
    }

    #[inline(always)]
    fn raw(&self) -> u64 {
        self.read.raw()
    }

    #[inline(always)]
    fn admitted<P: Refill>(&self, state: State, raw: u64, first: Order) -> FreshReading {
        let once = self.read.admitted::<P>(state, raw, first);
        let unleased = self.leased.load(Ordering::Acquire) == 0 || injected(Fault::LeasesUncounted);
        FreshReading { fits: once.fits && unleased, may_lag: once.may_lag && unleased, ..once }
    }
}

//! A version of the terms: the numbers that a change of quota replaces, and the gate beside its
//! number.

use crate::fault::{Fault, injected};
use crate::rule::gate::Gate;
use crate::sync::{AtomicU64, Ordering, const_fn};
use crate::time::clock::Clock;
use crate::word::state::Reading;
use crate::word::terms::Terms;
use crate::word::tick::TickScale;

/// The bits of `published_version` that say that the tokens do not decide.
const OPEN: u64 = 1 << 62;
const SHUT: u64 = 1 << 63;
/// The bits of `published_version` that are the number of the version.
pub(super) const NUMBER: u64 = OPEN - 1;

/// The bit that marks a pending start, base or turn; the number of the version is in the bits
/// below.
pub(super) const PENDING: u64 = 1 << 63;

/// Returns the placeholder for a start, base or turn of version `number` that is not agreed on yet.
pub(super) fn pending(number: u64) -> u64 {
    PENDING | if injected(Fault::Unnumbered) { 0 } else { number }
}

/// The part of the terms that differs between versions. An attempt needs one cache line of it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Version {
    /// `multiplier_low` and `packed` for raw readings of the clock; 0 until they are known.
    pub(super) raw_multiplier_low: AtomicU64,
    pub(super) raw_packed: AtomicU64,
    /// The base less the tick at which the present turn of the stamp began.
    pub(super) turn: AtomicU64,
    pub(super) capacity: AtomicU64,
    pub(super) near: AtomicU64,
    pub(super) multiplier_low: AtomicU64,
    pub(super) packed: AtomicU64,
    pub(super) base: AtomicU64,
}

impl Version {
    const_fn! {
        pub(super) const fn new(terms: &Terms) -> Version {
            Version {
                raw_multiplier_low: AtomicU64::new(0),
                raw_packed: AtomicU64::new(0),
                turn: AtomicU64::new(PENDING),
                capacity: AtomicU64::new(terms.capacity),
                near: AtomicU64::new(terms.max_skew()),
                multiplier_low: AtomicU64::new(terms.ticks.multiplier_low),
                packed: AtomicU64::new(terms.ticks.packed),
                base: AtomicU64::new(terms.base),
            }
        }
    }

    #[inline]
    pub(super) fn ticks(&self) -> TickScale {
        TickScale {
            multiplier_low: self.multiplier_low.load(Ordering::Acquire),
            packed: self.packed.load(Ordering::Acquire),
        }
    }

    /// Returns the raw tick scale. It is not known yet if `packed` is 0.
    #[inline(always)]
    pub(super) fn counted(&self) -> TickScale {
        let packed = self.raw_packed.load(Ordering::Acquire);
        TickScale { multiplier_low: self.raw_multiplier_low.load(Ordering::Acquire), packed }
    }

    /// Computes the raw tick scale, and stores `raw_multiplier_low` before `raw_packed` by `put`.
    pub(super) fn count(&self, ticks: TickScale, clock: &Clock, put: impl Fn(&AtomicU64, u64)) {
        let (whole, multiplier_low) = clock.nanos_per_raw();
        let TickScale { multiplier_low, packed } = ticks.counted(whole, multiplier_low);
        put(&self.raw_multiplier_low, multiplier_low);
        put(&self.raw_packed, packed);
    }
}

impl Version {
    /// Begins the turn of the stamp that a tick is in, if the tick is not of the present turn
    /// `seen`. `number` is that of this version, and `back` the most ticks by which a clock is set
    /// back.
    ///
    /// A turn never ends early for a reading that is behind: the stamps of the later turn would
    /// read as earlier ones. It does for a clock that was set back by more than `back` ticks, which
    /// may refill a bucket once.
    pub(super) fn begin_turn(&self, number: u64, seen: u64, reading: &Reading, back: u64) {
        let Terms { base, mask, .. } = reading.refill;
        let into = reading.tick.wrapping_sub(base).wrapping_add(seen).cast_signed();
        let behind = into < 0 && into >= -back.cast_signed();
        if seen != pending(number) && behind && !injected(Fault::TurnSetBack) {
            return;
        }
        let turn = base.wrapping_sub(reading.tick & !mask);
        let _ = self.turn.compare_exchange(seen, turn, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Returns a number of a version with its gate.
pub(super) const fn marked(number: u64, gate: Gate) -> u64 {
    match gate {
        Gate::Counted => number,
        Gate::Open => number | OPEN,
        Gate::Shut => number | SHUT,
    }
}

/// Returns the gate of a published number.
pub(super) fn gate_of(published: u64) -> Gate {
    match published & !NUMBER {
        OPEN => Gate::Open,
        SHUT => Gate::Shut,
        _ => Gate::Counted,
    }
}

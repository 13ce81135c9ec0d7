//! Terms: a [`Quota`](crate::Quota) compiled once for the layout of its word.
//!
//! A bucket may be in debt to waiting callers. Its tokens field holds the level above the deepest
//! debt, so the field is never negative; at [`empty_level`](Terms::empty_level) the bucket is
//! empty.
//!
//! No sum or shift of the hot path overflows (proofs at the lines).

use crate::rule::counts::Counting;
use crate::rule::gate::Gate;
use crate::rule::layout::{Layout, MAX_BURST, RawQuota, Widths};
#[cfg(test)]
use crate::rule::layout::{LayoutOptions, QuotaError};
use crate::word::tick::TickScale;

/// Largest lag of a reading behind the stamp that is jitter between cores, in nanoseconds: 4 s.
const SKEW_NANOS: u64 = 4_000_000_000;
/// Largest lag beyond that which is a clock that jumped back, in nanoseconds: 1 h.
const JUMP_NANOS: u64 = 3_600_000_000_000;
/// Eviction grace in nanoseconds, 2 s: the time that a bucket must be full before eviction, because
/// the evictor's clock may be ahead.
pub(crate) const EVICTION_GRACE: u64 = 2_000_000_000;

/// A compiled quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) widths: Widths,
    pub(crate) ticks: TickScale,
    /// Offset added to every tick, so that ticks stay continuous across quota changes.
    pub(crate) base: u64,
    /// `2^stamp - 1`.
    pub(crate) mask: u64,
    /// The level of an empty bucket, in units. Below it the bucket is in debt.
    pub(crate) empty_level: u64,
    /// The level of a full bucket, in units.
    pub(crate) capacity: u64,
    /// Least difference to the stamp, in ticks, that is not time that passed: the clock is behind
    /// the stamp or was set back.
    pub(crate) backward_from: u64,
    /// Whether the tokens decide. An attempt is admitted only where they do.
    pub(crate) gate: Gate,
}

impl Terms {
    #[cfg(test)]
    pub(crate) const fn compile(quota: RawQuota, room: LayoutOptions) -> Result<Terms, QuotaError> {
        match Layout::of(quota, room) {
            Ok(layout) => Ok(Terms::in_layout(quota, layout)),
            Err(flaw) => Err(flaw),
        }
    }

    /// Returns the terms in a given layout: that of the word, or a tiny one that a test enumerates.
    pub(crate) const fn in_layout(quota: RawQuota, Layout { widths, debt }: Layout) -> Terms {
        let RawQuota { tokens, nanos, burst } = quota;
        let range = 1_u64 << widths.stamp;
        let ticks = TickScale::new(tokens, nanos, widths.fraction as u32, widths.scale as u32);
        let mut terms = Terms {
            widths,
            ticks,
            base: 0,
            mask: range - 1,
            empty_level: debt << widths.fraction,
            capacity: (debt + burst) << widths.fraction,
            backward_from: 0,
            gate: Gate::Counted,
        };
        // The stamp of a window may wrap after 19.5 hours, of which an hour is more than a 64th.
        let parts = if matches!(widths.counts.counting, Counting::Bucket) { 64 } else { 16 };
        let back = at_least_2(ticks.ticks_in(JUMP_NANOS), range.div_ceil(parts));
        terms.backward_from = terms.skew_from() - back;
        terms
    }

    /// Returns the same terms after a change from a faster quota.
    ///
    /// Stamps of the faster quota may be ahead by its jitter, which is many ticks at the slower
    /// rate. The backward window is therefore widened to the whole spare range.
    pub(crate) const fn after_others(self) -> Terms {
        Terms { backward_from: self.skew_from() - self.mask.div_ceil(64), ..self }
    }

    /// Returns the ticks by which a clock may be ahead of another: 4 s, at most 1/4096 of the
    /// stamp's range, and at least 2.
    pub(crate) const fn max_skew(&self) -> u64 {
        self.mask + 1 - self.skew_from()
    }

    /// Returns the least difference to the stamp, in ticks, that is jitter.
    pub(crate) const fn skew_from(&self) -> u64 {
        let range = self.mask + 1;
        range - at_least_2(self.ticks.ticks_in(SKEW_NANOS), range.div_ceil(4096))
    }

    /// Returns the ticks of the eviction grace.
    pub(crate) const fn grace(&self) -> u64 {
        self.ticks.ticks_in(EVICTION_GRACE) + 1
    }

    /// Returns the lowest level that a debt may lead to, in units; 0 is the deepest debt.
    ///
    /// Without a chosen `max_debt`, the debt is at most one burst of the quota in force.
    pub(crate) const fn min_level(&self) -> u64 {
        let burst = self.capacity - self.empty_level;
        if self.widths.fixed_debt { 0 } else { self.empty_level.saturating_sub(burst) }
    }

    /// Returns the least number of ticks that earn `units`.
    #[inline]
    pub(crate) const fn ticks_for(&self, units: u64) -> u64 {
        // Units are below 2^58 (the stamp has 6 bits or more): the sum does not wrap.
        (units + (1 << self.widths.scale) - 1) >> self.widths.scale
    }

    /// Returns the tick at a clock reading, modulo 2^64.
    #[inline]
    pub(crate) const fn tick(&self, nanos: u64) -> u64 {
        self.base.wrapping_add(self.ticks.tick(nanos))
    }

    pub(crate) const fn layout(&self) -> Layout {
        Layout { widths: self.widths, debt: self.empty_level >> self.widths.fraction }
    }

    /// Returns the units of `n` tokens. `n` is clamped to `MAX_TOKENS`, which is more than any
    /// bucket holds.
    #[inline]
    pub(crate) const fn units(&self, n: u64) -> u64 {
        // At most 2^41 * 2^16.
        let n = if n > MAX_TOKENS { MAX_TOKENS } else { n };
        n << self.widths.fraction
    }

    /// Returns the whole tokens in `units`.
    #[inline]
    pub(crate) const fn tokens(&self, units: u64) -> u64 {
        units >> self.widths.fraction
    }

    /// Returns the mark: the virtual time at which the level was 0, the deepest debt.
    ///
    /// The time is the stamp in units less the level, modulo the range in units. A take moves the
    /// mark forward, and a refund moves it back. Refill moves it only where the capacity cuts the
    /// level off.
    pub(crate) const fn empty_at(&self, stamp: u64, level: u64) -> u64 {
        // Stamps are known modulo the range, so this time is as well.
        (stamp << self.widths.scale).wrapping_sub(level) & (((self.mask + 1) << self.widths.scale) - 1)
    }

    /// Returns the whole tokens of a bucket at `level` units; 0 if it is empty or in debt.
    #[inline]
    pub(crate) const fn available(&self, level: u64) -> u64 {
        self.tokens(level.saturating_sub(self.empty_level))
    }
}

/// Tokens that fill any bucket from its deepest debt; more than any burst, fewer than would
/// overflow.
const MAX_TOKENS: u64 = 2 * MAX_BURST;

/// Clamps to `2..=most`. The lower bound keeps the window from vanishing for slow quotas.
const fn at_least_2(ticks: u64, most: u64) -> u64 {
    let ticks = if ticks > most { most } else { ticks };
    if ticks < 2 { 2 } else { ticks }
}

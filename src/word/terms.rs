//! What a [`Quota`](crate::Quota) is compiled to, once, in the frame of its word; and how buckets earn by it.
//!
//! A bucket may be in debt to those who wait. Its field holds what is in it and the most debt together, so
//! that it is never negative; the [`empty_level`](Terms::empty_level) is where it is empty.
//!
//! No sum or shift of the hot path overflows (proofs at the lines).

use crate::quota::layout::{Layout, MAX_BURST, RawQuota, Widths};
#[cfg(test)]
use crate::quota::layout::{LayoutOptions, QuotaError};
use crate::time::tsc::raw_to_nanos;
use crate::word::tick::TickScale;

/// Readings that are behind the stamp by up to this much are jitter between cores: 4 s.
const JITTER_NANOS: u64 = 4_000_000_000;
/// Readings that are behind by up to this much more are a clock that jumped back: 1 h.
const JUMP_NANOS: u64 = 3_600_000_000_000;
/// How long a bucket has been full before it may be evicted: 2 s, in case the evictor's clock is ahead.
pub(crate) const EVICTION_GRACE: u64 = 2_000_000_000;

/// A compiled quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) widths: Widths,
    pub(crate) ticks: TickScale,
    /// Added to the clock's ticks: what its rate was before makes a difference for ever.
    pub(crate) base: u64,
    /// `2^stamp - 1`.
    pub(crate) mask: u64,
    /// The level of an empty bucket, in units. Below it the bucket is in debt.
    pub(crate) empty_level: u64,
    /// The level of a full bucket.
    pub(crate) capacity: u64,
    /// From this many ticks on, a difference to the stamp is not time that passed: the clock is back.
    pub(crate) backward_from: u64,
}

impl Terms {
    #[cfg(test)]
    pub(crate) const fn compile(quota: RawQuota, room: LayoutOptions) -> Result<Terms, QuotaError> {
        match Layout::of(quota, room) {
            Ok(layout) => Ok(Terms::in_layout(quota, layout)),
            Err(flaw) => Err(flaw),
        }
    }

    /// The terms in a given frame: the one of the word, or a tiny one that a test enumerates.
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
        };
        let back = at_least_2(ticks.ticks_in(JUMP_NANOS), range.div_ceil(64));
        terms.backward_from = terms.jitter_from() - back;
        terms
    }

    /// These terms where a faster rate has gone before. Its stamps may be ahead by the jitter of its clock, which is
    /// many ticks of a slow one: whatever the range can spare is a clock that was set back.
    pub(crate) const fn after_others(self) -> Terms {
        Terms { backward_from: self.jitter_from() - self.mask.div_ceil(64), ..self }
    }

    /// So many ticks a clock may be ahead of another: 4 s, or the 4096th part of the stamp's range.
    pub(crate) const fn max_skew(&self) -> u64 {
        self.mask + 1 - self.jitter_from()
    }

    /// From this many ticks on, a difference to the stamp is jitter.
    pub(crate) const fn jitter_from(&self) -> u64 {
        let range = self.mask + 1;
        range - at_least_2(self.ticks.ticks_in(JITTER_NANOS), range.div_ceil(4096))
    }

    /// How long, in ticks, a bucket stays after it is full.
    pub(crate) const fn grace(&self) -> u64 {
        self.ticks.ticks_in(EVICTION_GRACE) + 1
    }

    /// The lowest level that a debt may leave.
    pub(crate) const fn min_level(&self) -> u64 {
        let burst = self.capacity - self.empty_level;
        if self.widths.fixed_debt { 0 } else { self.empty_level.saturating_sub(burst) }
    }

    /// The tick at a clock reading, modulo 2^64.
    #[inline]
    pub(crate) const fn tick(&self, nanos: u64) -> u64 {
        self.base.wrapping_add(self.ticks.tick(nanos))
    }

    pub(crate) const fn layout(&self) -> Layout {
        Layout { widths: self.widths, debt: self.empty_level >> self.widths.fraction }
    }

    /// The units of `n` tokens. More than any bucket holds cost more than any bucket holds.
    #[inline]
    pub(crate) const fn units(&self, n: u64) -> u64 {
        // At most 2^41 * 2^16.
        let n = if n > MAX_TOKENS { MAX_TOKENS } else { n };
        n << self.widths.fraction
    }

    /// Whole tokens in `units`.
    #[inline]
    pub(crate) const fn tokens(&self, units: u64) -> u64 {
        units >> self.widths.fraction
    }

    /// The units earned when a bucket is next empty of debt: a number that takes and refunds alone move.
    pub(crate) const fn empty_at(&self, stamp: u64, level: u64) -> u64 {
        // Stamps are known modulo the range, so marks are as well.
        (stamp << self.widths.scale).wrapping_sub(level) & (((self.mask + 1) << self.widths.scale) - 1)
    }

    /// Whole tokens that a plain take finds at a level.
    #[inline]
    pub(crate) const fn available(&self, level: u64) -> u64 {
        self.tokens(level.saturating_sub(self.empty_level))
    }
}

/// As many tokens as fill any bucket from its deepest debt; more than any burst, fewer than would overflow.
const MAX_TOKENS: u64 = 2 * MAX_BURST;

/// At most `most`, but rounded to nothing a window would vanish for slow quotas.
const fn at_least_2(ticks: u64, most: u64) -> u64 {
    let ticks = if ticks > most { most } else { ticks };
    if ticks < 2 { 2 } else { ticks }
}

/// How a bucket earns: as its [`Terms`] say, or as a plan on top of them.
pub(crate) trait Refill: Copy {
    fn terms(&self) -> &Terms;
    /// The level of a full bucket.
    fn capacity(&self) -> u64;
    /// That of one that nothing is leased of: more than that is never taken at once.
    #[inline]
    fn nominal_capacity(&self) -> u64 {
        self.capacity()
    }
    /// The lowest level that a debt may leave.
    fn min_level(&self) -> u64;
    /// The units that came in the `passed` ticks until the tick `now`.
    fn earned(&self, now: u64, passed: u64) -> u64;
    /// The least number of ticks, from the tick `now` on, that earn `units`.
    fn ticks_for(&self, now: u64, units: u64) -> u64;
    /// What is to be earned, from the tick `now` on, until a level is `goal`, and the clock by which it is. A stamp is `lag`
    /// ticks ahead of now.
    #[inline]
    fn wait(&self, now: u64, goal: u64, level: u64, lag: u64) -> (u64, TickScale) {
        (ticks_until(self, now, goal, level, lag), self.terms().ticks.by_ticks())
    }
}

impl Refill for Terms {
    #[inline]
    fn terms(&self) -> &Terms {
        self
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn min_level(&self) -> u64 {
        Terms::min_level(self)
    }

    #[inline]
    fn earned(&self, _: u64, passed: u64) -> u64 {
        // No overflow: `stamp + scale <= 62`.
        passed << self.widths.scale
    }

    #[inline]
    fn ticks_for(&self, _: u64, units: u64) -> u64 {
        // Units are below 2^58 (the stamp has 6 bits or more): the sum does not wrap.
        (units + (1 << self.widths.scale) - 1) >> self.widths.scale
    }

    // Ticks are left to whoever asks how long that takes.
    #[inline(always)]
    fn wait(&self, _: u64, goal: u64, level: u64, lag: u64) -> (u64, TickScale) {
        // Below 2^58 and 2^62.
        let units = if goal <= level { 0 } else { goal - level + (lag << self.widths.scale) };
        (units, self.ticks)
    }
}

/// A clock reading, and how buckets earn at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<P = Terms> {
    pub(crate) refill: P,
    /// In nanoseconds or, where [a clock's counts](TickScale::counted) are asked for ticks, in those.
    pub(crate) at: u64,
    pub(crate) tick: u64,
}

impl<P: Refill> Reading<P> {
    #[inline(always)]
    pub(crate) fn new(refill: P, at: u64) -> Reading<P> {
        Reading { tick: refill.terms().tick(at), refill, at }
    }

    pub(crate) fn nanos(&self) -> u64 {
        if self.refill.terms().ticks.is_counted() { raw_to_nanos(self.at) } else { self.at }
    }
}

/// Ticks until a bucket that has `level` units, `lag` ticks after `now`, has `goal`.
#[inline]
pub(crate) fn ticks_until(refill: &impl Refill, now: u64, goal: u64, level: u64, lag: u64) -> u64 {
    if goal <= level { 0 } else { refill.ticks_for(now.wrapping_add(lag), goal - level) + lag }
}

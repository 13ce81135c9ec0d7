//! What a [`Quota`](crate::Quota) is compiled to, once, in the frame of its word; and how buckets earn by it.
//!
//! A bucket may be in debt to those who wait. Its field holds what is in it and the most debt together, so
//! that it is never negative; the [`floor`](Terms::floor) is where it is empty.
//!
//! No sum or shift of the hot path overflows (proofs at the lines).

#[cfg(test)]
use crate::quota::layout::{Flaw, Room};
use crate::quota::layout::{Frame, Layout, MAX_BURST, Numbers};
use crate::time::tsc::counted_nanos;
use crate::word::tick::TickClock;

/// Readings that are behind the stamp by up to this much are jitter between cores: 4 s.
const JITTER_NANOS: u64 = 4_000_000_000;
/// Readings that are behind by up to this much more are a clock that jumped back: 1 h.
const JUMP_NANOS: u64 = 3_600_000_000_000;
/// How long a bucket has been full before it may be evicted: 2 s, in case the evictor's clock is ahead.
pub(crate) const MARGIN_NANOS: u64 = 2_000_000_000;

/// A compiled quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) layout: Layout,
    pub(crate) ticks: TickClock,
    /// Added to the clock's ticks: what its rate was before makes a difference for ever.
    pub(crate) base: u64,
    /// `2^stamp - 1`.
    pub(crate) mask: u64,
    /// The level of an empty bucket, in units. Below it the bucket is in debt.
    pub(crate) floor: u64,
    /// The level of a full bucket.
    pub(crate) capacity: u64,
    /// From this many ticks on, a difference to the stamp is not time that passed: the clock is back.
    pub(crate) horizon: u64,
}

impl Terms {
    #[cfg(test)]
    pub(crate) const fn compile(quota: Numbers, room: Room) -> Result<Terms, Flaw> {
        match Frame::of(quota, room) {
            Ok(frame) => Ok(Terms::in_frame(quota, frame)),
            Err(flaw) => Err(flaw),
        }
    }

    /// The terms in a given frame: the one of the word, or a tiny one that a test enumerates.
    pub(crate) const fn in_frame(quota: Numbers, Frame { layout, debt }: Frame) -> Terms {
        let Numbers { tokens, nanos, burst } = quota;
        let range = 1_u64 << layout.stamp;
        let ticks = TickClock::new(tokens, nanos, layout.fraction as u32, layout.scale as u32);
        let mut terms = Terms {
            layout,
            ticks,
            base: 0,
            mask: range - 1,
            floor: debt << layout.fraction,
            capacity: (debt + burst) << layout.fraction,
            horizon: 0,
        };
        let back = at_least_2(ticks.ticks_in(JUMP_NANOS), range.div_ceil(64));
        terms.horizon = terms.jitter() - back;
        terms
    }

    /// These terms where a faster rate has gone before. Its stamps may be ahead by the jitter of its clock, which is
    /// many ticks of a slow one: whatever the range can spare is a clock that was set back.
    pub(crate) const fn after_others(self) -> Terms {
        Terms { horizon: self.jitter() - self.mask.div_ceil(64), ..self }
    }

    /// So many ticks a clock may be ahead of another: 4 s, or the 4096th part of the stamp's range.
    pub(crate) const fn near(&self) -> u64 {
        self.mask + 1 - self.jitter()
    }

    /// From this many ticks on, a difference to the stamp is jitter.
    pub(crate) const fn jitter(&self) -> u64 {
        let range = self.mask + 1;
        range - at_least_2(self.ticks.ticks_in(JITTER_NANOS), range.div_ceil(4096))
    }

    /// How long, in ticks, a bucket stays after it is full.
    pub(crate) const fn margin(&self) -> u64 {
        self.ticks.ticks_in(MARGIN_NANOS) + 1
    }

    /// The lowest level that a debt may leave.
    pub(crate) const fn lowest(&self) -> u64 {
        let burst = self.capacity - self.floor;
        if self.layout.fixed_debt { 0 } else { self.floor.saturating_sub(burst) }
    }

    /// The tick at a clock reading, modulo 2^64.
    #[inline]
    pub(crate) const fn tick(&self, nanos: u64) -> u64 {
        self.base.wrapping_add(self.ticks.tick(nanos))
    }

    pub(crate) const fn frame(&self) -> Frame {
        Frame { layout: self.layout, debt: self.floor >> self.layout.fraction }
    }

    /// The units of `n` tokens. More than any bucket holds cost more than any bucket holds.
    #[inline]
    pub(crate) const fn units(&self, n: u64) -> u64 {
        // At most 2^41 * 2^16.
        let n = if n > MAX_TOKENS { MAX_TOKENS } else { n };
        n << self.layout.fraction
    }

    /// Whole tokens in `units`.
    #[inline]
    pub(crate) const fn tokens(&self, units: u64) -> u64 {
        units >> self.layout.fraction
    }

    /// The units earned when a bucket is next empty of debt: a number that takes and refunds alone move.
    pub(crate) const fn mark(&self, stamp: u64, level: u64) -> u64 {
        // Stamps are known modulo the range, so marks are as well.
        (stamp << self.layout.scale).wrapping_sub(level) & (((self.mask + 1) << self.layout.scale) - 1)
    }

    /// Whole tokens that a plain take finds at a level.
    #[inline]
    pub(crate) const fn available(&self, level: u64) -> u64 {
        self.tokens(level.saturating_sub(self.floor))
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
pub(crate) trait Pace: Copy {
    fn terms(&self) -> &Terms;
    /// The level of a full bucket.
    fn capacity(&self) -> u64;
    /// That of one that nothing is leased of: more than that is never taken at once.
    #[inline]
    fn brim(&self) -> u64 {
        self.capacity()
    }
    /// The lowest level that a debt may leave.
    fn lowest(&self) -> u64;
    /// The units that came in the `passed` ticks until the tick `now`.
    fn earned(&self, now: u64, passed: u64) -> u64;
    /// The least number of ticks, from the tick `now` on, that earn `units`.
    fn ticks_for(&self, now: u64, units: u64) -> u64;
    /// What is to be earned, from the tick `now` on, until a level is `goal`, and the clock by which it is. A stamp is `lag`
    /// ticks ahead of now.
    #[inline]
    fn wait(&self, now: u64, goal: u64, level: u64, lag: u64) -> (u64, TickClock) {
        (ticks_until(self, now, goal, level, lag), self.terms().ticks.by_ticks())
    }
}

impl Pace for Terms {
    #[inline]
    fn terms(&self) -> &Terms {
        self
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn lowest(&self) -> u64 {
        Terms::lowest(self)
    }

    #[inline]
    fn earned(&self, _: u64, passed: u64) -> u64 {
        // No overflow: `stamp + scale <= 62`.
        passed << self.layout.scale
    }

    #[inline]
    fn ticks_for(&self, _: u64, units: u64) -> u64 {
        // Units are below 2^58 (the stamp has 6 bits or more): the sum does not wrap.
        (units + (1 << self.layout.scale) - 1) >> self.layout.scale
    }

    // Ticks are left to whoever asks how long that takes.
    #[inline(always)]
    fn wait(&self, _: u64, goal: u64, level: u64, lag: u64) -> (u64, TickClock) {
        // Below 2^58 and 2^62.
        let units = if goal <= level { 0 } else { goal - level + (lag << self.layout.scale) };
        (units, self.ticks)
    }
}

/// A clock reading, and how buckets earn at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<P = Terms> {
    pub(crate) pace: P,
    /// In nanoseconds or, where [a clock's counts](TickClock::counted) are asked for ticks, in those.
    pub(crate) at: u64,
    pub(crate) tick: u64,
}

impl<P: Pace> Reading<P> {
    #[inline(always)]
    pub(crate) fn new(pace: P, at: u64) -> Reading<P> {
        Reading { tick: pace.terms().tick(at), pace, at }
    }

    pub(crate) fn nanos(&self) -> u64 {
        if self.pace.terms().ticks.is_counted() { counted_nanos(self.at) } else { self.at }
    }
}

/// Ticks until a bucket that has `level` units, `lag` ticks after `now`, has `goal`.
#[inline]
pub(crate) fn ticks_until(pace: &impl Pace, now: u64, goal: u64, level: u64, lag: u64) -> u64 {
    if goal <= level { 0 } else { pace.ticks_for(now.wrapping_add(lag), goal - level) + lag }
}

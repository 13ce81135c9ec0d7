//! The refill of a word that counts windows: a level is its counts, the current one lowest.
//!
//! ```text
//! sliding, b = 3, one sub-window later:
//!  63                                    S S-1                   0
//! | 0 | b: 4 | 1 | 0 | current: 3 |       | stamp: index          |
//! | 0 |    1 | 0 | 3 | current: 0 |       | index + 1             |
//! ```
//!
//! The oldest sub-window counts in full until it is a whole period ago. So at most the limit is
//! granted in any period: an interval of that length lies within `b + 1` sub-windows.
//!
//! The stamp wraps after at least 64 periods and 19.5 hours. A word without a commit for that long
//! may then count its old tokens for one more window: a grant is late, never early.

use crate::fault::{Fault, injected};
use crate::rule::calendar;
use crate::rule::counts::{CountWidths, Counting};
use crate::rule::gate::Gate;
use crate::rule::layout::Widths;
use crate::rule::window_layout::FIRST_USE_TICKS;
use crate::word::plan::PlanTerms;
use crate::word::refilled::Refilled;
use crate::word::state::{Balance, Reading, Refill, State};
use crate::word::terms::{EVICTION_GRACE, Terms};
use crate::word::tick::TickScale;

/// The terms of a word that counts windows, at a reading. The capacity is the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowTerms<const COUNTING: u8 = ANY> {
    terms: Terms,
    pub(super) counts: CountWidths,
    /// The part of a weighted window that has passed, in 2^-16 of it.
    part: u64,
}

/// Any way of counting: the widths of the word say which.
pub(crate) const ANY: u8 = u8::MAX;
/// The ways of counting that attempts know at compile time.
pub(crate) const SUB_WINDOWS: u8 = Counting::SubWindows as u8;
pub(crate) const FIRST_USE: u8 = Counting::FirstUse as u8;
pub(crate) const WEIGHTED: u8 = Counting::Weighted as u8;
const MONTHS: u8 = Counting::Months as u8;
/// The parts of a weighted window.
const PARTS: u64 = 1 << 16;
/// Ticks of a window from the first use. The first use may be late in its tick.
const LENGTH: u64 = FIRST_USE_TICKS + 1;
/// `REPEATED[w]` has a 1 in each field of `w` bits.
const REPEATED: [u64; 256] = {
    let mut repeated = [0; 256];
    let mut width = 1;
    while width < 64 {
        let mut at = 0;
        while at < 64 {
            repeated[width] |= 1 << at;
            at += width;
        }
        width += 1;
    }
    repeated
};

impl Reading {
    /// Returns the same reading, of a clock in Unix time, in ticks of a civil month each.
    pub(crate) fn by_months(self) -> Reading {
        Reading { tick: calendar::month_at(self.at), ..self }
    }
}

impl<const COUNTING: u8> WindowTerms<COUNTING> {
    /// Returns the same reading, of a word that counts windows, perhaps under a cap.
    pub(crate) fn of(reading: Reading, cap: Option<&PlanTerms>) -> Reading<WindowTerms<COUNTING>> {
        let mut by = WindowTerms::at(reading, reading.refill.widths.counts);
        if let Some(cap) = cap {
            by.refill.terms.capacity = cap.capacity;
        }
        by
    }

    /// Returns the same reading, for a word that counts windows in fields of these widths.
    ///
    /// No cap applies. `COUNTING` is [`ANY`], or the way of counting in `counts`.
    #[inline(always)]
    pub(crate) fn at(
        Reading { refill: terms, at, tick }: Reading,
        counts: CountWidths,
    ) -> Reading<WindowTerms<COUNTING>> {
        // Constants, so that nothing is computed with them.
        let widths = Widths { fraction: 0, ..terms.widths };
        let mut refill = WindowTerms { terms: Terms { widths, empty_level: 0, ..terms }, counts, part: 0 };
        if refill.is(WEIGHTED) {
            refill.part = terms.ticks.in_parts().tick(at) & (PARTS - 1);
        }
        Reading { refill, at, tick }
    }

    /// Returns the terms of a window after a decision, for its waits.
    pub(super) fn after(limit: u64, counts: CountWidths, part: u64, ticks: TickScale) -> Self {
        let stamp = counts.stamp() as u8;
        let widths = Widths { fraction: 0, scale: 0, stamp, fixed_debt: true, counts };
        let (mask, capacity, gate) = ((1 << stamp) - 1, limit, Gate::Counted);
        let terms =
            Terms { widths, ticks, base: 0, mask, empty_level: 0, capacity, backward_from: mask, gate };
        WindowTerms { terms, counts, part }
    }

    /// Returns the ticks, or the parts of a weighted window, until no token counts.
    pub(crate) fn reset(&self, level: u64, lag: u64) -> (u64, TickScale) {
        let ticks = self.terms.ticks.by_ticks();
        if level == 0 {
            return (0, ticks);
        }
        if self.is(FIRST_USE) {
            return (lag, ticks);
        }
        if self.is(MONTHS) {
            return (lag + 1, TickScale::MONTHS);
        }
        if self.is(WEIGHTED) {
            let windows = if self.count(level, 0) > 0 { 2 } else { 1 };
            return self.faded_until(windows * PARTS, lag);
        }
        let CountWidths { count, before, .. } = self.counts;
        // After a grant the current count is the newest. Without a panic the compiler drops the
        // division for callers that do not ask.
        let newest = match self.count(level, 0) {
            0 => level.trailing_zeros().checked_div(count.into()).unwrap_or(0),
            _ => 0,
        };
        (u64::from(before) + 1 - u64::from(newest) + lag, ticks)
    }

    /// Returns whether this is the way of counting.
    #[inline(always)]
    fn is(&self, counting: u8) -> bool {
        counting == if COUNTING == ANY { self.counts.counting as u8 } else { COUNTING }
    }

    /// Returns the largest value of a count.
    #[inline(always)]
    fn all_ones(&self) -> u64 {
        (1 << self.counts.count) - 1
    }

    /// Returns the count of the window `age` windows before the current one.
    #[inline(always)]
    pub(super) fn count(&self, level: u64, age: u64) -> u64 {
        level >> (age * u64::from(self.counts.count)) & self.all_ones()
    }

    /// Returns the level `passed` windows later: counts that are too old are shifted out of the
    /// word.
    #[inline(always)]
    pub(super) fn shifted(&self, level: u64, passed: u64) -> u64 {
        let CountWidths { count, before, .. } = self.counts;
        if passed == 0 {
            return level;
        }
        if passed > before.into() {
            return 0;
        }
        let stamp = self.terms.widths.stamp;
        (level << stamp << (passed * u64::from(count))) >> stamp
    }

    /// Returns the sum of the counts from the newest up to each, in the fields of the word.
    #[inline(always)]
    fn sums(&self, level: u64) -> u64 {
        (level << self.terms.widths.stamp).wrapping_mul(REPEATED[usize::from(self.counts.count)])
    }

    /// Returns the number of windows that pass until the counts are at most `room`.
    ///
    /// Each window that passes leaves the next lower field of the sums. All are compared at once: a
    /// field above `room` carries out of its highest bit when the rest up to all ones is added. The
    /// compiler would keep a loop even for callers that do not use the result.
    #[inline(always)]
    fn windows_until(&self, level: u64, room: u64) -> u64 {
        let CountWidths { count, .. } = self.counts;
        let repeated = REPEATED[usize::from(count)];
        let (fields, high) = (self.sums(level) >> self.terms.widths.stamp, repeated << (count - 1));
        let rest = repeated.wrapping_mul(self.all_ones() - room);
        let below = (fields & !high).wrapping_add(rest & !high);
        let carries = fields & rest | (fields | rest) & below;
        (carries & high).count_ones().into()
    }

    /// Returns the sum of all counts.
    ///
    /// The counts fill the word down to the stamp, so the uppermost field of the product has it. A
    /// sum is below `2^count`: no partial sum carries into the next field.
    #[inline(always)]
    pub(super) fn sum(&self, level: u64) -> u64 {
        if self.is(FIRST_USE) {
            return level;
        }
        let sums = match injected(Fault::OldestForgotten) {
            true => self.sums(level) << self.counts.count,
            false => self.sums(level),
        };
        let sum = sums >> (64 - self.counts.count);
        if injected(Fault::FieldCarries) { sum & (self.all_ones() >> 1) } else { sum }
    }

    /// Returns the state with no token used. Its stamp never goes back.
    pub(crate) fn forgotten(&self, state: State, now: u64) -> State {
        Balance { level: 0, ..self.view(state, now) }.initialized(&self.terms)
    }

    /// Returns the reading of the clock in nanoseconds from which on the word may be evicted: the
    /// eviction grace after the tokens of its stamp are forgotten.
    ///
    /// The counts do not matter. So the next key of a table slot never has a word that this key
    /// had: its stamp is later.
    pub(crate) fn idle_from(&self, state: State, reading: &Reading) -> u64 {
        let Terms { ticks, mask, backward_from, .. } = self.terms;
        let live = if self.is(FIRST_USE) { LENGTH } else { u64::from(self.counts.before) + 1 };
        let passed = state.passed(&self.terms, reading.tick);
        let stamped = match passed {
            _ if passed < backward_from => reading.tick.saturating_sub(passed),
            _ if passed >= self.terms.skew_from() => reading.tick.saturating_add(mask - passed + 1),
            _ => reading.tick,
        };
        let grace = if injected(Fault::EdgeWithoutMargin) { 0 } else { EVICTION_GRACE };
        // The word is forgotten at the first reading of this tick.
        let forgotten = stamped.saturating_add(live);
        let early = reading.nanos().saturating_sub(grace);
        let (tick, ticks) = match self.is(MONTHS) {
            true => (calendar::month_at(early), TickScale::MONTHS),
            false => (ticks.tick(early), ticks.by_ticks()),
        };
        let wait = match forgotten.checked_sub(tick) {
            None | Some(0) => 0,
            Some(left) => ticks.nanos_until(early, left),
        };
        early.saturating_add(grace).saturating_add(wait)
    }

    /// Returns the tokens used of a weighted window, in 2^-16 tokens.
    ///
    /// A reading that is behind the stamp is as early as can be in the stamp's window.
    fn faded(&self, level: u64, lag: u64) -> u64 {
        let part = if lag > 0 { 0 } else { self.part };
        self.count(level, 0) * PARTS + self.count(level, 1) * (PARTS - part)
    }

    /// Returns the view at a reading that is behind the stamp, or of a clock that was set back.
    #[cold]
    fn view_behind(self, state: State, now: u64, passed: u64) -> Balance {
        let terms = &self.terms;
        let used = state.is_level();
        if passed >= terms.skew_from() && used && !injected(Fault::WindowReopened) {
            return self.view_at_stamp(state, terms.mask - passed + 1);
        }
        let level = if used { state.stored(terms) } else { 0 };
        Balance { level, stamp: now & terms.mask, lag: self.length(), adopt: used }
    }

    /// Returns the ticks from the stamp to the end of its window, if that is from the first use.
    fn length(&self) -> u64 {
        if self.is(FIRST_USE) { LENGTH } else { 0 }
    }

    /// Returns the wait until a part of the stamp's window, which is `lag` windows ahead.
    fn faded_until(&self, parts: u64, lag: u64) -> (u64, TickScale) {
        ((parts + lag * PARTS).saturating_sub(self.part), self.terms.ticks.by_ticks().in_parts())
    }

    /// Returns the parts from the start of the stamp's window until a weighted window has `goal`
    /// tokens.
    fn parts_until(&self, goal: u64, level: u64) -> u64 {
        let (current, before) = (self.count(level, 0), self.count(level, 1));
        // The part at which a count that fades leaves `room` tokens.
        let part = |count: u64, room: u64| PARTS - (room * PARTS).checked_div(count).unwrap_or(PARTS);
        match self.terms.capacity.checked_sub(goal + current) {
            Some(room) => part(before, room),
            // In the next window the current count fades.
            None => PARTS + part(current, self.terms.capacity.saturating_sub(goal)),
        }
    }
}

impl<const COUNTING: u8> Refill for WindowTerms<COUNTING> {
    const COUNTS: bool = true;

    #[inline]
    fn terms(&self) -> &Terms {
        &self.terms
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.terms.capacity
    }

    #[inline(always)]
    fn view(&self, state: State, now: u64) -> Balance {
        let passed = state.passed(&self.terms, now);
        if passed < self.terms.backward_from {
            self.view_ahead(state, now)
        } else {
            self.view_behind(state, now, passed)
        }
    }

    #[inline(always)]
    fn view_ahead(&self, state: State, now: u64) -> Balance {
        let terms = &self.terms;
        let level = if state.is_level() { state.stored(terms) } else { 0 };
        let passed = state.passed(terms, now);
        let stamp = now & terms.mask;
        if !self.is(FIRST_USE) {
            let stamp = if injected(Fault::ShiftedTwice) { state.word() & terms.mask } else { stamp };
            return Balance { level: self.shifted(level, passed), stamp, lag: 0, adopt: false };
        }
        match LENGTH.checked_sub(passed) {
            Some(lag) if lag > 0 && level > 0 => {
                let start = if injected(Fault::StartMoves) { stamp } else { state.word() & terms.mask };
                Balance { level, stamp: start, lag, adopt: false }
            }
            _ => Balance { level: 0, stamp, lag: LENGTH, adopt: false },
        }
    }

    fn view_at_stamp(&self, state: State, lag: u64) -> Balance {
        let stamp = state.word() & self.terms.mask;
        Balance { level: state.stored(&self.terms), stamp, lag: lag + self.length(), adopt: false }
    }

    #[inline(always)]
    fn has(&self, balance: &Balance, units: u64) -> bool {
        if self.is(WEIGHTED) {
            return self.faded(balance.level, balance.lag) + units * PARTS <= self.terms.capacity * PARTS;
        }
        self.sum(balance.level) + units <= self.terms.capacity
    }

    #[inline(always)]
    fn left_after(&self, balance: &Balance, units: u64) -> Option<u64> {
        self.available(balance.level, balance.lag).checked_sub(units)
    }

    #[inline(always)]
    fn after_take(&self, level: u64, units: u64) -> u64 {
        level + units
    }

    /// The newest tokens come back first: the tokens that stay were granted no later.
    fn after_refund(&self, level: u64, units: u64) -> u64 {
        let (mut level, mut left) = (level, units);
        for age in 0..=u64::from(self.counts.before) {
            let back = self.count(level, age).min(left);
            level -= back << (age * u64::from(self.counts.count));
            left -= back;
        }
        level
    }

    fn before_take(&self, level: u64, units: u64) -> u64 {
        level - units
    }

    /// The stamp of the take tells its count, so this is exact. A take of an earlier window has no
    /// count any more. A window from the first use keeps its start, and ends when no token is left.
    fn undone(&self, balance: Balance, now: u64, units: u64, _: u64, since: u64) -> Balance {
        let (CountWidths { count, before: windows, .. }, level) = (self.counts, balance.level);
        // Whole ticks, not modulo the range. From the first use both are the end of a window.
        let age = now.wrapping_add(balance.lag).wrapping_sub(since);
        let age = if injected(Fault::UndoneAnywhere) { 0 } else { age };
        if age > windows.into() {
            return balance;
        }
        Balance { level: level - (self.count(level, age).min(units) << (age * u64::from(count))), ..balance }
    }

    /// A window from the first use that the take began belongs to the takes after it, whose first
    /// is not known. It begins anew at the latest time that this can be, which is `now`.
    fn untaken(&self, balance: Balance, now: u64, units: u64, before: u64, since: u64) -> Balance {
        let after = self.undone(balance, now, units, before, since);
        let is_present = now.wrapping_add(balance.lag) == since || injected(Fault::UndoneAnywhere);
        let began = self.is(FIRST_USE) && before == 0 && balance.lag < LENGTH && is_present;
        match began && !injected(Fault::StartStays) {
            true => Balance { stamp: now & self.terms.mask, ..after },
            false => after,
        }
    }

    fn credit(&self, balance: &Balance) -> u64 {
        let counted = if self.is(WEIGHTED) { self.count(balance.level, 0) } else { self.sum(balance.level) };
        self.counts.most().saturating_sub(counted)
    }

    #[inline]
    fn available(&self, level: u64, lag: u64) -> u64 {
        if self.is(WEIGHTED) {
            return (self.terms.capacity * PARTS).saturating_sub(self.faded(level, lag)) / PARTS;
        }
        self.terms.capacity.saturating_sub(self.sum(level))
    }

    /// Returns the ticks, or the parts of a weighted window, until `goal` tokens can be taken.
    #[inline]
    fn wait(&self, _: u64, goal: u64, level: u64, lag: u64) -> (u64, TickScale) {
        if goal == 0 {
            return (0, self.terms.ticks.by_ticks());
        }
        if self.is(WEIGHTED) {
            return self.faded_until(self.parts_until(goal, level), lag);
        }
        if !self.is(SUB_WINDOWS) {
            return self.reset(level, lag);
        }
        let passed = self.windows_until(level, self.terms.capacity.saturating_sub(goal));
        (passed + lag, self.terms.ticks.by_ticks())
    }

    #[inline(always)]
    fn refilled(&self, at: u64, _: u64, level: u64, lag: u64) -> Refilled {
        let WindowTerms { terms, counts, part } = *self;
        Refilled::Window {
            counts,
            // At most 4 s in ticks of 1/63 ms, and 2^16 of a window from the first use.
            lag: lag as u32,
            level,
            // A limit is at most 2^40, and a part is below 2^16.
            limit_and_part: terms.capacity | part << Refilled::PART,
            from: at,
            clock: terms.ticks,
        }
    }
}

//! The word of a bucket, and its refill: the level at a tick. Pure: no atomics, no clock. The steps
//! are in `steps`.
//!
//! | bits             | field       | meaning                                                   |
//! |------------------|-------------|-----------------------------------------------------------|
//! | `S..64`          | tokens      | level at the stamp, in units above the deepest debt       |
//! | `0..S`           | stamp       | tick at which the level was committed, modulo `2^S`       |
//! | all ones         | `FULL`      | never charged                                             |
//! | all ones less 1  | `SEALED`    | evicted, never charged again: its key may have another    |
//! | all ones less 2  | `INSERTING` | a table slot that a thread is giving to a key             |
//! | `S..64` all ones | tombstone   | a table slot without a key since the stamp                |
//!
//! A unit is `2^-fraction` tokens. The tokens field of the reserved words is all ones, which is
//! above every level.
//!
//! Let `d = (now - stamp) mod 2^S`. There are three windows:
//!
//! * `d < backward_from`: `d` ticks have passed.
//! * `backward_from <= d < skew_from`: the clock was set back, or the stamp wrapped after a very
//!   long idle time. No time has passed, and the stamp moves to `now`: the bucket recovers at once
//!   and earns nothing.
//! * `skew_from <= d`: the reading is behind the stamp, because the counters of cores differ. No
//!   time has passed, and the stamp stays.

use crate::fault::{Fault, injected};
use crate::time::tsc::raw_to_nanos;
use crate::word::refilled::Refilled;
use crate::word::terms::Terms;
use crate::word::tick::TickScale;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(u64);

/// A bucket as seen at some tick, with the refill until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Balance {
    /// Units above the deepest debt, at most the capacity.
    pub(crate) level: u64,
    /// The stamp to commit with the level.
    pub(super) stamp: u64,
    /// Ticks by which the reading is behind `stamp`; 0 unless the clocks of cores differ.
    pub(crate) lag: u64,
    /// True if the clock was set back or the stamp wrapped: even a refusal commits `stamp`.
    pub(super) adopt: bool,
}

/// The mark of a bucket after a take, and perhaps its stamp: a later step compares the bucket.
///
/// An equal mark means that no tokens were taken or given back since, or that all taken since came
/// back. An equal stamp means that no later tick was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// The [mark](State::empty_at) of the bucket.
    pub(crate) empty_at: u64,
    /// The stamp that the word must still have; `None` in a limiter without plans, where the mark
    /// is sufficient.
    pub(crate) stamp: Option<u64>,
}

/// The result of a take that was done, or only looked at.
///
/// After a look, the fields describe the take as if it were done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakeOutcome {
    pub(crate) granted: bool,
    /// Units that the take removes; 0 in a refusal.
    pub(crate) taken: u64,
    /// Level after the take, in units above the deepest debt. An empty bucket is at `empty_level`.
    pub(crate) level: u64,
    /// Ticks by which the reading is behind the stamp, or 0.
    pub(crate) lag: u64,
    /// The kind of bucket that the step was taken on, and its identity.
    pub(crate) origin: Origin,
}

/// The origin of an outcome: the bucket that it was taken on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A `TokenBucket`, or the key's own bucket.
    Own,
    /// The key's own bucket, by the number of its entry in the store.
    Entry(u64),
    /// The key's own bucket in the table, by the key's hash.
    Inline(u64),
    /// An overflow bucket, shared by keys without an entry, by the key's hash.
    Overflow(u64),
    /// The bucket of all requests without a key.
    NoKey,
    /// No bucket: nothing was counted.
    Nowhere,
}

impl Balance {
    /// Returns the outcome of a take of 0 tokens, which is always granted.
    #[inline]
    pub(crate) fn untouched(self) -> TakeOutcome {
        TakeOutcome { granted: true, taken: 0, level: self.level, lag: self.lag, origin: Origin::Own }
    }

    /// Packs this balance as the first committed state of a bucket.
    pub(crate) fn initialized(self, terms: &Terms) -> State {
        State::pack(terms, self.level, self.stamp)
    }
}

impl State {
    pub(crate) const FULL: State = State(u64::MAX);
    pub(crate) const SEALED: State = State(u64::MAX - 1);
    pub(crate) const INSERTING: State = State(u64::MAX - 2);

    pub(crate) const fn from_word(word: u64) -> State {
        State(word)
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    pub(crate) const fn pack(terms: &Terms, level: u64, stamp: u64) -> State {
        State(level << terms.widths.stamp | stamp & terms.mask)
    }

    /// Returns a tombstone stamped with tick `now`. The top three stamps are avoided, because they
    /// would make a reserved word.
    pub(crate) const fn tombstone(terms: &Terms, now: u64) -> State {
        let stamp = now & terms.mask;
        State(!terms.mask | if stamp < terms.mask - 2 { stamp } else { terms.mask - 3 })
    }

    /// Returns whether this is a level and a stamp: neither `FULL` nor `SEALED` nor `INSERTING`.
    #[inline]
    pub(crate) const fn is_level(self) -> bool {
        self.0 < State::INSERTING.0
    }

    /// Returns whether a thread owns the slot exclusively (`SEALED` or `INSERTING`).
    pub(crate) const fn is_claimed(self) -> bool {
        self.0 == State::SEALED.0 || self.0 == State::INSERTING.0
    }

    /// Returns the ticks from the stamp to a reading, modulo the range.
    #[inline]
    pub(super) const fn passed(self, terms: &Terms, now: u64) -> u64 {
        now.wrapping_sub(self.0) & terms.mask
    }

    /// Returns the level in the word, without refill since; for a reserved word, more than any
    /// level.
    #[inline]
    pub(crate) const fn stored(self, terms: &Terms) -> u64 {
        self.0 >> terms.widths.stamp
    }
}

/// The refill of a bucket: that of its [`Terms`], or of a plan on top of them.
pub(crate) trait Refill: Copy {
    /// Whether words count windows.
    const COUNTS: bool = false;
    /// Whether ticks are counted from the beginning, and not from the present turn of the stamp.
    const PLANNED: bool = false;
    fn terms(&self) -> &Terms;
    /// Returns the level of a full bucket, in units.
    fn capacity(&self) -> u64;
    /// Returns the capacity when nothing is leased: the largest amount a single take can ask for.
    #[inline]
    fn nominal_capacity(&self) -> u64 {
        self.capacity()
    }
    /// Returns whether a take of `n` tokens asks for more than the burst.
    #[inline]
    fn is_over_the_burst(&self, n: u64) -> bool {
        self.terms().units(n) > self.nominal_capacity() - self.terms().empty_level
    }
    /// Returns the lowest level that a debt may lead to, in units; 0 is the deepest debt.
    fn min_level(&self) -> u64 {
        Terms { capacity: self.nominal_capacity(), ..*self.terms() }.min_level()
    }
    /// Returns the units earned in the `passed` ticks until the tick `now`.
    #[inline]
    fn earned(&self, _now: u64, passed: u64) -> u64 {
        // No overflow: `stamp + scale <= 62`.
        passed << self.terms().widths.scale
    }
    /// Returns the bucket at the tick `now`. A reserved word reads as full.
    #[inline(always)]
    fn view(&self, state: State, now: u64) -> Balance {
        let terms = self.terms();
        let passed = state.passed(terms, now);
        if passed < terms.backward_from || injected(Fault::Unclamped) {
            self.view_ahead(state, now)
        } else {
            at_an_earlier_time(*self, state, now, passed)
        }
    }
    /// Returns the bucket at a reading that [`accepts_fresh`](State::accepts_fresh): the whole
    /// difference to the stamp has passed.
    #[inline(always)]
    fn view_ahead(&self, state: State, now: u64) -> Balance {
        let terms = self.terms();
        // No overflow: the units earned are below 2^63, and the tokens field has at most 58 bits.
        // The field of a reserved word is above the capacity, so the word reads as full.
        let level = state.stored(terms) + self.earned(now, state.passed(terms, now));
        Balance { level: level.min(self.capacity()), stamp: now & terms.mask, lag: 0, adopt: false }
    }
    /// Returns the bucket at its stamp, `lag` ticks after the reading.
    #[inline]
    fn view_at_stamp(&self, state: State, lag: u64) -> Balance {
        let terms = self.terms();
        let level = state.stored(terms).min(self.capacity());
        Balance { level, stamp: state.word() & terms.mask, lag, adopt: false }
    }
    /// Returns whether `units` can be taken now.
    #[inline(always)]
    fn has(&self, balance: &Balance, units: u64) -> bool {
        balance.level >= units + self.terms().empty_level
    }
    /// Returns the whole tokens that are left if `units` are taken now; `None` if they are not
    /// there.
    #[inline(always)]
    fn left_after(&self, balance: &Balance, units: u64) -> Option<u64> {
        let terms = self.terms();
        balance.level.checked_sub(units + terms.empty_level).map(|left| terms.tokens(left))
    }
    /// Returns a level after `units` were taken.
    #[inline(always)]
    fn after_take(&self, level: u64, units: u64) -> u64 {
        level - units
    }
    /// Returns a level after `units` came back, as far as they fit.
    #[inline]
    fn after_refund(&self, level: u64, units: u64) -> u64 {
        // The sum is below 2^59.
        (level + units).min(self.capacity())
    }
    /// Returns the level from which a take of `units` led to `level`.
    fn before_take(&self, level: u64, units: u64) -> u64 {
        level + units
    }
    /// Returns a balance at the tick `now` as if a take of `units` at tick `since`, at the level
    /// `before`, had not happened.
    fn undone(&self, balance: Balance, now: u64, units: u64, before: u64, since: u64) -> Balance {
        let terms = self.terms();
        // A reading behind the stamp counts as the stamp's own tick.
        let then = now.wrapping_add(balance.lag);
        // Whole ticks, not modulo the range: a bucket fills in a 64th of it. They are known modulo
        // 2^63, as the base of a change is. A reading of a clock that was set back is at most a
        // range before the take.
        let passed = then.wrapping_sub(since) << 1 >> 1;
        let behind = passed >= (u64::MAX >> 1) - terms.mask;
        let earned = if behind { 0 } else { self.earned(then, passed.min(terms.backward_from)) };
        // Below 2^58 and 2^63.
        let spilt = (before + earned).saturating_sub(self.capacity());
        let spilt = if injected(Fault::AllUndone) { 0 } else { spilt };
        Balance { level: self.after_refund(balance.level, units.saturating_sub(spilt)), ..balance }
    }
    /// Returns a balance as [`undone`](Refill::undone) does, of a take that was no use: its caller
    /// was refused.
    fn untaken(&self, balance: Balance, now: u64, units: u64, before: u64, since: u64) -> Balance {
        self.undone(balance, now, units, before, since)
    }
    /// Returns the units that can be taken on credit.
    fn credit(&self, balance: &Balance) -> u64 {
        balance.level.saturating_sub(self.min_level())
    }
    /// Returns the whole tokens at a level whose stamp is `lag` ticks ahead.
    #[inline(always)]
    fn available(&self, level: u64, _lag: u64) -> u64 {
        self.terms().available(level)
    }
    /// Returns the bucket at a level, from the reading `at` and its tick `now` on.
    #[inline(always)]
    fn refilled(&self, at: u64, _now: u64, level: u64, lag: u64) -> Refilled {
        let terms = self.terms();
        // Below 2^58 and 2^62.
        let level = level.wrapping_sub(terms.empty_level).wrapping_sub(lag << terms.widths.scale);
        Refilled::Own {
            level: level.cast_signed(),
            full: self.capacity() - terms.empty_level,
            from: at,
            clock: terms.ticks,
        }
    }
    /// Returns the units to earn from the tick `now` until a level is `goal`, and the scale that
    /// converts them to time. The stamp is `lag` ticks ahead of `now`.
    #[inline(always)]
    fn wait(&self, _now: u64, goal: u64, level: u64, lag: u64) -> (u64, TickScale) {
        let terms = self.terms();
        // Below 2^58 and 2^62. The conversion to ticks is left to the caller that asks for the
        // time.
        let units = if goal <= level { 0 } else { goal - level + (lag << terms.widths.scale) };
        (units, terms.ticks)
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
}

/// A clock reading, and the refill of buckets at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading<P = Terms> {
    pub(crate) refill: P,
    /// Clock reading in nanoseconds, or raw where the scale [is made for raw
    /// readings](TickScale::counted).
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

// By value: a reference would force the terms into memory on the hot path.
#[cold]
fn at_an_earlier_time(refill: impl Refill, state: State, now: u64, passed: u64) -> Balance {
    let terms = refill.terms();
    let level = state.stored(terms).min(refill.capacity());
    let now = now & terms.mask;
    if passed >= terms.skew_from() && state.is_level() {
        let view = refill.view_at_stamp(state, terms.mask - passed + 1);
        if injected(Fault::StampMovesBack) { Balance { stamp: now, ..view } } else { view }
    } else {
        Balance { level, stamp: now, lag: 0, adopt: state.is_level() }
    }
}

impl<P: Refill> Reading<P> {
    /// Returns the bucket at this reading.
    #[inline]
    pub(crate) fn view(&self, state: State) -> Balance {
        self.refill.view(state, self.tick)
    }
}

//! The word of a bucket, and the steps it takes. Pure: no atomics, no clock.
//!
//! | bits             | field  | meaning                                                          |
//! |------------------|--------|------------------------------------------------------------------|
//! | `S..64`          | tokens | the level at the stamp, in units of `2^-fraction` tokens, above the deepest debt |
//! | `0..S`           | stamp  | the tick at which the level was committed, modulo `2^S`           |
//! | all ones         | `FULL`   | never charged                                                   |
//! | all ones less 1  | `SEALED` | evicted: never charged again; its key has, or may have, another |
//! | all ones less 2  | `INSERTING` | of a slot of a table: its key is just getting it             |
//! | `S..64` all ones | vacant | nobody's since the stamp                                         |
//!
//! The tokens field of the reserved words is all ones, which is above every level.
//!
//! Let `d = (now - stamp) mod 2^S`. From `jitter` on, `d` is a reading that is behind the stamp (cores
//! whose counters differ): no time has passed, and the stamp stays. From `backward_from` on, it is a clock
//! that was set back, or a wrap after a very long idle time: no time has passed, and the stamp moves to
//! now, so that the bucket heals at once and earns nothing by it. Below, it is the time that passed.

use crate::fault::{Fault, injected};
use crate::word::terms::{Reading, Refill, Terms, ticks_until};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(u64);

/// A bucket as seen at some tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Balance {
    /// Units in hand, above the deepest debt.
    pub(crate) level: u64,
    /// The stamp to commit with the level.
    stamp: u64,
    /// Ticks by which the reading is behind the stamp.
    pub(crate) lag: u64,
    /// The clock was set back: even a refusal commits the new stamp.
    adopt: bool,
}

/// How a take left its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// The [mark](State::empty_at) of the bucket.
    pub(crate) empty_at: u64,
    /// The tick of the stamp that only the very word still has; `None` where the mark tells enough.
    pub(crate) stamp: Option<u64>,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) granted: bool,
    /// Units that were taken.
    pub(crate) taken: u64,
    /// Units in hand after the step, above the deepest debt.
    pub(crate) level: u64,
    /// Ticks by which the reading is behind the stamp.
    pub(crate) lag: u64,
    /// Where it came to that.
    pub(crate) origin: Origin,
}

/// Whose bucket it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The only one, or the key's own.
    Own,
    /// The key's own, by the number that its store knows the entry by.
    Entry(u64),
    /// The key's own, known by its hash.
    Inline(u64),
    /// One that keys without room share, by hash.
    Overflow(u32),
    /// Nobody's: nothing was counted.
    Nowhere,
}

impl Balance {
    /// Nothing was asked of it.
    #[inline]
    pub(crate) fn untouched(self) -> Outcome {
        Outcome { granted: true, taken: 0, level: self.level, lag: self.lag, origin: Origin::Own }
    }

    /// The state of a bucket that is first seen so.
    pub(crate) fn initialized(self, terms: &Terms) -> State {
        State::pack(terms, self.level, self.stamp)
    }

    #[inline(always)]
    fn take(self, terms: &Terms, need: u64) -> (Outcome, Option<State>) {
        if self.level >= need + terms.empty_level { self.took(terms, need) } else { self.refused(terms) }
    }

    #[inline]
    fn took(self, terms: &Terms, units: u64) -> (Outcome, Option<State>) {
        let level = self.level - units;
        let outcome = Outcome { granted: true, taken: units, level, lag: self.lag, origin: Origin::Own };
        (outcome, Some(State::pack(terms, level, self.stamp)))
    }

    #[inline]
    fn refused(self, terms: &Terms) -> (Outcome, Option<State>) {
        let outcome = Outcome { granted: false, ..self.untouched() };
        (outcome, self.adopt.then(|| State::pack(terms, self.level, self.stamp)))
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

    /// Nobody's, since a tick (or one of the three before it, which would make it another reserved word).
    pub(crate) const fn tombstone(terms: &Terms, now: u64) -> State {
        let stamp = now & terms.mask;
        State(!terms.mask | if stamp < terms.mask - 2 { stamp } else { terms.mask - 3 })
    }

    /// Neither `FULL` nor `SEALED` nor `INSERTING`: a level and a stamp.
    #[inline]
    pub(crate) const fn is_level(self) -> bool {
        self.0 < State::INSERTING.0
    }

    /// Of a slot that is somebody's who will give it another state.
    pub(crate) const fn is_claimed(self) -> bool {
        self.0 == State::SEALED.0 || self.0 == State::INSERTING.0
    }

    /// Ticks from the stamp to a reading, modulo the range.
    #[inline]
    const fn passed(self, terms: &Terms, now: u64) -> u64 {
        now.wrapping_sub(self.0) & terms.mask
    }

    /// The bucket at tick `now`. A reserved word reads as full.
    #[inline(always)]
    pub(crate) fn at(self, refill: &impl Refill, now: u64) -> Balance {
        let terms = refill.terms();
        let passed = self.passed(terms, now);
        if passed < terms.backward_from || injected(Fault::Unclamped) {
            self.ahead(refill, now)
        } else {
            self.at_an_earlier_time(*refill, now, passed)
        }
    }

    /// As [`at`](State::at), at a reading that [it admits](State::accepts_fresh): all of the difference has passed.
    #[inline(always)]
    fn ahead(self, refill: &impl Refill, now: u64) -> Balance {
        let terms = refill.terms();
        // No overflow: what is earned is below 2^63, and the tokens field has 58 bits at the most. A reserved word's field is
        // above the capacity: it reads as full.
        let level = (self.0 >> terms.widths.stamp) + refill.earned(now, self.passed(terms, now));
        Balance { level: level.min(refill.capacity()), stamp: now & terms.mask, lag: 0, adopt: false }
    }

    // By value: a reference to them would keep the terms in memory in the paths that are hot.
    #[cold]
    fn at_an_earlier_time(self, refill: impl Refill, now: u64, passed: u64) -> Balance {
        let terms = refill.terms();
        let level = (self.0 >> terms.widths.stamp).min(refill.capacity());
        let now = now & terms.mask;
        if passed >= terms.jitter_from() && self.is_level() {
            let stamp = if injected(Fault::StampMovesBack) { now } else { self.0 & terms.mask };
            Balance { level, stamp, lag: terms.mask - passed + 1, adopt: false }
        } else {
            Balance { level, stamp: now, lag: 0, adopt: self.is_level() }
        }
    }

    /// Whether a reading is surely not behind the stamp, of a bucket that was charged: it is within `half` the range ahead.
    #[inline(always)]
    pub(crate) fn accepts_fresh(self, reading: &Reading, half: u64) -> bool {
        (self.is_level() && self.passed(&reading.refill, reading.tick) <= half) || injected(Fault::Unadmitted)
    }

    /// Whether a reading that the state admits may take though it is from before the word was loaded: it is ahead of the
    /// stamp by no more than a clock may be ahead of another.
    ///
    /// If the clock was set back since, further ahead would be time that did not pass. Within that it is earned once, as that
    /// of a core whose counter is ahead. (A refusal takes nothing: with less time passed it is one all the more.)
    #[inline(always)]
    pub(crate) fn within_skew(self, reading: &Reading, near: u64) -> bool {
        self.passed(&reading.refill, reading.tick) <= near || injected(Fault::Unadmitted)
    }

    /// Whether a reading from before the word was loaded may decide: it is jitter, or surely later than the stamp.
    pub(crate) fn accepts_stale(self, terms: &Terms, now: u64) -> bool {
        let passed = self.passed(terms, now);
        self.is_level() && (passed <= terms.mask / 2 || passed >= terms.jitter_from())
    }

    /// Takes `need` units, above 0, if they are there.
    #[inline(always)]
    pub(crate) fn take(self, refill: &impl Refill, now: u64, need: u64) -> (Outcome, Option<State>) {
        self.at(refill, now).take(refill.terms(), need)
    }

    /// As [`Take`](crate::word::verb::Take), at a reading that [it admits](State::accepts_fresh).
    #[inline(always)]
    pub(crate) fn take_ahead(self, reading: &Reading, n: u64) -> (Outcome, Option<State>) {
        let (terms, view) = (&reading.refill, self.ahead(&reading.refill, reading.tick));
        match n {
            0 => (view.untouched(), None),
            n => view.take(terms, terms.units(n)),
        }
    }

    /// Takes `need` units and, of what is left above that, as many tokens on top as `size` says. Tells how many those are.
    pub(crate) fn lease(
        self,
        refill: &impl Refill,
        now: u64,
        need: u64,
        size: impl Fn(u64) -> u64,
    ) -> ((Outcome, u64), Option<State>) {
        let (terms, view) = (refill.terms(), self.at(refill, now));
        let Some(spare) = view.level.checked_sub(need + terms.empty_level) else {
            let (outcome, next) = view.refused(terms);
            return ((outcome, 0), next);
        };
        let size = size(spare);
        let (outcome, next) = view.took(terms, need + terms.units(size));
        ((outcome, size), next)
    }

    /// Ends a lease of `size` units, of which `left` come back. Stamped anew even if none do: what is earned from now on
    /// has room for all of them. Nothing to commit if it is no longer anybody's.
    pub(crate) fn recalled(self, refill: &impl Refill, now: u64, left: u64, size: u64) -> Option<State> {
        let view = self.at(refill, now);
        // The sums are below 2^59. The lease is not in the room there is.
        let level = (view.level + left).min(refill.capacity() + size).min(refill.nominal_capacity());
        let stamped = self != State::SEALED && (left > 0 || !injected(Fault::NotStampedAnew));
        stamped.then(|| State::pack(refill.terms(), level, view.stamp))
    }

    /// The level in the word, whatever was earned since; of a reserved word, more than any.
    #[inline]
    pub(crate) fn stored(self, terms: &Terms) -> u64 {
        self.0 >> terms.widths.stamp
    }

    /// Takes up to `most` units in whole tokens: those that are there.
    pub(crate) fn take_up_to(self, refill: &impl Refill, now: u64, most: u64) -> (Outcome, Option<State>) {
        let (terms, view) = (refill.terms(), self.at(refill, now));
        match terms.units(terms.available(view.level)).min(most) {
            0 => view.refused(terms),
            units => view.took(terms, units),
        }
    }

    /// Takes up to `most` units in whole tokens, on credit if need be.
    pub(crate) fn charge_up_to(self, refill: &impl Refill, now: u64, most: u64) -> (Outcome, Option<State>) {
        let (terms, view) = (refill.terms(), self.at(refill, now));
        let left = terms.units(terms.tokens(view.level.saturating_sub(refill.min_level())));
        match left.min(most) {
            0 => view.refused(terms),
            units => view.took(terms, units),
        }
    }

    /// Takes `need` units that are there or will be, if the debt stays bounded and `patient` allows the ticks until
    /// they are all earned.
    pub(crate) fn reserve(
        self,
        refill: &impl Refill,
        now: u64,
        need: u64,
        patient: impl Fn(u64) -> bool,
    ) -> (Outcome, Option<State>) {
        let (terms, view) = (refill.terms(), self.at(refill, now));
        let possible = view.level >= need + refill.min_level()
            && (view.level >= need + terms.empty_level
                || patient(ticks_until(refill, now, need + terms.empty_level, view.level, view.lag)));
        if possible { view.took(terms, need) } else { view.refused(terms) }
    }

    /// Gives back `units`, as far as they fit. Nothing to commit if none do: a reserved word is full, or is no
    /// longer anybody's.
    pub(crate) fn give(self, refill: &impl Refill, now: u64, units: u64) -> Option<State> {
        let view = self.at(refill, now);
        // The sum is below 2^59.
        let level = (view.level + units).min(refill.capacity());
        let fits = self.is_level() && (view.adopt || level > view.level);
        (fits || injected(Fault::SealedIsGiven)).then(|| State::pack(refill.terms(), level, view.stamp))
    }

    /// Gives back `units` to a bucket that still stands as they left it.
    pub(crate) fn give_back(self, refill: &impl Refill, now: u64, units: u64, left: Left) -> Option<State> {
        if self.stands(refill.terms(), now, left) { self.give(refill, now, units) } else { None }
    }

    /// Whether no tokens were taken since a bucket was left so, beyond those that came back.
    pub(crate) fn stands(self, terms: &Terms, now: u64, Left { empty_at, stamp }: Left) -> bool {
        let same_stamp = |stamp: u64| (self.0 ^ stamp) & terms.mask == 0;
        let same = self.empty_at(terms, now) == empty_at && stamp.is_none_or(same_stamp);
        self.is_level() && (same || injected(Fault::Unmarked))
    }

    /// Undoes a take of `need` units, which found `before` of them at the tick `since`: gives back what of it the
    /// bucket would still have, had they not been taken.
    pub(crate) fn undo(
        self,
        refill: &impl Refill,
        now: u64,
        need: u64,
        before: u64,
        since: u64,
    ) -> Option<State> {
        let terms = refill.terms();
        // The bucket is as it was at its stamp, if the reading is behind that.
        let then = now.wrapping_add(self.at(refill, now).lag);
        let passed = then.wrapping_sub(since) & terms.mask;
        let earned = if passed < terms.backward_from { refill.earned(then, passed) } else { 0 };
        // Below 2^58 and 2^63.
        let spilt = (before + earned).saturating_sub(refill.capacity());
        let spilt = if injected(Fault::AllUndone) { 0 } else { spilt };
        self.give(refill, now, need.saturating_sub(spilt))
    }

    /// A number that takes and refunds move, and time does not: what the bucket has earned by the tick
    /// at which it is next empty of debt.
    ///
    /// It holds at the pace of the terms. A take under a plan may leave it where it was: a plan earns
    /// more, or less, in the same ticks.
    pub(crate) fn empty_at(self, terms: &Terms, now: u64) -> u64 {
        let passed = self.passed(terms, now);
        let stamp = if passed >= terms.jitter_from() {
            now.wrapping_add(terms.mask - passed + 1)
        } else {
            now.wrapping_sub(passed)
        };
        terms.empty_at(stamp, self.0 >> terms.widths.stamp)
    }

    /// Ticks until the bucket has been full for the margin and may be evicted; 0 if it may be now, as one that
    /// was never charged may be at any time. It is full, whatever plan it is under, `longest` ticks after its stamp
    /// (0 if there are no plans).
    pub(crate) fn evictable_in(self, terms: &Terms, now: u64, longest: u64) -> u64 {
        if !self.is_level() {
            return 0;
        }
        let passed = self.passed(terms, now);
        // Whatever plan there is, it is not of a vacant one.
        let longest = if self.0 >= !terms.mask { 0 } else { longest };
        let level = (self.0 >> terms.widths.stamp).min(terms.capacity);
        // Ticks to fill are below 2^58, the margin below 2^62 + 1, a lag below 2^57.
        let margin = if injected(Fault::NoMargin) { 0 } else { terms.grace() };
        let due = terms.ticks_for(now, terms.capacity - level).max(longest) + margin;
        if passed < terms.backward_from { due.saturating_sub(passed) } else { due + self.at(terms, now).lag }
    }
}

impl<P: Refill> Reading<P> {
    /// The bucket at this reading.
    #[inline]
    pub(crate) fn view(&self, state: State) -> Balance {
        state.at(&self.refill, self.tick)
    }
}

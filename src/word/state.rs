//! The word of a bucket, and its steps. Pure: no atomics, no clock.
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
//! * `backward_from <= d < jitter_from`: the clock was set back, or the stamp wrapped after a very
//!   long idle time. No time has passed, and the stamp moves to `now`: the bucket recovers at once
//!   and earns nothing.
//! * `jitter_from <= d`: the reading is behind the stamp, because the counters of cores differ. No
//!   time has passed, and the stamp stays.

use crate::fault::{Fault, injected};
use crate::word::terms::{Reading, Refill, Terms, ticks_until};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(u64);

/// A bucket as seen at some tick, with the refill until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Balance {
    /// Units above the deepest debt, at most the capacity.
    pub(crate) level: u64,
    /// The stamp to commit with the level.
    stamp: u64,
    /// Ticks by which the reading is behind `stamp`; 0 unless the clocks of cores differ.
    pub(crate) lag: u64,
    /// True if the clock was set back or the stamp wrapped: even a refusal commits `stamp`.
    adopt: bool,
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
/// In a look the fields say what the take would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A `TokenBucket`, or the key's own bucket.
    Own,
    /// The key's own bucket, by the number of its entry in the store.
    Entry(u64),
    /// The key's own bucket in the table, by the key's hash.
    Inline(u64),
    /// An overflow bucket, shared by keys without an entry, by hash.
    Overflow(u32),
    /// No bucket: nothing was counted.
    Nowhere,
}

impl Balance {
    /// Returns the outcome of a take of 0 tokens, which is always granted.
    #[inline]
    pub(crate) fn untouched(self) -> Outcome {
        Outcome { granted: true, taken: 0, level: self.level, lag: self.lag, origin: Origin::Own }
    }

    /// Packs this balance as the first committed state of a bucket.
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
    const fn passed(self, terms: &Terms, now: u64) -> u64 {
        now.wrapping_sub(self.0) & terms.mask
    }

    /// Returns the bucket at tick `now`. A reserved word reads as full.
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

    /// Returns the bucket at a reading that [`accepts_fresh`](State::accepts_fresh): the whole
    /// difference to the stamp has passed.
    #[inline(always)]
    fn ahead(self, refill: &impl Refill, now: u64) -> Balance {
        let terms = refill.terms();
        // No overflow: the units earned are below 2^63, and the tokens field has at most 58 bits.
        // The field of a reserved word is above the capacity, so the word reads as full.
        let level = (self.0 >> terms.widths.stamp) + refill.earned(now, self.passed(terms, now));
        Balance { level: level.min(refill.capacity()), stamp: now & terms.mask, lag: 0, adopt: false }
    }

    // By value: a reference would force the terms into memory on the hot path.
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

    /// Returns whether a reading is surely not behind the stamp: a charged bucket's stamp is at
    /// most `half` ticks, half the range, before it.
    #[inline(always)]
    pub(crate) fn accepts_fresh(self, reading: &Reading, half: u64) -> bool {
        (self.is_level() && self.passed(&reading.refill, reading.tick) <= half)
            || injected(Fault::StaleReadingAccepted)
    }

    /// Returns whether an accepted reading from before the load of the word may take: it is at most
    /// `near` ticks ahead of the stamp, the skew between two clocks.
    ///
    /// If the clock was set back since the reading, more than `near` ticks would be time that did
    /// not pass. Up to `near`, the time is earned once, as by a core whose counter is ahead. (A
    /// refusal based on too much elapsed time is still a refusal with less.)
    #[inline(always)]
    pub(crate) fn within_skew(self, reading: &Reading, near: u64) -> bool {
        self.passed(&reading.refill, reading.tick) <= near || injected(Fault::StaleReadingAccepted)
    }

    /// Returns whether the stamp is after a reading, by at most `near` ticks.
    #[inline]
    pub(crate) fn is_just_after(self, reading: &Reading, near: u64) -> bool {
        self.is_level() && self.lag(reading) <= near
    }

    /// Returns the ticks from a reading to the stamp, modulo the range.
    #[inline]
    fn lag(self, reading: &Reading) -> u64 {
        self.0.wrapping_sub(reading.tick) & reading.refill.mask
    }

    /// Takes `n` tokens right after the commit of this state, at a reading from
    /// [just before](State::is_just_after) it.
    #[inline]
    pub(crate) fn take_just_after(self, reading: &Reading, n: u64) -> (Outcome, Option<State>) {
        let terms = &reading.refill;
        let level = (self.0 >> terms.widths.stamp).min(terms.capacity);
        let stamp = if injected(Fault::StampMovesBack) { reading.tick } else { self.0 } & terms.mask;
        let balance = Balance { level, stamp, lag: self.lag(reading), adopt: false };
        match n {
            0 => (balance.untouched(), None),
            n => balance.take(terms, terms.units(n)),
        }
    }

    /// Returns whether the tick `now`, read before the load of the word, may decide.
    ///
    /// A reserved word accepts no such tick. A level accepts a tick that is behind the stamp by
    /// jitter at most, or later by at most half the range. Any other tick is too old: a step would
    /// take it for that of a clock that was set back, and would move the stamp back to it.
    pub(crate) fn accepts_stale(self, terms: &Terms, now: u64) -> bool {
        let passed = self.passed(terms, now);
        self.is_level() && (passed <= terms.mask / 2 || passed >= terms.jitter_from())
    }

    /// Takes `need` units, above 0, if they are there.
    #[inline(always)]
    pub(crate) fn take(self, refill: &impl Refill, now: u64, need: u64) -> (Outcome, Option<State>) {
        self.at(refill, now).take(refill.terms(), need)
    }

    /// Takes `n` tokens as [`Take`](crate::word::verb::Take) does, at a reading that
    /// [`accepts_fresh`](State::accepts_fresh).
    #[inline(always)]
    pub(crate) fn take_ahead(self, reading: &Reading, n: u64) -> (Outcome, Option<State>) {
        let (terms, view) = (&reading.refill, self.ahead(&reading.refill, reading.tick));
        match n {
            0 => (view.untouched(), None),
            n => view.take(terms, terms.units(n)),
        }
    }

    /// Takes `need` units and, on top, a lease of `size(spare)` tokens, where `spare` is the units
    /// left above `need`. Returns the outcome and the tokens of the lease.
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

    /// Ends a lease of `size` units, of which `left` come back. Returns `None` if the bucket is
    /// sealed.
    ///
    /// The new stamp is committed even when `left` is 0, because from this tick on the bucket may
    /// refill up to its full capacity again.
    pub(crate) fn recalled(self, refill: &impl Refill, now: u64, left: u64, size: u64) -> Option<State> {
        let view = self.at(refill, now);
        // The sums are below 2^59. The capacity is already reduced by the lease.
        let level = (view.level + left).min(refill.capacity() + size).min(refill.nominal_capacity());
        let stamped = self != State::SEALED && (left > 0 || !injected(Fault::NotStampedAnew));
        stamped.then(|| State::pack(refill.terms(), level, view.stamp))
    }

    /// Returns the level in the word, without refill since; for a reserved word, more than any
    /// level.
    #[inline]
    pub(crate) fn stored(self, terms: &Terms) -> u64 {
        self.0 >> terms.widths.stamp
    }

    /// Takes the whole tokens that are there, up to `most` units.
    pub(crate) fn take_up_to(self, refill: &impl Refill, now: u64, most: u64) -> (Outcome, Option<State>) {
        let (terms, view) = (refill.terms(), self.at(refill, now));
        match terms.units(terms.available(view.level)).min(most) {
            0 => view.refused(terms),
            units => view.took(terms, units),
        }
    }

    /// Takes up to `most` units in whole tokens, on credit as far as the debt allows.
    pub(crate) fn charge_up_to(self, refill: &impl Refill, now: u64, most: u64) -> (Outcome, Option<State>) {
        let (terms, view) = (refill.terms(), self.at(refill, now));
        let left = terms.units(terms.tokens(view.level.saturating_sub(refill.min_level())));
        match left.min(most) {
            0 => view.refused(terms),
            units => view.took(terms, units),
        }
    }

    /// Takes `need` units that are there or will be earned. The debt must stay within its bound,
    /// and `patient` must accept the ticks until all are earned.
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

    /// Gives back `units`, as far as they fit. Returns `None` if there is nothing to commit: none
    /// fit and the stamp stays, or the word is reserved.
    pub(crate) fn give(self, refill: &impl Refill, now: u64, units: u64) -> Option<State> {
        let view = self.at(refill, now);
        // The sum is below 2^59.
        let level = (view.level + units).min(refill.capacity());
        let fits = self.is_level() && (view.adopt || level > view.level);
        (fits || injected(Fault::SealedIsGiven)).then(|| State::pack(refill.terms(), level, view.stamp))
    }

    /// Gives back `units` to a bucket that still stands as its take left it.
    pub(crate) fn give_back(self, refill: &impl Refill, now: u64, units: u64, left: Left) -> Option<State> {
        if self.stands(refill.terms(), now, left) { self.give(refill, now, units) } else { None }
    }

    /// Returns whether no tokens were taken since the take that left the bucket so, beyond those
    /// that came back.
    pub(crate) fn stands(self, terms: &Terms, now: u64, Left { empty_at, stamp }: Left) -> bool {
        let same_stamp = |stamp: u64| (self.0 ^ stamp) & terms.mask == 0;
        let same = self.empty_at(terms, now) == empty_at && stamp.is_none_or(same_stamp);
        self.is_level() && (same || injected(Fault::IgnoreQueuePosition))
    }

    /// Undoes a take of `need` units made at tick `since` when the level was `before`. Gives back
    /// the units that the bucket would still hold had the take not happened.
    pub(crate) fn undo(
        self,
        refill: &impl Refill,
        now: u64,
        need: u64,
        before: u64,
        since: u64,
    ) -> Option<State> {
        let terms = refill.terms();
        // A reading behind the stamp counts as the stamp's own tick.
        let then = now.wrapping_add(self.at(refill, now).lag);
        let passed = then.wrapping_sub(since) & terms.mask;
        let earned = if passed < terms.backward_from { refill.earned(then, passed) } else { 0 };
        // Below 2^58 and 2^63.
        let spilt = (before + earned).saturating_sub(refill.capacity());
        let spilt = if injected(Fault::AllUndone) { 0 } else { spilt };
        self.give(refill, now, need.saturating_sub(spilt))
    }

    /// Returns the mark: the virtual time at which the level was 0, the deepest debt. See
    /// [`Terms::empty_at`].
    ///
    /// The virtual time is that of the terms' own rate. A take under a plan may leave it unchanged,
    /// because a plan earns more or less in the same ticks.
    pub(crate) fn empty_at(self, terms: &Terms, now: u64) -> u64 {
        let passed = self.passed(terms, now);
        let stamp = if passed >= terms.jitter_from() {
            now.wrapping_add(terms.mask - passed + 1)
        } else {
            now.wrapping_sub(passed)
        };
        terms.empty_at(stamp, self.0 >> terms.widths.stamp)
    }

    /// Returns the ticks until the bucket has been full for the eviction grace and may be evicted;
    /// 0 if it may be now.
    ///
    /// A bucket that was never charged may be evicted at any time. Under any plan a bucket is full
    /// `longest` ticks after its stamp (0 if there are no plans).
    pub(crate) fn evictable_in(self, terms: &Terms, now: u64, longest: u64) -> u64 {
        if !self.is_level() {
            return 0;
        }
        let passed = self.passed(terms, now);
        // A tombstone has no plan, so `longest` does not apply.
        let longest = if self.0 >= !terms.mask { 0 } else { longest };
        let level = (self.0 >> terms.widths.stamp).min(terms.capacity);
        // Ticks to fill are below 2^58, the eviction grace is at most 2^62, a lag is below 2^57.
        let margin = if injected(Fault::NoMargin) { 0 } else { terms.grace() };
        let due = terms.ticks_for(now, terms.capacity - level).max(longest) + margin;
        if passed < terms.backward_from { due.saturating_sub(passed) } else { due + self.at(terms, now).lag }
    }
}

impl<P: Refill> Reading<P> {
    /// Returns the bucket at this reading.
    #[inline]
    pub(crate) fn view(&self, state: State) -> Balance {
        state.at(&self.refill, self.tick)
    }
}

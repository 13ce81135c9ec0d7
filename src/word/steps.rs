//! The steps on a word. Pure: no atomics, no clock.

use crate::fault::{Fault, injected};
use crate::rule::gate::Gate;
use crate::word::state::{Balance, Left, Origin, Reading, Refill, State, TakeOutcome};
use crate::word::terms::Terms;
use crate::word::verb::Take;

impl Balance {
    /// Takes `need` units, above 0, if they are there.
    #[inline(always)]
    pub(super) fn take(self, refill: &impl Refill, need: u64) -> (TakeOutcome, Option<State>) {
        if refill.has(&self, need) { self.took(refill, need) } else { self.refused(refill) }
    }

    /// Takes `n` whole tokens, above 0, if at least `percent` hundredths of the burst stay after
    /// the take.
    ///
    /// The burst is that in force, the plan's, or a window's limit. At 0 % this is
    /// [`take`](Balance::take), and from 100 % on it always refuses, since `n` is above 0.
    ///
    /// Returns the outcome, and the state to commit. A refusal commits nothing, unless the
    /// clock was set back: then the word gets a new stamp.
    ///
    /// The test is `left * 100 >= burst * percent`, which is the same as `left >= kept` for a part
    /// that is rounded up. A division took 15 instructions more.
    #[inline(always)]
    pub(crate) fn take_above(
        self,
        refill: &impl Refill,
        n: u64,
        percent: u8,
    ) -> (TakeOutcome, Option<State>) {
        let terms = refill.terms();
        let units = terms.units(n);
        let burst = terms.tokens(refill.nominal_capacity() - terms.empty_level);
        let percent = if injected(Fault::KeptForgotten) { 0 } else { percent };
        match refill.left_after(&self, units) {
            // A burst is at most 2^40.
            Some(left) if left * 100 >= burst * u64::from(percent) => self.took(refill, units),
            _ => self.refused(refill),
        }
    }

    /// Takes the whole tokens that are there above `keep` tokens, up to `most` units.
    #[inline(always)]
    pub(crate) fn take_up_to(
        self,
        refill: &impl Refill,
        most: u64,
        keep: u64,
    ) -> (TakeOutcome, Option<State>) {
        let there = refill.available(self.level, self.lag).saturating_sub(keep);
        match refill.terms().units(there).min(most) {
            0 => self.refused(refill),
            units => self.took(refill, units),
        }
    }

    #[inline]
    fn took(self, refill: &impl Refill, units: u64) -> (TakeOutcome, Option<State>) {
        let level = refill.after_take(self.level, units);
        let outcome = TakeOutcome { granted: true, taken: units, level, lag: self.lag, origin: Origin::Own };
        (outcome, Some(State::pack(refill.terms(), level, self.stamp)))
    }

    #[inline]
    fn refused(self, refill: &impl Refill) -> (TakeOutcome, Option<State>) {
        let outcome = TakeOutcome { granted: false, ..self.untouched() };
        (outcome, self.adopt.then(|| State::pack(refill.terms(), self.level, self.stamp)))
    }
}

impl State {
    /// Returns the bucket at tick `now`. A reserved word reads as full.
    #[inline(always)]
    pub(crate) fn at(self, refill: &impl Refill, now: u64) -> Balance {
        refill.view(self, now)
    }

    /// Returns whether a reading may decide, and is surely not behind the stamp.
    ///
    /// It is before the `end` of its period: a turn of the stamp, from which its ticks count, or
    /// for words that count windows the time until they are swept. `half` is half the range.
    #[inline(always)]
    pub(crate) fn accepts_fresh<P: Refill>(self, reading: &Reading, end: u64, half: u64) -> bool {
        let passed = self.passed(&reading.refill, reading.tick);
        let ahead = match P::COUNTS {
            true => passed <= half && self.is_level(),
            // A stamp of the turn is at most the tick. Those of reserved words are the last ones.
            false => passed <= reading.tick,
        };
        (reading.tick < end && ahead) || injected(Fault::StaleReadingAccepted)
    }

    /// Returns whether an earlier reading may decide without a new one: it is at most `near` ticks,
    /// the skew between two clocks, after the stamp.
    ///
    /// Further ahead it may be of a clock that was set back since. Then each decision at it, after
    /// one of the clock, would earn the same time again. The first `near` ticks of a turn are left
    /// to the loop: so a stamp of the turn is at most the tick, and one of a reserved word is not
    /// near.
    #[inline(always)]
    pub(crate) fn accepts_earlier<P: Refill>(self, reading: &Reading, end: u64, near: u64) -> bool {
        let passed = self.passed(&reading.refill, reading.tick);
        let near = if injected(Fault::MomentAhead) { reading.tick } else { near };
        let is_in_period = match P::COUNTS {
            true => reading.tick < end && self.is_level(),
            false => reading.tick.wrapping_sub(near) < end,
        };
        passed <= near && is_in_period
    }

    /// Returns whether an accepted reading from before the load of the word may take: it is at most
    /// `near` ticks ahead of the stamp, the skew between two clocks.
    ///
    /// If the clock was set back since the reading, more than `near` ticks would be time that did
    /// not pass. Up to `near`, the time is earned once, as by a core whose counter is ahead. (A
    /// refusal based on too much elapsed time is still a refusal with less.)
    #[inline(always)]
    pub(crate) fn within_skew<P: Refill>(self, reading: &Reading<P>, near: u64) -> bool {
        self.passed(reading.refill.terms(), reading.tick) <= near || injected(Fault::StaleReadingAccepted)
    }

    /// Returns whether the stamp is after a reading, by at most `near` ticks.
    #[inline]
    pub(crate) fn is_just_after<P: Refill>(self, reading: &Reading<P>, near: u64) -> bool {
        self.is_level() && self.lag(reading) <= near
    }

    /// Returns the ticks from a reading to the stamp, modulo the range.
    #[inline]
    fn lag<P: Refill>(self, reading: &Reading<P>) -> u64 {
        self.word().wrapping_sub(reading.tick) & reading.refill.terms().mask
    }

    /// Takes right after the commit of this state, at a reading from
    /// [just before](State::is_just_after) it.
    #[inline]
    pub(crate) fn take_just_after<P: Refill>(
        self,
        reading: &Reading<P>,
        take: Take,
    ) -> (TakeOutcome, Option<State>) {
        let (refill, terms) = (&reading.refill, reading.refill.terms());
        let mut balance = refill.view_at_stamp(self, self.lag(reading));
        if injected(Fault::StampMovesBack) {
            balance.stamp = reading.tick & terms.mask;
        }
        take.apply_at_once(balance, refill)
    }

    /// Returns whether the tick `now`, read before the load of the word, may decide.
    ///
    /// A reserved word accepts no such tick. A level accepts a tick that is behind the stamp by
    /// jitter at most, or later by at most half the range. Any other tick is too old: a step would
    /// take it for that of a clock that was set back, and would move the stamp back to it.
    pub(crate) fn accepts_stale(self, terms: &Terms, now: u64) -> bool {
        let passed = self.passed(terms, now);
        self.is_level() && (passed <= terms.mask / 2 || passed >= terms.skew_from())
    }

    /// Takes `need` units, above 0, if they are there.
    #[inline(always)]
    pub(crate) fn take(self, refill: &impl Refill, now: u64, need: u64) -> (TakeOutcome, Option<State>) {
        self.at(refill, now).take(refill, need)
    }

    /// Takes at a reading that [`accepts_fresh`](State::accepts_fresh).
    #[inline(always)]
    pub(crate) fn take_ahead<P: Refill>(
        self,
        reading: &Reading<P>,
        take: Take,
    ) -> (TakeOutcome, Option<State>) {
        take.apply_at_once(reading.refill.view_ahead(self, reading.tick), &reading.refill)
    }

    /// Takes `need` units and, on top, a lease of `size(spare)` tokens, where `spare` is the units
    /// left above `need`. Returns the outcome and the tokens of the lease.
    pub(crate) fn lease(
        self,
        refill: &impl Refill,
        now: u64,
        need: u64,
        size: impl Fn(u64) -> u64,
    ) -> ((TakeOutcome, u64), Option<State>) {
        let (terms, view) = (refill.terms(), self.at(refill, now));
        let Some(spare) = view.level.checked_sub(need + terms.empty_level) else {
            let (outcome, next) = view.refused(refill);
            return ((outcome, 0), next);
        };
        let size = size(spare);
        let (outcome, next) = view.took(refill, need + terms.units(size));
        ((outcome, size), next)
    }

    /// Ends a lease of `size` units, of which `left` come back.
    ///
    /// The new stamp is committed even when `left` is 0, because from this tick on the bucket may
    /// refill up to its full capacity again.
    pub(crate) fn recalled(self, refill: &impl Refill, now: u64, left: u64, size: u64) -> Option<State> {
        let view = self.at(refill, now);
        // The sums are below 2^59. The capacity is already reduced by the lease.
        let level = (view.level + left).min(refill.capacity() + size).min(refill.nominal_capacity());
        let stamped = left > 0 || !injected(Fault::NotStampedAnew);
        stamped.then(|| State::pack(refill.terms(), level, view.stamp))
    }

    /// Takes up to `most` units in whole tokens, on credit as far as the debt allows.
    pub(crate) fn charge_up_to(
        self,
        refill: &impl Refill,
        now: u64,
        most: u64,
    ) -> (TakeOutcome, Option<State>) {
        let (terms, view) = (refill.terms(), self.at(refill, now));
        let left = terms.units(terms.tokens(refill.credit(&view)));
        match left.min(most) {
            0 => view.refused(refill),
            units => view.took(refill, units),
        }
    }

    /// Takes `need` units that are there or will be earned above `keep` units. The debt must stay
    /// within its bound, and `patient` must accept the balance for which the caller waits.
    pub(crate) fn reserve(
        self,
        refill: &impl Refill,
        now: u64,
        (need, keep): (u64, u64),
        patient: impl Fn(&Balance) -> bool,
    ) -> (TakeOutcome, Option<State>) {
        let (terms, view) = (refill.terms(), self.at(refill, now));
        let possible = view.level >= need + refill.min_level()
            && (view.level >= need + keep + terms.empty_level || patient(&view));
        if possible { view.took(refill, need) } else { view.refused(refill) }
    }

    /// Takes those of `n` tokens that are there, of a bucket whose tokens do not decide.
    pub(crate) fn take_by_name(self, refill: &impl Refill, now: u64, n: u64) -> (TakeOutcome, Option<State>) {
        let (terms, view) = (refill.terms(), self.at(refill, now));
        let there = view.level.saturating_sub(terms.empty_level).min(terms.units(n));
        match terms.gate {
            _ if n == 0 => (view.untouched(), None),
            Gate::Shut => view.refused(refill),
            _ if there == 0 => (view.untouched(), view.refused(refill).1),
            _ => view.took(refill, there),
        }
    }

    /// Gives back `units`, as far as they fit. Returns `None` if there is nothing to commit: none
    /// fit and the stamp stays, or the word is reserved.
    #[inline(always)]
    pub(crate) fn give(self, refill: &impl Refill, now: u64, units: u64) -> Option<State> {
        let view = self.at(refill, now);
        self.given(refill, view, Balance { level: refill.after_refund(view.level, units), ..view })
    }

    /// Returns the state `after` units came back, if there is something to commit.
    #[inline(always)]
    fn given(self, refill: &impl Refill, view: Balance, after: Balance) -> Option<State> {
        let fits = self.is_level() && (view.adopt || after.level != view.level);
        (fits || injected(Fault::SealedIsGiven)).then(|| after.initialized(refill.terms()))
    }

    /// Gives back `units` to a bucket that still stands as its take left it.
    pub(crate) fn give_back(self, refill: &impl Refill, now: u64, units: u64, left: Left) -> Option<State> {
        if self.stands(refill.terms(), now, left) { self.give(refill, now, units) } else { None }
    }

    /// Returns whether no tokens were taken since the take that left the bucket so, beyond those
    /// that came back.
    pub(crate) fn stands(self, terms: &Terms, now: u64, Left { empty_at, stamp }: Left) -> bool {
        let same_stamp = |stamp: u64| (self.word() ^ stamp) & terms.mask == 0;
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
        let view = self.at(refill, now);
        self.given(refill, view, refill.undone(view, now, need, before, since))
    }

    /// Undoes a take as [`undo`](State::undo) does, of a caller that was refused.
    pub(crate) fn untake(
        self,
        refill: &impl Refill,
        now: u64,
        need: u64,
        before: u64,
        since: u64,
    ) -> Option<State> {
        let view = self.at(refill, now);
        self.given(refill, view, refill.untaken(view, now, need, before, since))
    }

    /// Returns the mark: the virtual time at which the level was 0, the deepest debt. See
    /// [`Terms::empty_at`].
    ///
    /// The virtual time is that of the terms' own rate. A take under a plan may leave it unchanged,
    /// because a plan earns more or less in the same ticks.
    pub(crate) fn empty_at(self, terms: &Terms, now: u64) -> u64 {
        let passed = self.passed(terms, now);
        let stamp = if passed >= terms.skew_from() {
            now.wrapping_add(terms.mask - passed + 1)
        } else {
            now.wrapping_sub(passed)
        };
        terms.empty_at(stamp, self.stored(terms))
    }

    /// Returns the ticks until the bucket has been full for the eviction grace and may be evicted;
    /// 0 if it may be now.
    ///
    /// A bucket that was never charged may be evicted at any time. Under any plan a bucket is full
    /// `longest` ticks after its stamp (0 if there are no plans).
    pub(crate) fn evictable_in(self, terms: &Terms, now: u64, longest: u64) -> u64 {
        let (passed, due) = (self.passed(terms, now), self.evictable_after(terms, longest));
        match self.is_level() {
            false => 0,
            true if passed < terms.backward_from => due.saturating_sub(passed),
            true => due + self.at(terms, now).lag,
        }
    }

    /// Returns whether the bucket may be [evicted](State::evictable_in) now.
    #[inline]
    pub(crate) fn is_evictable(self, terms: &Terms, now: u64, longest: u64) -> bool {
        let passed = self.passed(terms, now);
        // No branch: which buckets of a set are idle cannot be predicted.
        let is_due = (passed < terms.backward_from) & (passed >= self.evictable_after(terms, longest));
        !self.is_level() | is_due
    }

    /// Returns the ticks after the stamp from which on the bucket may be evicted.
    #[inline]
    fn evictable_after(self, terms: &Terms, longest: u64) -> u64 {
        // A tombstone has no plan, so `longest` does not apply.
        let longest = if self.word() >= !terms.mask { 0 } else { longest };
        let level = (self.stored(terms)).min(terms.capacity);
        // Ticks to fill are below 2^58, the eviction grace is at most 2^62, a lag is below 2^57.
        let margin = if injected(Fault::NoMargin) { 0 } else { terms.grace() };
        terms.ticks_for(terms.capacity - level).max(longest) + margin
    }
}

//! Words outside of a process: stamps that count from the tick of a save, and their way back.
//!
//! A saved word keeps its level or its counts, and its stamp becomes the difference to the tick of
//! the save. A restored word is that of a bucket to which no caller came meanwhile: its stamp is as
//! far in the past as the time since the save.
//!
//! *Invariant:* a restored word never has more tokens than the word that went on, and at most the
//! tokens of a tick less, because the ticks since the save are counted from the part of a tick that
//! had passed then ([`Phase`]) to the part that has passed now, and rounded down once.

use crate::rule::counts::Counting;
use crate::word::state::{Balance, Reading, Refill, State};
use crate::word::terms::Terms;
use crate::word::tick::TickScale;
use crate::word::window::{ANY, WindowTerms};

/// The part of a tick that had passed at a reading, in the units of [`TickScale`].
pub(crate) type Phase = u128;

/// The moment of a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedAt {
    /// Nanoseconds since 1970.
    pub(crate) unix: u64,
    pub(crate) tick: u64,
    pub(crate) phase: Phase,
}

impl SavedAt {
    pub(crate) fn new(reading: &Reading, unix: u64) -> SavedAt {
        let phase = TickScale::into(&reading.refill.ticks, reading.nanos());
        SavedAt { unix, tick: reading.tick, phase }
    }

    /// Returns whether a save under these terms can have this moment.
    pub(crate) fn is_valid(&self, terms: &Terms) -> bool {
        terms.ticks.is_phase(self.phase)
    }
}

/// The way of saved words to the words of a limiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resume {
    reading: Reading,
    /// Ticks since the save; below 0 if the calendar of the words was set back.
    elapsed: i64,
    /// The ticks in which the slowest plan earns a unit, if a plan may have earned one more: by
    /// ticks that count from another beginning, since it rounds its units down at each tick.
    rounded: Option<u64>,
}

impl Resume {
    /// `by_calendar`: the ticks count from a fixed time, which the save has in common with the
    /// reading. `plan_unit`: the ticks in which the slowest plan earns a unit, if a key may be
    /// under one.
    pub(crate) fn new(
        reading: Reading,
        unix: u64,
        saved: SavedAt,
        by_calendar: bool,
        plan_unit: Option<u64>,
    ) -> Resume {
        let now = SavedAt::new(&reading, unix);
        let elapsed = match by_calendar {
            true => now.tick.wrapping_sub(saved.tick).cast_signed(),
            // A wall clock that was set back earns nothing.
            false => reading.refill.ticks.between(saved.phase, unix.saturating_sub(saved.unix), now.phase),
        };
        let moved = reading.tick.wrapping_sub(saved.tick) != elapsed.cast_unsigned();
        Resume { reading, elapsed, rounded: plan_unit.filter(|_| moved) }
    }

    /// Returns whether a saved word can be one of the limiter.
    pub(crate) fn accepts(&self, saved: State) -> bool {
        let terms = &self.reading.refill;
        let is_level = saved.is_level() && saved.word() < !terms.mask;
        is_level
            && match terms.widths.counts.counting {
                Counting::Bucket | Counting::Places => true,
                _ => self.windows().holds(saved.stored(terms)),
            }
    }

    /// Returns the word of a bucket now; `None` if it says the same as no bucket.
    pub(crate) fn word(&self, saved: State) -> Option<State> {
        let Reading { refill: terms, tick, .. } = &self.reading;
        let past = terms.mask.wrapping_add(1).wrapping_sub(saved.word()) & terms.mask;
        // A stamp that was ahead of the save stays ahead until that time.
        let age = match past < terms.backward_from {
            true => past.cast_signed(),
            false => past.cast_signed() - terms.mask.cast_signed() - 1,
        };
        let age = age.saturating_add(self.elapsed);
        // A bucket is full and a window is forgotten by then, and no reading is near the wrap.
        let longest = (terms.mask / 2).cast_signed();
        // Set back by more than the stamp can tell: the window goes on from now.
        let age = if age < -longest { 0 } else { age };
        let stamp = tick.wrapping_sub(age.min(longest).cast_unsigned());
        let word = State::pack(terms, saved.stored(terms), stamp);
        match (terms.widths.counts.counting, self.rounded) {
            (Counting::Bucket, Some(unit)) => {
                // A level is not below the deepest debt, so its time begins later.
                let most = age.min(longest).saturating_add_unsigned(terms.max_skew()).max(0);
                Some(match saved.stored(terms).checked_sub(1) {
                    Some(level) => State::pack(terms, level, stamp),
                    None => State::pack(terms, 0, stamp.wrapping_add(unit.min(most.cast_unsigned()))),
                })
            }
            (Counting::Bucket, None) => Some(word),
            (Counting::Places, _) => None,
            _ => {
                let forgotten = self.windows().idle_from(word, &self.reading) <= self.reading.nanos();
                (age < longest && !forgotten).then_some(word)
            }
        }
    }

    fn windows(&self) -> WindowTerms<ANY> {
        WindowTerms::of(self.reading, None).refill
    }
}

impl State {
    /// Returns the word to save: its stamp counts from the tick of the save.
    pub(crate) fn saved(self, terms: &Terms, tick: u64) -> State {
        State::pack(terms, self.stored(terms), self.word().wrapping_sub(tick))
    }

    /// Returns a bucket from which all tokens are taken that were taken from either of two.
    ///
    /// `plans`: either may be under a plan that earns less than the terms. Then nothing is earned
    /// from the earlier stamp to the later one.
    pub(crate) fn merged(self, reading: &Reading, other: State, plans: bool) -> State {
        self.beside(reading, other, plans, Takes::OfBoth)
    }

    /// Returns a bucket that never has more tokens than either of two. `plans` is as in
    /// [`merged`](State::merged).
    pub(crate) fn least(self, reading: &Reading, other: State, plans: bool) -> State {
        self.beside(reading, other, plans, Takes::OfEither)
    }

    fn beside(self, reading: &Reading, other: State, plans: bool, takes: Takes) -> State {
        let Reading { refill: terms, tick, .. } = reading;
        if !self.is_level() {
            return other;
        }
        let left = |one: u64, two: u64| match takes {
            // Below 2^59.
            Takes::OfBoth => (one + two).saturating_sub(terms.capacity),
            Takes::OfEither => one.min(two),
        };
        match terms.widths.counts.counting {
            Counting::Bucket if plans => {
                let ahead = |state: State| match state.passed(terms, *tick) {
                    passed if passed < terms.backward_from => -passed.cast_signed(),
                    passed => (terms.mask - passed).cast_signed() + 1,
                };
                let later = if ahead(self) > ahead(other) { self } else { other };
                let now = if ahead(later) > 0 { later.word() } else { *tick };
                let [one, two] = [self, other].map(|state| state.stored(terms).min(terms.capacity));
                match takes {
                    // Below the deepest debt nothing is told: the level is as low as can be now.
                    Takes::OfBoth if one + two < terms.capacity => State::pack(terms, 0, now),
                    _ => State::pack(terms, left(one, two), later.word()),
                }
            }
            Counting::Bucket => {
                let (one, two) = (reading.view(self), reading.view(other));
                let later = if one.lag > two.lag { one } else { two };
                Balance { level: left(one.level, two.level), ..later }.initialized(terms)
            }
            Counting::Places => self,
            _ => WindowTerms::<ANY>::of(*reading, None).refill.beside([self, other], *tick, takes),
        }
    }
}

/// The takes that two words tell together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// They are takes of one bucket.
    OfBoth,
    /// They are takes of one bucket or of another one.
    OfEither,
}

impl WindowTerms<ANY> {
    /// Returns whether these counts are ones that a word may have.
    fn holds(&self, level: u64) -> bool {
        let counts = (0..=self.counts.before.into()).map(|age| self.count(level, age));
        match self.counts.counting {
            Counting::Weighted => counts.max().is_some_and(|count| count <= self.counts.most()),
            // At most 64 counts.
            _ => counts.fold(0, u64::saturating_add) <= self.counts.most(),
        }
    }

    /// Returns a window in which the tokens of two are used, or as many as in either.
    fn beside(&self, words: [State; 2], now: u64, takes: Takes) -> State {
        let [one, two] = words.map(|word| self.view(word, now));
        let by_stamp = |view: &Balance| (view.level > 0, view.lag);
        let (late, early) = if by_stamp(&one) >= by_stamp(&two) { (one, two) } else { (two, one) };
        let first_use = self.counts.counting == Counting::FirstUse;
        let behind = if first_use { 0 } else { late.lag.saturating_sub(early.lag) };
        let levels = [late.level, self.shifted(early.level, behind)];
        let (mut level, mut used) = (0, 0);
        // The newest first: without room for all of them, the oldest are left out.
        for age in 0..=self.counts.before.into() {
            let [one, two] = levels.map(|level| self.count(level, age));
            let count = if takes == Takes::OfBoth { one + two } else { one.max(two) };
            let count = count.min(self.counts.most().saturating_sub(used));
            level |= count << (age * u64::from(self.counts.count));
            // Each count of a weighted window has room of its own.
            used += if self.counts.counting == Counting::Weighted { 0 } else { count };
        }
        Balance { level, ..late }.initialized(self.terms())
    }
}

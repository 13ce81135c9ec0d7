//! The word of a bucket, and the steps it takes. Pure: no atomics, no clock.
//!
//! | bits             | field  | meaning                                                          |
//! |------------------|--------|------------------------------------------------------------------|
//! | `S..64`          | tokens | the level at the stamp, in units of `2^-fraction` tokens          |
//! | `0..S`           | stamp  | the tick at which the level was committed, modulo `2^S`           |
//! | all ones         | `FULL`   | never charged                                                   |
//! | all ones less 1  | `SEALED` | evicted: never charged again; its key has, or may have, another |
//!
//! The tokens field of both reserved words is all ones, which is above every level.
//!
//! Let `d = (now - stamp) mod 2^S`. From `jitter` on, `d` is a reading that is behind the stamp (cores
//! whose counters differ): no time has passed, and the stamp stays. From `horizon` on, it is a clock
//! that was set back, or a wrap after a very long idle time: no time has passed, and the stamp moves to
//! now, so that the bucket heals at once and earns nothing by it. Below, it is the time that passed.

use crate::terms::Terms;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(u64);

/// A bucket as seen at some tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// Units in hand.
    pub(crate) level: u64,
    /// The stamp to commit with the level.
    stamp: u64,
    /// Ticks by which the reading is behind the stamp.
    pub(crate) lag: u64,
    /// The clock was set back: even a refusal commits the new stamp.
    adopt: bool,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) granted: bool,
    /// Units in hand after the step.
    pub(crate) level: u64,
    /// Ticks by which the reading is behind the stamp.
    pub(crate) lag: u64,
}

impl State {
    pub(crate) const FULL: State = State(u64::MAX);
    pub(crate) const SEALED: State = State(u64::MAX - 1);

    pub(crate) const fn from_word(word: u64) -> State {
        State(word)
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    const fn pack(terms: &Terms, level: u64, stamp: u64) -> State {
        State(level << terms.layout.stamp | stamp)
    }

    /// Neither `FULL` nor `SEALED`: a level and a stamp.
    #[inline]
    pub(crate) const fn is_level(self) -> bool {
        self.0 < State::SEALED.0
    }

    /// The bucket at tick `now`. A reserved word reads as full.
    #[inline]
    pub(crate) fn at(self, terms: &Terms, now: u64) -> View {
        let passed = now.wrapping_sub(self.0) & terms.mask;
        if passed < terms.horizon {
            // No overflow: `stamp + scale <= 62`, and the tokens field has 57 bits at the most. A reserved
            // word's field is above the capacity: it reads as full.
            let earned = passed << terms.layout.scale;
            let level = (self.0 >> terms.layout.stamp) + earned;
            View { level: level.min(terms.capacity), stamp: now & terms.mask, lag: 0, adopt: false }
        } else {
            self.at_an_earlier_time(terms, now, passed)
        }
    }

    #[cold]
    fn at_an_earlier_time(self, terms: &Terms, now: u64, passed: u64) -> View {
        let level = (self.0 >> terms.layout.stamp).min(terms.capacity);
        let now = now & terms.mask;
        if passed >= terms.jitter && self.is_level() {
            View { level, stamp: self.0 & terms.mask, lag: terms.mask - passed + 1, adopt: false }
        } else {
            View { level, stamp: now, lag: 0, adopt: self.is_level() }
        }
    }

    /// Takes `need` units, above 0 and at most the capacity, if they are there.
    #[inline]
    pub(crate) fn take(self, terms: &Terms, now: u64, need: u64) -> (Outcome, Option<State>) {
        let View { level, stamp, lag, adopt } = self.at(terms, now);
        if level >= need {
            let level = level - need;
            (Outcome { granted: true, level, lag }, Some(State::pack(terms, level, stamp)))
        } else {
            let next = if adopt { Some(State::pack(terms, level, stamp)) } else { None };
            (Outcome { granted: false, level, lag }, next)
        }
    }

    /// Ticks until the bucket has been full for the margin and may be evicted; 0 if it may be now, as one that
    /// was never charged may be at any time.
    pub(crate) fn evictable_in(self, terms: &Terms, now: u64) -> u64 {
        if !self.is_level() {
            return 0;
        }
        let passed = now.wrapping_sub(self.0) & terms.mask;
        let level = (self.0 >> terms.layout.stamp).min(terms.capacity);
        // Ticks to fill are below 2^57, the margin below 2^62 + 1, a lag below 2^57.
        let due = terms.ticks_for(terms.capacity - level) + terms.margin;
        if passed < terms.horizon { due.saturating_sub(passed) } else { due + self.at(terms, now).lag }
    }
}

//! The word of a bucket. Pure: no atomics, no clock. Its steps are in `steps`.
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

use crate::word::terms::Terms;

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

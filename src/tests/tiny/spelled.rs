//! The steps of docs/design.md, spelled out in plain integers.

use super::either::Either;
use crate::rule::layout::Widths;
use crate::word::terms::Terms;

/// A tiny bucket: a tick earns `up / down` units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiny {
    pub(super) refill: Either,
    pub(super) terms: Terms,
    pub(super) up: i128,
    pub(super) down: i128,
    pub(super) capacity: i128,
    /// The tick before which the bucket earns nothing.
    pub(super) since: i128,
    /// Units in one turn of the stamp. Marks are known modulo this number.
    pub(super) turn: i128,
}

impl Tiny {
    pub(super) fn range(&self) -> i128 {
        1 << self.terms.widths.stamp
    }

    pub(super) fn units(&self, tokens: i128) -> i128 {
        tokens << self.terms.widths.fraction
    }

    /// Returns the burst in tokens.
    pub(super) fn burst(&self) -> u64 {
        ((self.capacity - i128::from(self.terms.empty_level)) >> self.terms.widths.fraction) as u64
    }

    /// Returns the units earned from tick 0 until `tick`.
    pub(super) fn until(&self, tick: i128) -> i128 {
        tick * self.up / self.down
    }

    pub(super) fn earned(&self, now: i128, passed: i128) -> i128 {
        self.until(now) - self.until((now - passed).max(self.since).min(now))
    }

    /// Returns the least number of ticks after `now` that earn `units`.
    pub(super) fn ticks(&self, now: i128, units: i128) -> i128 {
        let goal = (self.until(now.max(self.since)) + units) * self.down;
        (goal + self.up - 1) / self.up - now
    }

    pub(super) fn difference(&self, from: i128, to: i128) -> Difference {
        let (jitter, jump) = self.windows();
        let behind = (from - to).rem_euclid(self.range());
        if behind == 0 || behind > jitter + jump {
            Difference::Passed((to - from).rem_euclid(self.range()))
        } else if behind <= jitter {
            Difference::Jitter(behind)
        } else {
            Difference::Jump
        }
    }

    /// Returns the jitter window and the backward window, in ticks. In a range this short each has
    /// 2 ticks. After a change of quota the backward window is a 64th of the range, rounded up.
    pub(super) fn windows(&self) -> (i128, i128) {
        let changed = self.terms.widths.fixed_debt;
        (2, if changed { (self.range() + 63) / 64 } else { 2 })
    }
}

/// The meaning of a difference between a reading and the stamp.
pub(super) enum Difference {
    Passed(i128),
    Jitter(i128),
    Jump,
}

/// A bucket at a reading, by docs/design.md, with each rounding spelled out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spelled<'a> {
    pub(super) tiny: &'a Tiny,
    pub(super) now: i128,
    pub(super) level: i128,
    pub(super) stamp: i128,
    pub(super) lag: i128,
    pub(super) adopted: bool,
    /// True if the word is `FULL` or `SEALED`: no units are given to such a word.
    pub(super) reserved: bool,
    /// The mark: the time at which the level was 0, in units that the limiter's own quota earns.
    pub(super) empty_at: i128,
    pub(super) empty_level: i128,
    pub(super) lowest: i128,
}

/// The result of a step: granted, units taken, level, lag, and the word to commit.
pub(super) type Came = (bool, u64, u64, u64, Option<u64>);

impl<'a> Spelled<'a> {
    pub(super) fn at(tiny: &'a Tiny, word: u64, now: u64) -> Spelled<'a> {
        let Widths { stamp: bits, fixed_debt, .. } = tiny.terms.widths;
        let range = tiny.range();
        let (stored, stamp) = (i128::from(word >> bits), i128::from(word) % range);
        let (tick, now) = (i128::from(now), i128::from(now) % range);
        let reserved = word >= u64::MAX - 1;
        let (capacity, empty_level) = (tiny.capacity, i128::from(tiny.terms.empty_level));
        let passed = (now - stamp).rem_euclid(range);
        let (mut committed, mut lag, mut adopted, mut earned) = (now, 0, false, 0);
        let mut charged = tick - passed;
        match tiny.difference(stamp, now) {
            Difference::Passed(passed) => earned = tiny.earned(tick, passed),
            Difference::Jitter(behind) => (committed, lag, charged) = (stamp, behind, tick + behind),
            Difference::Jump => adopted = true,
        }
        let mut level = (stored + earned).min(capacity);
        if reserved {
            (level, committed, lag, adopted) = (capacity, now, 0, false);
        }
        // The largest debt is the fixed one, or else at most one burst.
        let debt = if fixed_debt { empty_level } else { empty_level.min(capacity - empty_level) };
        let empty_at = ((charged << tiny.terms.widths.scale) - stored).rem_euclid(tiny.turn);
        let lowest = empty_level - debt;
        Spelled {
            tiny,
            now: tick,
            level,
            stamp: committed,
            lag,
            adopted,
            reserved,
            empty_at,
            empty_level,
            lowest,
        }
    }

    pub(super) fn word(&self, level: i128) -> u64 {
        (level << self.tiny.terms.widths.stamp | self.stamp) as u64
    }

    pub(super) fn takes(&self, taken: i128) -> Came {
        let left = self.level - taken;
        let next = (taken > 0 || self.adopted).then_some(self.word(left));
        (taken > 0, taken as u64, left as u64, self.lag as u64, next)
    }

    pub(super) fn take(&self, need: i128) -> Came {
        self.takes(if self.level - self.empty_level >= need { need } else { 0 })
    }

    /// Returns the step of a take that leaves `keep` units above an empty bucket.
    pub(super) fn take_above(&self, need: i128, keep: i128) -> Came {
        let stays = self.level - need >= self.empty_level + keep;
        self.takes(if stays { need } else { 0 })
    }

    pub(super) fn tokens_above(&self, empty_level: i128, most: i128) -> i128 {
        let token = self.tiny.units(1);
        ((self.level - empty_level).max(0) / token * token).min(most)
    }

    /// Returns the ticks until all of `need` are earned.
    pub(super) fn delay(&self, need: i128) -> i128 {
        let missing = need + self.empty_level - self.level;
        if missing <= 0 { 0 } else { self.tiny.ticks(self.now + self.lag, missing) + self.lag }
    }

    /// Returns the step of a reservation that is due when `keep` units stay.
    pub(super) fn reserve(&self, need: i128, keep: i128, max_wait: i128) -> Came {
        let promised = self.level - need >= self.lowest && self.delay(need + keep) <= max_wait;
        self.takes(if promised { need } else { 0 })
    }

    pub(super) fn give(&self, units: i128) -> Option<u64> {
        let level = (self.level + units).min(self.tiny.capacity);
        let changes = level > self.level || self.adopted;
        (!self.reserved && changes).then(|| self.word(level))
    }

    pub(super) fn undo(&self, need: i128, before: i128, since: i128) -> Option<u64> {
        // A reading behind the stamp counts as the stamp's own tick.
        let then = self.now + self.lag;
        // Whole ticks. More of them than are time that passed fill a bucket.
        let passed = (then - since).clamp(0, self.tiny.terms.backward_from.into());
        let earned = self.tiny.earned(then, passed);
        self.give((need - (before + earned - self.tiny.capacity).max(0)).max(0))
    }
}

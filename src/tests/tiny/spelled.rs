//! Steps as they are read off the design, in plain integers.

use super::Either;
use crate::quota::layout::Widths;
use crate::word::terms::Terms;

/// A tiny bucket, and the questions to it: a tick earns `up / down` units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiny {
    pub(super) refill: Either,
    pub(super) terms: Terms,
    pub(super) up: i128,
    pub(super) down: i128,
    pub(super) capacity: i128,
    /// It earns nothing before this tick.
    pub(super) since: i128,
    /// Marks are known modulo this.
    pub(super) turn: i128,
}

impl Tiny {
    pub(super) fn range(&self) -> i128 {
        1 << self.terms.widths.stamp
    }

    pub(super) fn units(&self, tokens: i128) -> i128 {
        tokens << self.terms.widths.fraction
    }

    /// Tokens of the burst.
    pub(super) fn burst(&self) -> u64 {
        ((self.capacity - i128::from(self.terms.empty_level)) >> self.terms.widths.fraction) as u64
    }

    /// The units earned from the beginning until a tick.
    pub(super) fn until(&self, tick: i128) -> i128 {
        tick * self.up / self.down
    }

    pub(super) fn earned(&self, now: i128, passed: i128) -> i128 {
        self.until(now) - self.until((now - passed).max(self.since).min(now))
    }

    /// The least number of ticks after `now` that earn `units`.
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

    /// So short a range has windows of 2 ticks; after a change of quota the second is a 64th of it.
    pub(super) fn windows(&self) -> (i128, i128) {
        let changed = self.terms.widths.fixed_debt;
        (2, if changed { (self.range() + 63) / 64 } else { 2 })
    }
}

/// How a difference to the stamp is read.
pub(super) enum Difference {
    Passed(i128),
    Jitter(i128),
    Jump,
}

/// A step as it is read off the design: all that is rounded is spelled out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spelled<'a> {
    pub(super) tiny: &'a Tiny,
    pub(super) now: i128,
    pub(super) level: i128,
    pub(super) stamp: i128,
    pub(super) lag: i128,
    pub(super) adopted: bool,
    /// A word of no key, or never charged: nothing is given to it.
    pub(super) reserved: bool,
    /// The units that the limiter's own quota earns until it has 0 of them.
    pub(super) empty_at: i128,
    pub(super) empty_level: i128,
    pub(super) lowest: i128,
}

/// Granted, units taken, level, lag, and the word to commit.
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
        // The most debt: the chosen one, or one burst.
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

    pub(super) fn tokens_above(&self, empty_level: i128, most: i128) -> i128 {
        let token = self.tiny.units(1);
        ((self.level - empty_level).max(0) / token * token).min(most)
    }

    /// Ticks until all of `need` is earned.
    pub(super) fn delay(&self, need: i128) -> i128 {
        let missing = need + self.empty_level - self.level;
        if missing <= 0 { 0 } else { self.tiny.ticks(self.now + self.lag, missing) + self.lag }
    }

    pub(super) fn reserve(&self, need: i128, max_wait: i128) -> Came {
        let promised = self.level - need >= self.lowest && self.delay(need) <= max_wait;
        self.takes(if promised { need } else { 0 })
    }

    pub(super) fn give(&self, units: i128) -> Option<u64> {
        let level = (self.level + units).min(self.tiny.capacity);
        let changes = level > self.level || self.adopted;
        (!self.reserved && changes).then(|| self.word(level))
    }

    pub(super) fn undo(&self, need: i128, before: i128, since: i128) -> Option<u64> {
        // As it was at its stamp, if the reading is behind that.
        let then = self.now + self.lag;
        let earned = match self.tiny.difference(since, then) {
            Difference::Passed(passed) => self.tiny.earned(then, passed),
            _ => 0,
        };
        self.give((need - (before + earned - self.tiny.capacity).max(0)).max(0))
    }
}

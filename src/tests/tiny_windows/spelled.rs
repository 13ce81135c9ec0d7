//! Windows of tiny words, spelled out in plain integers.
//!
//! They share no code with the crate, only the widths of the fields and the length of a tick.

use crate::rule::counts::{CountWidths, Counting};
use crate::rule::layout::{Layout, RawQuota, Widths};
use crate::word::state::Reading;
use crate::word::terms::Terms;

/// Parts of a weighted window, and ticks of a window from the first use.
pub(super) const PARTS: i64 = 1 << 16;
const PART_NANOS: u64 = 150_000;

/// A tiny word: a tick is a (sub-)window, or a part of one that starts with its first use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiny {
    pub(super) widths: CountWidths,
    pub(super) limit: u64,
    pub(super) terms: Terms,
}

impl Tiny {
    pub(super) fn new(counting: Counting, count: u8, before: u8, limit: u64) -> Tiny {
        let counts = CountWidths { counting, count, before };
        let stamp = 64 - count * (before + 1);
        let widths = Widths { fraction: 0, scale: 0, stamp, fixed_debt: true, counts };
        let tokens = if counting == Counting::FirstUse { PARTS as u64 } else { 1 };
        let numbers = RawQuota { tokens, nanos: PARTS as u64 * PART_NANOS, burst: limit };
        Tiny { widths: counts, limit, terms: Terms::in_layout(numbers, Layout { widths, debt: 0 }) }
    }

    pub(super) fn is(&self, counting: Counting) -> bool {
        self.widths.counting == counting
    }

    pub(super) fn stamp_bits(&self) -> u8 {
        64 - self.widths.count * (self.widths.before + 1)
    }

    pub(super) fn range(&self) -> i64 {
        1 << self.stamp_bits()
    }

    pub(super) fn ages(&self) -> usize {
        usize::from(self.widths.before) + 1
    }

    /// Returns the nanoseconds of a tick.
    pub(super) fn tick_nanos(&self) -> u64 {
        if self.is(Counting::FirstUse) { PART_NANOS } else { PARTS as u64 * PART_NANOS }
    }

    /// Returns the most ticks behind the stamp that are jitter, and those beyond that are a clock
    /// that was set back.
    ///
    /// They are 4 s and 1 h in ticks, at most a 4096th and a 16th of the range, and at least 2.
    pub(super) fn behind(&self) -> (i64, i64) {
        let ticks = |seconds: u64, part: i64| {
            (seconds * 1_000_000_000).div_ceil(self.tick_nanos()).min(part as u64).max(2)
        };
        let part = |of: i64| (self.range() + of - 1) / of;
        (ticks(4, part(4_096)) as i64, ticks(3_600, part(16)) as i64)
    }

    pub(super) fn reading(&self, now: i64, part: i64) -> Reading {
        // A nanosecond into the part: the ticks of the crate may be early by less.
        let at = now as u64 * self.tick_nanos() + part as u64 * PART_NANOS + 1;
        Reading { refill: self.terms, at, tick: now as u64 }
    }

    /// Returns words with each sum of counts up to one over the limit, and with the largest counts.
    pub(super) fn words(&self) -> Vec<u64> {
        let count = u32::from(self.widths.count);
        let most = self.most() as u64;
        let mut fields = vec![vec![]];
        for _ in 0..self.ages() {
            let room = |fields: &[u64]| self.limit + 1 - fields.iter().sum::<u64>().min(self.limit + 1);
            fields = fields
                .iter()
                .flat_map(|fields: &Vec<u64>| (0..=room(fields)).map(move |n| [&fields[..], &[n]].concat()))
                .collect();
        }
        let each = self.is(Counting::Weighted);
        let alone = (0..self.ages()).map(|age| {
            let mut fields = vec![if each { most } else { 0 }; self.ages()];
            fields[age] = most - u64::from(each);
            fields
        });
        let levels = fields.into_iter().chain(alone);
        let packed = |fields: Vec<u64>| {
            let word = fields.iter().rev().fold(0_u128, |word, n| word << count | u128::from(*n));
            (word as u64) << self.stamp_bits()
        };
        let mut words: Vec<u64> = levels.map(packed).collect();
        words.sort_unstable();
        words.dedup();
        words
    }

    /// Returns the largest sum of all counts, or of the current count of a weighted window.
    pub(super) fn most(&self) -> i64 {
        let all_ones = (1_i64 << self.widths.count) - 1;
        if self.is(Counting::SubWindows) && self.widths.before > 0 { all_ones } else { all_ones - 1 }
    }
}

/// A window at a reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spelled<'a> {
    pub(super) tiny: &'a Tiny,
    pub(super) now: i64,
    pub(super) part: i64,
    /// The newest first.
    pub(super) counts: [i64; 32],
    /// The tick to commit, which is the start of a window from the first use.
    pub(super) stamp: i64,
    pub(super) adopted: bool,
    pub(super) reserved: bool,
}

impl<'a> Spelled<'a> {
    pub(super) fn at(tiny: &'a Tiny, word: u64, now: i64, part: i64) -> Spelled<'a> {
        let reserved = word >= u64::MAX - 2;
        let field = |age: usize| {
            let (low, width) = (u32::from(tiny.stamp_bits()), u32::from(tiny.widths.count));
            (word >> (low + width * age as u32) & ((1 << width) - 1)) as i64
        };
        let mut counts = [0; 32];
        let stamp = (word & (tiny.range() as u64 - 1)) as i64;
        let behind = (stamp - now).rem_euclid(tiny.range());
        let mut spelled = Spelled { tiny, now, part, counts, stamp: now, adopted: false, reserved };
        if reserved {
            return spelled;
        }
        let (jitter, jump) = tiny.behind();
        let passed = match behind {
            1.. if behind <= jitter => {
                spelled.stamp = now + behind;
                0
            }
            1.. if behind <= jitter + jump => {
                spelled.adopted = true;
                0
            }
            _ => (now - stamp).rem_euclid(tiny.range()),
        };
        if tiny.is(Counting::FirstUse) {
            // The window is over one tick later, as its first use may be late in its tick.
            let lasts = passed <= PARTS && field(0) > 0;
            if lasts || passed == 0 {
                spelled.counts[0] = field(0);
                spelled.stamp -= passed;
            }
            return spelled;
        }
        for then in 0..tiny.ages().saturating_sub(passed as usize) {
            counts[then + passed as usize] = field(then);
        }
        Spelled { counts, ..spelled }
    }

    /// Returns the same window some ticks later, or parts of a weighted one, if no caller takes.
    pub(super) fn later(&self, word: u64, by: i64) -> Spelled<'a> {
        if !self.tiny.is(Counting::Weighted) {
            return Spelled::at(self.tiny, word, self.now + by, 0);
        }
        let at = self.now * PARTS + self.part + by;
        Spelled::at(self.tiny, word, at / PARTS, at % PARTS)
    }

    /// Returns the tokens used, in 2^-16 tokens.
    pub(super) fn used(&self) -> i128 {
        let parts = |tokens: i64, parts: i64| i128::from(tokens) * i128::from(parts);
        if !self.tiny.is(Counting::Weighted) {
            return parts(self.counts.iter().sum(), PARTS);
        }
        // A reading behind the stamp is as early as can be in the stamp's window.
        let part = if self.stamp > self.now { 0 } else { self.part };
        parts(self.counts[0], PARTS) + parts(self.counts[1], PARTS - part)
    }

    pub(super) fn fits(&self, tokens: i64) -> bool {
        self.used() + i128::from(tokens * PARTS) <= i128::from(self.tiny.limit) * i128::from(PARTS)
    }

    pub(super) fn lag(&self) -> i64 {
        let length = if self.tiny.is(Counting::FirstUse) { PARTS + 1 } else { 0 };
        self.stamp - self.now + length
    }

    pub(super) fn level(&self) -> u64 {
        let count = u32::from(self.tiny.widths.count);
        (0..self.tiny.ages()).rev().fold(0, |level, age| (level << (count % 64)) | self.counts[age] as u64)
    }

    pub(super) fn word(&self) -> u64 {
        self.level() << self.tiny.stamp_bits() | self.stamp.rem_euclid(self.tiny.range()) as u64
    }

    /// Returns the window with other tokens in the current count.
    pub(super) fn with(mut self, tokens: i64) -> Spelled<'a> {
        self.counts[0] += tokens;
        self
    }

    /// Returns granted, tokens taken, level, lag, and the word to commit.
    pub(super) fn takes(&self, tokens: i64) -> (bool, u64, u64, u64, Option<u64>) {
        let next = self.with(tokens);
        let commits = (tokens > 0 || self.adopted).then(|| next.word());
        (tokens > 0, tokens as u64, next.level(), self.lag() as u64, commits)
    }

    /// Returns the word after tokens came back, the newest first.
    pub(super) fn refunded(mut self, tokens: i64) -> Option<u64> {
        let (before, mut left) = (self.counts, tokens);
        for count in &mut self.counts {
            let back = left.min(*count);
            *count -= back;
            left -= back;
        }
        self.commits(before)
    }

    /// Returns the word without the tokens of a take, which was counted in the window that had the
    /// stamp, or the end, `since`. `began`: it began the window, and was no use.
    pub(super) fn undone(mut self, tokens: i64, since: i64, began: bool) -> Option<u64> {
        let newest = self.now + self.lag();
        let before = self.counts;
        // Whole ticks: a take of a turn before has no count.
        if let Ok(age @ ..32) = usize::try_from(newest - since)
            && age < self.tiny.ages()
        {
            self.counts[age] -= self.counts[age].min(tokens);
            if began && self.tiny.is(Counting::FirstUse) {
                // The takes that stay began the window now, at the latest.
                self.stamp = self.stamp.max(self.now);
            }
        }
        self.commits(before)
    }

    pub(super) fn commits(&self, before: [i64; 32]) -> Option<u64> {
        (!self.reserved && (self.adopted || self.counts != before)).then(|| self.word())
    }
}

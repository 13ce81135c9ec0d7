//! The ideal token bucket, in exact integers, and how close the crate must stay to it.
//!
//! Levels are counted in `tokens * period in ns * 2^16`, in which a refill, a tick and a take are
//! all whole numbers: nothing here is ever rounded. The reference shares no code with the crate. It
//! follows the grants. It asks of every answer that it is the ideal bucket's or at most one tick
//! ahead of it. If the crate gained or lost anything by rounding, the two would drift apart; they
//! may not, ever.
//!
//! A clock that jumps back (further than jitter) moves the bucket to another point within a tick.
//! So each such jump widens the allowance by a tick until the bucket is full again. So does a
//! change of quota, at which the crate goes on from a whole tick.

pub mod plan;
pub mod steps;
pub mod strategies;
mod unit;
pub mod verbs;
pub mod windows;
pub mod worlds;

pub use unit::{Asked, Unit};

use std::ops::RangeInclusive;

use self::plan::Plan;

/// Fixed-point bits of a level.
const POINT: u32 = 16;
/// The longest wait, as nanoseconds have 64 bits. A debt under a faster quota may take longer under
/// a slow one.
const LONGEST: i128 = u64::MAX as i128;
/// The most tokens of a burst and a debt together.
const MOST_TOKENS: i128 = 1 << 41;

/// The crate's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the tokens were taken.
    pub granted: bool,
    /// The whole tokens that are left.
    pub remaining: u64,
    /// Nanoseconds, after a refusal only. `None`: never.
    pub retry_after: Option<u64>,
    /// Nanoseconds, after a grant only.
    pub reset_after: Option<u64>,
}

/// The ideal bucket.
#[derive(Clone, Debug)]
pub struct Ideal {
    rate: Rate,
    nanos: i128,
    burst: u64,
    unit: Unit,
    /// Tokens in hand; below 0 they are owed.
    level: i128,
    /// The moment of that level, and the tick committed with it. `None` until the first grant:
    /// full, or at the initial level.
    at: Option<Moment>,
    /// The initial tokens, if not full.
    initial: Option<u64>,
    windows: Windows,
    jumps: i128,
    changes: i128,
    /// The error of the level, beside the jumps: where keys move from plan to plan.
    slack: i128,
    /// The earned tokens up to the latest change of quota, if there was one.
    changed: Option<i128>,
    /// The plan of the current step, and the plan of the latest commit.
    plan: Option<Plan>,
    used: Option<Plan>,
    /// Whether plans were made.
    plans: bool,
    /// The most ticks in which a bucket fills under any plan, from its lowest level. Exact to
    /// within two.
    longest: i128,
    /// Commits so far.
    serial: u64,
}

/// The earnings by a moment.
#[derive(Clone, Copy, Debug)]
struct Rate {
    tokens: i128,
    /// The multiplier that counts ticks is rounded up to 64 bits. It earns, in a nanosecond, this
    /// much more than the quota, in parts of `2^(64 + shift)`.
    excess: i128,
    shift: u32,
    /// The earnings at the clock reading 0, as if this had always been the rate, and the tick then.
    earned: i128,
    tick: i128,
    /// Whether another rate has gone before.
    later: bool,
}

impl Rate {
    fn new(tokens: u64, nanos: i128, unit: Unit) -> Rate {
        let (earned, tick) = (i128::from(tokens) << unit.fraction, nanos << unit.scale);
        let shift = (0..).find(|shift| earned << (shift + 1) >= tick).unwrap();
        // Long division: a doubled rest is below twice the divisor.
        let doubled = |rest: i128| if rest * 2 >= tick { rest * 2 - tick } else { rest * 2 };
        let rest = (0..64 + shift).fold(earned % tick, |rest, _| doubled(rest));
        let excess = (tick - rest) % tick;
        Rate { tokens: i128::from(tokens), excess, shift, earned: 0, tick: 0, later: false }
    }
}

/// Ticks by which a reading is behind.
#[derive(Clone, Copy, Debug)]
struct Windows {
    /// The most ticks that are jitter.
    jitter: i128,
    /// The further ticks that are a clock that was set back.
    jump: i128,
}

/// Whether something may be true, and may be false, as far as can be told from outside.
#[derive(Clone, Copy, Debug)]
pub struct Maybe {
    /// Whether it may be true.
    pub yes: bool,
    /// Whether it may be false.
    pub no: bool,
}

/// A moment by the earnings until then, at which nothing is rounded, and by its tick.
#[derive(Clone, Copy, Debug)]
struct Moment {
    earned: i128,
    tick: i128,
}

/// The bucket at some reading of the clock.
struct Seen {
    level: i128,
    /// The moment of the level: the reading, or later if the reading is behind.
    at: Moment,
    /// Whether the error of the level grows by a tick.
    jumped: bool,
    /// Whether the clock was set back, and the bucket goes with it.
    adopted: bool,
}

/// The bucket at some reading, and the levels that the crate may have for it.
struct Bounds {
    level: i128,
    at: Moment,
    /// Whether a refusal commits, as the clock was set back.
    adopts: bool,
    /// The earnings from the reading to the moment.
    lag: i128,
    jumps: i128,
    least: i128,
    /// The bound `most` before it is capped, from which a wait counts.
    ahead: i128,
    most: i128,
}

impl Ideal {
    /// Returns a full bucket of `tokens` (under 2^44) every `nanos`.
    pub fn new(tokens: u64, nanos: u64, burst: u64) -> Ideal {
        let unit = Unit::choose(tokens, nanos, burst).expect("a quota that can be held");
        Ideal::in_unit(tokens, nanos, burst, unit)
    }

    /// Returns a bucket as [`new`](Ideal::new) does, counted in a given unit.
    pub fn in_unit(tokens: u64, nanos: u64, burst: u64, unit: Unit) -> Ideal {
        let nanos = i128::from(nanos);
        let ideal = Ideal {
            rate: Rate::new(tokens, nanos, unit),
            nanos,
            burst,
            unit,
            level: 0,
            at: None,
            initial: None,
            windows: Windows { jitter: 0, jump: 0 },
            jumps: 0,
            changes: 0,
            slack: 0,
            changed: None,
            plan: None,
            used: None,
            plans: false,
            longest: 0,
            serial: 0,
        };
        Ideal { windows: ideal.windows(), ..ideal }
    }

    fn units(&self, n: u64) -> i128 {
        (i128::from(n) * self.nanos) << POINT
    }

    fn capacity(&self) -> i128 {
        self.units(self.burst())
    }

    fn burst(&self) -> u64 {
        self.plan.map_or(self.burst, |plan| plan.burst)
    }

    /// Returns the earnings of one tick.
    pub fn tick(&self) -> i128 {
        (self.nanos << (POINT + self.unit.scale)) >> self.unit.fraction
    }

    fn moment(&self, now: u64) -> Moment {
        Moment { earned: self.earned(now), tick: self.rate.tick + self.ticks(now) }
    }

    fn earned(&self, now: u64) -> i128 {
        self.rate.earned + ((i128::from(now) * self.rate.tokens) << POINT)
    }

    /// Returns the whole ticks until a moment, as section 2 of the design counts them. Only the
    /// windows need them: a reading at the very end of a tick may count as the next.
    fn ticks(&self, now: u64) -> i128 {
        let now = i128::from(now);
        let Rate { tokens, excess, shift, .. } = self.rate;
        let (high, low) = (excess >> 64, excess & i128::from(u64::MAX));
        let excess = (now * high + ((now * low) >> 64)) >> shift;
        // An unsigned division is cheaper.
        let earned = (((now * tokens) << self.unit.fraction) + excess).unsigned_abs();
        (earned / (self.nanos << self.unit.scale).unsigned_abs()) as i128
    }

    /// Returns the windows. After a faster rate its jitter is many ticks, so the whole spare range
    /// is a clock that was set back.
    fn windows(&self) -> Windows {
        let jump = if self.rate.later { self.share(64) } else { self.window(3_600_000_000_000, 64) };
        Windows { jitter: self.window(4_000_000_000, 4096), jump }
    }

    /// Returns a span of time in ticks, rounded up, but at most `share` of the range and at least
    /// 2.
    fn window(&self, nanos: i128, share: i128) -> i128 {
        self.ticks_up(nanos).min(self.share(share)).max(2)
    }

    /// Returns a part of the range in `parts`, rounded up.
    fn share(&self, parts: i128) -> i128 {
        ((1 << self.unit.stamp) + parts - 1) / parts
    }

    fn ticks_up(&self, nanos: i128) -> i128 {
        let earned = (nanos * self.rate.tokens) << self.unit.fraction;
        let tick = self.nanos << self.unit.scale;
        (earned + tick - 1) / tick
    }

    /// Returns the nanoseconds behind that are jitter, whatever the rounding.
    pub fn jitter(&self) -> u64 {
        let ticks = self.windows.jitter - 1;
        u64::try_from((ticks * self.tick() / (self.rate.tokens << POINT)).min(1 << 62)).unwrap()
    }

    /// Returns the level at a reading of the clock.
    fn seen(&self, now: u64) -> Seen {
        let seen = self.uncapped(now);
        Seen { level: seen.level.min(self.capacity()), ..seen }
    }

    fn uncapped(&self, now: u64) -> Seen {
        let now = self.moment(now);
        let stands = Seen { level: self.level, at: now, jumped: false, adopted: false };
        let Some(at) = self.at else {
            return Seen { level: self.initial.map_or(self.capacity(), |n| self.units(n)), ..stands };
        };
        let Windows { jitter, jump } = self.windows;
        let passed = now.tick - at.tick;
        let shown = self.shown(passed);
        let behind = self.range() - shown;
        if behind <= jitter {
            if behind == -passed {
                return Seen { at, ..stands };
            }
            // The stamp is the same, but of another turn.
            let at = Moment { earned: now.earned + behind * self.tick(), tick: now.tick + behind };
            return Seen { at, jumped: true, ..stands };
        }
        if behind <= jitter + jump {
            return Seen { jumped: true, adopted: true, ..stands };
        }
        if shown == passed {
            // A reading that is behind by less than a tick earns nothing.
            let earned = now.earned.max(at.earned);
            let level = self.level + self.came(at.earned, earned);
            return Seen { level, at: Moment { earned, ..now }, ..stands };
        }
        // The stamp wrapped, or the clock went back by more than the windows.
        let earned = shown.checked_mul(self.tick()).unwrap_or(i128::MAX / 4);
        let from = now.earned.saturating_sub(earned);
        Seen { level: self.level + self.came(from, now.earned), jumped: true, ..stands }
    }

    /// Returns the ticks in which the stamp wraps.
    fn range(&self) -> i128 {
        1 << self.unit.stamp
    }

    /// Returns a difference of ticks as the word has it: modulo the range.
    fn shown(&self, ticks: i128) -> i128 {
        ticks & (self.range() - 1)
    }

    fn bounds(&self, now: u64) -> Bounds {
        let Seen { level, at, jumped, adopted } = self.seen(now);
        let jumps = self.jumps + i128::from(jumped);
        // The crate's ticks are counted by a multiplier that is rounded up: by less than a quarter
        // of a tick in 2^62 ns.
        let excess = (if now >> 48 == 0 { 1 } else { self.tick() / 4 }) * (1 + self.changes);
        // A tick that is worth several tokens comes whole: late by less than one tick.
        let late = if self.unit.scale > 0 { self.tick() } else { 0 };
        let (grain, loose) = (self.grain(), self.loose() + self.slack + self.moving());
        let ahead = level + (jumps + 1) * grain + self.times(excess) + loose;
        Bounds {
            level,
            at,
            adopts: adopted && self.at.is_some(),
            lag: at.earned - self.earned(now) + self.early(at.earned),
            jumps,
            least: level - jumps * grain - late - loose,
            ahead,
            most: ahead.min(self.capacity()),
        }
    }

    /// Follows the crate's commit of `level` at `seen`.
    fn commit(&mut self, seen: &Bounds, level: i128) {
        self.at = Some(seen.at);
        self.level = level;
        self.jumps = seen.jumps;
        self.slack += self.moving();
        if seen.least >= self.capacity() {
            (self.jumps, self.changes, self.slack) = (0, 0, 0);
        }
        self.used = self.plan;
        self.serial += 1;
    }

    /// Compares an answer with the ideal, and follows it. The error names the fault of the answer.
    pub fn take(&mut self, now: u64, n: u64, answer: Answer) -> Result<(), String> {
        let seen = self.bounds(now);
        let need = self.units(n);
        let left = if answer.granted { need } else { 0 };
        let wrong = |what: &str| {
            let level = seen.level;
            Err(format!("{what}: at {now} ns, n = {n}, {answer:?}, ideal {level} of {need}, {self:?}"))
        };

        if n > self.burst() && (answer.granted || answer.retry_after.is_some()) {
            return wrong("more than the burst must be refused for ever");
        }
        if answer.granted && n > 0 && seen.most < need {
            return wrong("the law is broken");
        }
        if !answer.granted && n <= self.burst() && (n == 0 || seen.least >= need) {
            return wrong("the ideal bucket grants this");
        }
        if let Some(what) = self.misstates(&seen, left, answer.remaining, answer.reset_after) {
            return wrong(what);
        }
        if !answer.granted && n <= self.burst() {
            let Some(retry) = answer.retry_after else { return wrong("it is not refused for ever") };
            if !self.is_due(need, seen.ahead..=seen.least, seen.lag, retry) {
                return wrong("retry_after is not when it is due");
            }
        }

        // A refusal commits an adoption, for any amount but 0, which does not look twice.
        if n > 0 && (answer.granted || seen.adopts) {
            self.commit(&seen, seen.level - left);
        }
        Ok(())
    }

    /// Returns the fault of an answer about the bucket after `left` was taken.
    fn misstates(
        &self,
        seen: &Bounds,
        left: i128,
        remaining: u64,
        reset_after: Option<u64>,
    ) -> Option<&'static str> {
        let Bounds { least, most, ahead, lag, .. } = *seen;
        if !self.are_whole(remaining, least - left, most - left) {
            return Some("remaining is not what remains");
        }
        let full = |reset| self.is_due(self.capacity(), ahead - left..=least - left, lag, reset);
        (!reset_after.is_none_or(full)).then_some("reset_after is not when it is full")
    }

    /// Returns whether a level between two has `n` whole tokens. It multiplies: a division of 128
    /// bits takes many times as long.
    fn are_whole(&self, n: u64, least: i128, most: i128) -> bool {
        let (one, n) = (self.units(1), i128::from(n));
        n <= MOST_TOKENS && (n == 0 || n * one <= most) && (n + 1) * one > least
    }

    /// Returns whether `nanos` is [how long](Ideal::wait) a level between two takes to `goal`, the
    /// higher level first. It may lack the nanosecond of rounding up.
    fn is_due(&self, goal: i128, levels: RangeInclusive<i128>, lag: i128, nanos: u64) -> bool {
        // A stamp is known modulo its range: after a step back by turns of it no time is told.
        if lag >= self.range() * self.tick() {
            return true;
        }
        let (rate, nanos) = (self.rate.tokens << POINT, i128::from(nanos));
        let (ahead, least) = levels.into_inner();
        let not_early =
            goal <= ahead || nanos == LONGEST || (nanos + 1) * rate >= self.over(goal - ahead) + lag;
        let not_late = nanos == 0 || goal > least && (nanos - 1) * rate < self.over(goal - least) + lag;
        not_early && not_late
    }

    /// Returns the nanoseconds until `level` has become `goal`. The level is reached only when
    /// `lag` more is earned.
    fn wait(&self, goal: i128, level: i128, lag: i128) -> i128 {
        if goal <= level {
            return 0;
        }
        let rate = self.rate.tokens << POINT;
        ((self.over(goal - level) + lag + rate - 1) / rate).min(LONGEST)
    }
}

trait Span {
    fn contains_to(self, late: i128, nanos: u64) -> bool;
}

impl Span for i128 {
    /// Returns whether `nanos` is from `self`, less the nanosecond of rounding up, to `late`.
    fn contains_to(self, late: i128, nanos: u64) -> bool {
        (self - 1..=late).contains(&i128::from(nanos))
    }
}

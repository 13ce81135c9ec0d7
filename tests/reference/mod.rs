//! The ideal token bucket, in exact integers, and how close the crate must stay to it.
//!
//! Levels are counted in `tokens * period in ns * 2^16`, in which a refill, a tick and a take are all whole
//! numbers: nothing here is ever rounded. The reference shares no code with the crate. It follows what was
//! granted, and asks of every answer that it is the ideal bucket's or at most one tick ahead of it. If the
//! crate gained or lost anything by rounding, the two would drift apart; they may not, ever.
//!
//! A clock that jumps back (further than jitter) moves the bucket to another place within a tick, so each
//! such jump widens the allowance by a tick until the bucket is full again.

/// Fixed-point bits of a level.
const POINT: u32 = 16;

/// The units of section 3 of `docs/design.md`, chosen by its rules spelled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// A token is 2^fraction units.
    pub(crate) fraction: u32,
    /// A tick earns 2^scale units.
    pub(crate) scale: u32,
    /// Bits of the stamp.
    pub(crate) stamp: u32,
}

impl Unit {
    pub(crate) fn choose(tokens: u64, nanos: u64, burst: u64) -> Option<Unit> {
        let whole = u64::BITS - (burst + 1).leading_zeros();
        let holds = |unit: &Unit, least: u32| {
            unit.range_is_at_least(tokens, nanos, least)
                && (unit.range_is_fills(burst) || unit.range_is_at_least(tokens, nanos, 62))
        };
        let fine = |least| {
            (0..=16)
                .rev()
                .map(|fraction| Unit { fraction, scale: 0, stamp: 64 - whole - fraction })
                .find(|unit| holds(unit, least))
        };
        let coarse = |least, parts: u64| {
            (1..40)
                .map(|scale| Unit { fraction: 0, scale, stamp: 64 - whole })
                .filter(|unit| parts << unit.scale <= burst)
                .find(|unit| holds(unit, least))
        };
        fine(56)
            .or_else(|| fine(50))
            .or_else(|| coarse(50, 256))
            .or_else(|| coarse(46, 128))
            .or_else(|| fine(46))
    }

    /// `2^(stamp + scale) / 2^fraction` token times are at least 2^least ns.
    fn range_is_at_least(&self, tokens: u64, nanos: u64, least: u32) -> bool {
        let range = (u128::from(nanos)).checked_mul(1 << (self.stamp + self.scale));
        let wanted = (1_u128 << (least + self.fraction)).checked_mul(u128::from(tokens));
        match (range, wanted) {
            (Some(range), Some(wanted)) => range >= wanted,
            (range, _) => range.is_none(),
        }
    }

    fn range_is_fills(&self, burst: u64) -> bool {
        1_u128 << (self.stamp + self.scale) >= (u128::from(burst) * 64) << self.fraction
    }
}

/// What the crate answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) granted: bool,
    pub(crate) remaining: u64,
    /// Nanoseconds; of a refusal only. `None`: never.
    pub(crate) retry_after: Option<u64>,
    /// Nanoseconds; of a grant only.
    pub(crate) reset_after: Option<u64>,
}

/// The ideal bucket.
#[derive(Clone, Debug)]
pub(crate) struct Ideal {
    tokens: i128,
    nanos: i128,
    burst: u64,
    unit: Unit,
    /// The multiplier that counts ticks is rounded up to 64 bits: it earns, in a nanosecond, this much more than
    /// the quota, in parts of `2^(64 + shift)`.
    excess: i128,
    shift: u32,
    level: i128,
    /// When the level was that, and the tick committed with it; `None` until the first grant: full.
    at: Option<Moment>,
    jumps: i128,
}

/// A moment by what was earned until then, at which nothing is rounded, and by its tick.
#[derive(Clone, Copy, Debug)]
struct Moment {
    earned: i128,
    tick: i128,
}

/// The bucket at some reading of the clock.
struct Seen {
    level: i128,
    /// The moment the level is of: the reading, or later if the reading is behind.
    at: Moment,
    /// It is known to within one tick more than before.
    jumped: bool,
    /// The clock was set back, and the bucket goes with it.
    adopted: bool,
}

impl Ideal {
    /// A full bucket of `tokens` (under 2^44) every `nanos`.
    pub(crate) fn new(tokens: u64, nanos: u64, burst: u64) -> Ideal {
        let unit = Unit::choose(tokens, nanos, burst).expect("a quota that can be held");
        let (earned, tick) = (i128::from(tokens) << unit.fraction, i128::from(nanos) << unit.scale);
        let shift = (0..).find(|shift| earned << (shift + 1) >= tick).unwrap();
        let rest = (0..64 + shift).fold(earned % tick, |rest, _| rest * 2 % tick);
        let mut ideal = Ideal {
            tokens: i128::from(tokens),
            nanos: i128::from(nanos),
            burst,
            unit,
            excess: (tick - rest) % tick,
            shift,
            level: 0,
            at: None,
            jumps: 0,
        };
        ideal.level = ideal.capacity();
        ideal
    }

    fn units(&self, n: u64) -> i128 {
        (i128::from(n) * self.nanos) << POINT
    }

    fn capacity(&self) -> i128 {
        self.units(self.burst)
    }

    /// What one tick earns.
    pub(crate) fn tick(&self) -> i128 {
        (self.nanos << (POINT + self.unit.scale)) >> self.unit.fraction
    }

    fn moment(&self, now: u64) -> Moment {
        Moment { earned: (i128::from(now) * self.tokens) << POINT, tick: self.ticks(now) }
    }

    /// The whole ticks until a moment, as section 2 of the design counts them. Only the windows need them: a
    /// reading at the very end of a tick may count as the next.
    fn ticks(&self, now: u64) -> i128 {
        let now = i128::from(now);
        let (high, low) = (self.excess >> 64, self.excess & i128::from(u64::MAX));
        let excess = (now * high + ((now * low) >> 64)) >> self.shift;
        (((now * self.tokens) << self.unit.fraction) + excess) / (self.nanos << self.unit.scale)
    }

    /// A span of time in ticks, rounded up, but at most `share` of the range and at least 2.
    fn window(&self, nanos: i128, share: i128) -> i128 {
        let ticks = self.ticks_up(nanos).min(((1 << self.unit.stamp) + share - 1) / share);
        ticks.max(2)
    }

    fn ticks_up(&self, nanos: i128) -> i128 {
        let earned = (nanos * self.tokens) << self.unit.fraction;
        let tick = self.nanos << self.unit.scale;
        (earned + tick - 1) / tick
    }

    /// Nanoseconds that are jitter when the clock is behind by them, whatever the rounding.
    pub(crate) fn jitter(&self) -> u64 {
        let ticks = self.window(4_000_000_000, 4096) - 1;
        u64::try_from((ticks * self.tick() / (self.tokens << POINT)).min(1 << 62)).unwrap()
    }

    /// The level at a reading of the clock.
    fn seen(&self, now: u64) -> Seen {
        let now = self.moment(now);
        let stands = Seen { level: self.level, at: now, jumped: false, adopted: false };
        let Some(at) = self.at else { return stands };
        let range = 1_i128 << self.unit.stamp;
        let jitter = self.window(4_000_000_000, 4096);
        let jump = self.window(3_600_000_000_000, 64);

        let passed = now.tick - at.tick;
        let shown = passed.rem_euclid(range);
        let behind = range - shown;
        if behind <= jitter {
            if behind == -passed {
                return Seen { at, ..stands };
            }
            // The same stamp, but of another turn.
            let at = Moment { earned: now.earned + behind * self.tick(), tick: now.tick + behind };
            return Seen { at, jumped: true, ..stands };
        }
        if behind <= jitter + jump {
            return Seen { jumped: true, adopted: true, ..stands };
        }
        if shown == passed {
            // A reading that is behind by less than a tick earns nothing.
            let earned = now.earned.max(at.earned);
            let level = (self.level + earned - at.earned).min(self.capacity());
            return Seen { level, at: Moment { earned, ..now }, ..stands };
        }
        // The stamp wrapped, or the clock went back by more than the windows.
        let earned = shown.checked_mul(self.tick()).unwrap_or(i128::MAX / 4);
        Seen { level: (self.level + earned).min(self.capacity()), jumped: true, ..stands }
    }

    /// Holds an answer against the ideal, and follows it. The error says what is wrong with it.
    pub(crate) fn take(&mut self, now: u64, n: u64, answer: Answer) -> Result<(), String> {
        let Seen { level, at, jumped, adopted } = self.seen(now);
        let lag = at.earned - self.moment(now).earned;
        let jumps = self.jumps + i128::from(jumped);
        // The crate's ticks are counted by a multiplier that is rounded up: by less than a quarter of a tick
        // in 2^62 ns.
        let excess = if now >> 48 == 0 { 1 } else { self.tick() / 4 };
        // A tick that is worth several tokens comes whole: late by less than one.
        let late = if self.unit.scale > 0 { self.tick() } else { 0 };
        let least = level - jumps * self.tick() - late;
        let ahead = level + (jumps + 1) * self.tick() + excess;
        let most = ahead.min(self.capacity());
        let need = self.units(n);
        let left = if answer.granted { need } else { 0 };
        let wrong = |what: &str| {
            Err(format!("{what}: at {now} ns, n = {n}, {answer:?}, ideal {level} of {need}, {self:?}"))
        };

        if n > self.burst && (answer.granted || answer.retry_after.is_some()) {
            return wrong("more than the burst must be refused for ever");
        }
        if answer.granted && most < need {
            return wrong("the law is broken");
        }
        if !answer.granted && n <= self.burst && least >= need {
            return wrong("the ideal bucket grants this");
        }
        let whole = |level: i128| u64::try_from(level.max(0) / self.units(1)).unwrap();
        if !(whole(least - left)..=whole(most - left)).contains(&answer.remaining) {
            return wrong("remaining is not what remains");
        }
        if !answer.granted && n <= self.burst {
            let Some(retry) = answer.retry_after else { return wrong("it is not refused for ever") };
            if !self.wait(need, ahead, lag).contains_to(self.wait(need, least, lag), retry) {
                return wrong("retry_after is not when it is due");
            }
        }
        if let Some(reset) = answer.reset_after {
            let (early, late) = (ahead - left, least - left);
            if !self
                .wait(self.capacity(), early, lag)
                .contains_to(self.wait(self.capacity(), late, lag), reset)
            {
                return wrong("reset_after is not when it is full");
            }
        }

        // Only a refusal for want of tokens commits an adoption; n = 0 and n over the burst never look twice.
        if n > 0 && n <= self.burst && (answer.granted || (adopted && self.at.is_some())) {
            self.at = Some(at);
            self.level = level - left;
            self.jumps = if least >= self.capacity() { 0 } else { jumps };
        }
        Ok(())
    }

    /// Nanoseconds until `level` has become `goal`, if it is the level only when `lag` more is earned.
    fn wait(&self, goal: i128, level: i128, lag: i128) -> i128 {
        if goal <= level {
            return 0;
        }
        let rate = self.tokens << POINT;
        (goal - level + lag + rate - 1) / rate
    }
}

trait Span {
    fn contains_to(self, late: i128, nanos: u64) -> bool;
}

impl Span for i128 {
    /// Whether `nanos` is from `self` (less the nanosecond it was rounded up to) to `late`.
    fn contains_to(self, late: i128, nanos: u64) -> bool {
        (self - 1..=late).contains(&i128::from(nanos))
    }
}

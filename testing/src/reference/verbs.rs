//! The other verbs of a bucket, on the ideal.

use super::{Answer, Bounds, Ideal, MOST_TOKENS, Maybe, Moment, Rate, Span, Windows};

/// The crate's answer to a reservation.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// The answer about the bucket.
    pub answer: Answer,
    /// Nanoseconds, if the reservation was made.
    pub delay: Option<u64>,
    /// Whether it was refused for the debt, not for want of patience.
    pub indebted: bool,
}

/// A take, and the ideal bucket after it.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    n: u64,
    before: i128,
    since: Moment,
    mark: i128,
    jumps: i128,
    slack: i128,
    /// The commit of the take.
    serial: u64,
}

impl Ideal {
    /// Starts with `tokens` tokens, at the first use or at a reading of the clock.
    pub fn starting_with(mut self, tokens: u64, at: Option<u64>) -> Ideal {
        self.initial = Some(tokens);
        if let Some(now) = at {
            self.level = self.units(tokens.min(self.burst()));
            (self.at, self.used) = (Some(self.moment(now)), self.plan);
        }
        self
    }

    /// Returns the largest debt.
    fn bound(&self) -> i128 {
        self.units(if self.unit.fixed { self.unit.debt } else { self.unit.debt.min(self.burst()) })
    }

    fn complaint<T>(&self, what: &str, step: impl FnOnce() -> String, seen: &Bounds) -> Result<T, String> {
        let step = step();
        Err(format!("{what}: {step}, ideal {} of {} a token, {self:?}", seen.level, self.units(1)))
    }

    /// Returns the slot that `n` tokens would have, if they were taken now.
    pub fn slot(&self, now: u64, n: u64) -> Slot {
        let seen = self.bounds(now);
        Slot {
            n,
            before: seen.level,
            since: seen.at,
            mark: seen.at.earned - seen.level + self.units(n),
            jumps: seen.jumps,
            slack: self.slack + self.loose(),
            // A take of 0 tokens is not committed.
            serial: if n > 0 { self.serial + 1 } else { u64::MAX },
        }
    }

    /// Returns whether a level between two has `taken` whole tokens, or at least those where all
    /// `n` were taken.
    fn are_up_to(&self, n: u64, taken: u64, least: i128, most: i128) -> bool {
        match taken == n {
            true => n == 0 || i128::from(n) <= MOST_TOKENS && self.units(n) <= most,
            false => taken < n && self.are_whole(taken, least, most),
        }
    }

    /// Takes `n` tokens if `kept` tokens stay.
    pub fn take_above(&mut self, now: u64, n: u64, kept: u64, answer: Answer) -> Result<(), String> {
        if n == 0 {
            return self.take(now, n, answer);
        }
        let seen = self.bounds(now);
        let step = || format!("{n} above {kept} at {now} ns, {answer:?}");
        let need = self.units(n + kept);
        let left = if answer.granted { self.units(n) } else { 0 };
        if n + kept > self.burst() && (answer.granted || answer.retry_after.is_some()) {
            return self.complaint("these and the kept ones are never there", step, &seen);
        }
        if answer.granted && seen.most < need {
            return self.complaint("a kept token was taken", step, &seen);
        }
        if !answer.granted && n + kept <= self.burst() && seen.least >= need {
            return self.complaint("the kept tokens stay", step, &seen);
        }
        if let Some(what) = self.misstates(&seen, left, answer.remaining, answer.reset_after) {
            return self.complaint(what, step, &seen);
        }
        if !answer.granted && n + kept <= self.burst() {
            let due = |retry| self.is_due(need, seen.ahead..=seen.least, seen.lag, retry);
            if !answer.retry_after.is_some_and(due) {
                return self.complaint("retry_after is not when the kept tokens stay", step, &seen);
            }
        }
        if answer.granted || seen.adopts {
            self.commit(&seen, seen.level - left);
        }
        Ok(())
    }

    /// Takes the tokens that are there above `kept`, up to `n`. The crate took `taken`.
    pub fn take_up_to(
        &mut self,
        now: u64,
        (n, kept): (u64, u64),
        taken: u64,
        answer: Answer,
    ) -> Result<(), String> {
        let seen = self.bounds(now);
        let step = || format!("up to {n} above {kept} at {now} ns, {taken} taken, {answer:?}");
        let floor = self.units(kept);
        if !self.are_up_to(n, taken, seen.least - floor, seen.most - floor) {
            return self.complaint("it is not what is there", step, &seen);
        }
        if answer.granted != (taken > 0 || n == 0) {
            return self.complaint("none is a refusal, some are a grant", step, &seen);
        }
        let left = self.units(taken);
        if let Some(what) = self.misstates(&seen, left, answer.remaining, answer.reset_after) {
            return self.complaint(what, step, &seen);
        }
        if !answer.granted {
            let one = self.units(1 + kept);
            let due = |retry| self.is_due(one, seen.ahead..=seen.least, seen.lag, retry);
            if answer.retry_after.map_or(kept < self.burst(), |retry| kept >= self.burst() || !due(retry)) {
                return self.complaint("retry_after is not when one is there", step, &seen);
            }
        }
        if taken > 0 || (n > 0 && seen.adopts) {
            self.commit(&seen, seen.level - left);
        }
        Ok(())
    }

    /// Takes `n` tokens that are there or will be above `kept`, within `patience` nanoseconds
    /// (`None`: at any time).
    pub fn reserve(
        &mut self,
        now: u64,
        (n, kept): (u64, u64),
        patience: Option<u64>,
        promise: Promise,
    ) -> Result<(), String> {
        let seen = self.bounds(now);
        let Promise { answer, delay, indebted } = promise;
        let step = || format!("{n} reserved above {kept} at {now} ns, patience {patience:?}, {promise:?}");
        if n + kept > self.burst() || n == 0 {
            if delay.unwrap_or(0) > 0 {
                return self.complaint("nothing is due at once", step, &seen);
            }
            return self.take_above(now, n, kept, answer);
        }
        let need = self.units(n + kept);
        let floor = self.units(n) - self.bound();
        let patience = patience.map_or(i128::MAX, i128::from);
        let wait = |goal, level| self.wait(goal, level, seen.lag);
        let left = if answer.granted { self.units(n) } else { 0 };
        if answer.granted {
            if seen.most < floor {
                return self.complaint("the debt is over its bound", step, &seen);
            }
            let (early, late) = (wait(need, seen.ahead), wait(need, seen.least));
            if !delay.is_some_and(|delay| early.contains_to(late, delay) && i128::from(delay) <= patience) {
                return self.complaint("the delay is not until it is earned", step, &seen);
            }
        } else {
            if seen.least >= floor && wait(need, seen.least) <= patience {
                return self.complaint("the ideal bucket promises this", step, &seen);
            }
            if indebted && seen.least >= floor || !indebted && seen.most < floor {
                return self.complaint("it is for the other reason", step, &seen);
            }
            let due = |level| wait(floor, level).max(wait(need, level).saturating_sub(patience));
            if !answer.retry_after.is_some_and(|retry| due(seen.ahead).contains_to(due(seen.least), retry)) {
                return self.complaint("retry_after is not when it can be made", step, &seen);
            }
        }
        if let Some(what) = self.misstates(&seen, left, answer.remaining, answer.reset_after) {
            return self.complaint(what, step, &seen);
        }
        if answer.granted || seen.adopts {
            self.commit(&seen, seen.level - left);
        }
        Ok(())
    }

    /// Takes up to `n` tokens on credit, within the bound of the debt. The crate took `taken`.
    pub fn charge_up_to(&mut self, now: u64, n: u64, taken: u64) -> Result<(), String> {
        let seen = self.bounds(now);
        if !self.are_up_to(n, taken, seen.least + self.bound(), seen.most + self.bound()) {
            let step = || format!("{n} charged at {now} ns, {taken} taken");
            return self.complaint("it is not what may be owed", step, &seen);
        }
        if taken > 0 || seen.adopts {
            self.commit(&seen, seen.level - self.units(taken));
        }
        Ok(())
    }

    /// Gives `n` tokens back. A full bucket takes nothing, not even the time. Within a tick of
    /// full, only the word tells whether it was `committed`.
    pub fn refund(&mut self, now: u64, n: u64, committed: Option<bool>) -> Result<(), String> {
        self.give(now, self.units(n), 0, committed)
    }

    /// Returns whether a refund is committed.
    pub fn refunds(&self, now: u64, n: u64) -> Maybe {
        match self.at {
            // The initial level is decided at the first use.
            None => Maybe { yes: false, no: true },
            Some(_) => self.gives(&self.bounds(now), self.units(n), 0),
        }
    }

    /// Returns whether giving `more`, known to within `ticks` ticks, is committed.
    fn gives(&self, seen: &Bounds, more: i128, ticks: i128) -> Maybe {
        let allowed = ticks * self.tick();
        // The crate counts in whole units: less than one is nothing.
        let surely = seen.adopts || (seen.ahead < self.capacity() && more - allowed >= self.tick());
        let surely_not = !seen.adopts && (seen.least >= self.capacity() || more + allowed <= 0);
        Maybe { yes: !surely_not, no: !surely }
    }

    /// Gives `more` back, known to within `ticks` ticks.
    fn give(&mut self, now: u64, more: i128, ticks: i128, committed: Option<bool>) -> Result<(), String> {
        if self.at.is_none() {
            // The bucket was never used: its initial level is decided at the first use.
            let none = committed != Some(true);
            return if none { Ok(()) } else { Err("a bucket that was never used was given to".to_owned()) };
        }
        let seen = self.bounds(now);
        let (room, may) = (self.capacity() - seen.level, self.gives(&seen, more, ticks));
        let commits = committed.unwrap_or(seen.adopts || (room > 0 && more > 0));
        if !(if commits { may.yes } else { may.no }) {
            let step = || format!("{more} given at {now} ns, {committed:?}");
            return self.complaint("it was given, and it was not", step, &seen);
        }
        if commits {
            self.commit(&seen, seen.level + more.min(room));
            self.jumps += ticks;
        }
        Ok(())
    }

    /// Drops a reservation: all of it comes back if it is the last in line. `back` tells, if it is
    /// known, whether that was found, and whether it was committed.
    pub fn give_back(&mut self, now: u64, slot: &Slot, back: Option<(bool, bool)>) -> Result<bool, String> {
        if self.at.is_none() {
            return Ok(false);
        }
        let may = self.is_last(slot);
        let last = back.map_or_else(|| self.moved(slot) == 0, |(last, _)| last);
        let seen = self.bounds(now);
        let step = || format!("{slot:?} dropped at {now} ns, {back:?}");
        if !last && !may.no {
            return self.complaint("nobody has taken since", step, &seen);
        }
        if last && !may.yes {
            return self.complaint("it was not the last in line", step, &seen);
        }
        if last {
            self.refund(now, slot.n, back.map(|(_, committed)| committed))?;
        } else if back.is_some_and(|(_, committed)| committed) {
            return self.complaint("a caller that is not the last changes nothing", step, &seen);
        }
        Ok(last)
    }

    /// Returns how far the bucket has moved since the slot was made. The crate knows that modulo
    /// the stamp's range: after a wrap it may see a time that is long past.
    fn moved(&self, slot: &Slot) -> i128 {
        let earned = self.at.map_or(0, |at| at.earned);
        let turn = self.tick() << self.unit.stamp;
        (earned - self.level - slot.mark + turn / 2).rem_euclid(turn) - turn / 2
    }

    /// Returns whether a reservation is the last in line.
    pub fn is_last(&self, slot: &Slot) -> Maybe {
        let allowed = (self.jumps + slot.jumps + 3) * self.tick();
        // A limiter with plans compares the whole word.
        let same = !self.plans || self.at.is_some_and(|at| self.shown(at.tick - slot.since.tick) == 0);
        Maybe {
            yes: same && self.at.is_some() && self.moved(slot).abs() <= allowed + self.slack + slot.slack,
            no: self.at.is_none() || self.serial != slot.serial,
        }
    }

    /// Returns whether an earlier reading decides: it is later than the stamp, or jitter, and at
    /// most a quarter of the range before a reading of now, which is neither before the stamp.
    /// Within the jitter after the stamp it may decide without a new reading.
    pub fn admits(&self, then: u64, now: u64) -> Maybe {
        let Some(at) = self.at else { return Maybe { yes: false, no: true } };
        let (then, now) = (self.moment(then).tick, self.moment(now).tick);
        let jitter = self.windows.jitter;
        let follows = |tick| {
            let passed = self.shown(tick - at.tick);
            passed < self.range() / 2 || self.range() - passed <= jitter
        };
        let recent = (-jitter..self.range() / 4).contains(&(now - then));
        let decides = recent && follows(then) && follows(now);
        let near = self.shown(then - at.tick) <= jitter;
        Maybe { yes: decides || near, no: !decides }
    }

    /// Fixes the level and the stamp at this reading, whatever the step asks. A key that gets a
    /// slot of a table starts so.
    pub fn begin(&mut self, now: u64) {
        if self.at.is_some() {
            let seen = self.bounds(now);
            self.commit(&seen, seen.level);
        }
    }

    /// Returns whether the bucket has been full for 2 s, so that an evictor may take it.
    pub fn is_idle(&self, now: u64) -> Maybe {
        // A bucket that was never used has lost nothing.
        let Some(at) = self.at else { return Maybe { yes: true, no: false } };
        let passed = self.shown(self.moment(now).tick - at.tick);
        let (tick, Windows { jitter, jump }) = (self.tick(), self.windows);
        let back = self.range() - passed <= jitter + jump;
        // It is full to within the ticks by which the level is known, in whole ticks and one more.
        let known = self.jumps + self.changes + 2;
        let loose = (self.slack + self.left_by(self.used) + tick - 1) / tick;
        // It must be full under the own quota, whatever plan a step is under, and under every plan.
        let fill = (self.units(self.burst) - self.level).max(0) / tick;
        let due = |fill: i128| fill.max(self.longest) + self.ticks_up(2_000_000_000) + 1;
        let (early, late) = (due(fill - loose) - known, due(fill + loose) + known + 1);
        Maybe { yes: !back && passed >= early, no: back || passed < late }
    }

    /// Undoes a take: gives back the tokens of it that the bucket would still have.
    pub fn undo(&mut self, now: u64, slot: &Slot, committed: Option<bool>) -> Result<(), String> {
        let (more, ticks) = self.kept_without(now, slot, slot.n);
        self.give(now, more, ticks, committed)
    }

    /// Returns whether giving back the last `n` tokens of a take is committed.
    pub fn gives_excess(&self, now: u64, slot: &Slot, n: u64) -> Maybe {
        if self.at.is_none() {
            return Maybe { yes: false, no: true };
        }
        let (more, ticks) = self.kept_without(now, slot, n);
        self.gives(&self.bounds(now), more, ticks)
    }

    /// Gives back the last `n` tokens of a take, as far as the bucket would still have them.
    pub fn give_excess(&mut self, now: u64, slot: &Slot, n: u64, committed: bool) -> Result<(), String> {
        let (more, ticks) = self.kept_without(now, slot, n);
        self.give(now, more, ticks, Some(committed))
    }

    /// Returns the part of the last `n` tokens of a take that the bucket would still have, and the
    /// ticks to within which it is known.
    fn kept_without(&self, now: u64, slot: &Slot, n: u64) -> (i128, i128) {
        // If the reading is behind the stamp, the bucket is as it was at its stamp.
        let reading = if self.at.is_some() { self.bounds(now).at } else { self.moment(now) };
        // Whole ticks: a longer time than the stamp's range fills the bucket.
        // So does a step back by more than it.
        let earned = match self.came(slot.since.earned, reading.earned) {
            _ if reading.tick - slot.since.tick < -self.range() => i128::MAX >> 16,
            earned => earned.max(0),
        };
        let spilt = slot.before - self.units(slot.n - n) + earned - self.capacity();
        // It is known as well as the level before, and the earnings since.
        let ticks = slot.jumps + self.changes + 2;
        let ticks = if spilt + ticks * self.tick() > 0 { ticks } else { 0 };
        ((self.units(n) - spilt.max(0)).max(0), ticks)
    }

    /// Sets another rate and burst, of the same period, from a reading of the clock on.
    pub fn set_quota(&mut self, now: u64, tokens: u64, burst: u64) {
        let then = self.moment(now);
        self.changed = Some(then.earned);
        self.rate = Rate { later: true, ..Rate::new(tokens, self.nanos, self.unit) };
        // Both are 0 at the reading 0 as yet.
        let other = self.moment(now);
        self.rate.earned = then.earned - other.earned;
        self.rate.tick = then.tick - other.tick;
        self.windows = self.windows();
        self.burst = burst;
        if self.at.is_some() {
            self.jumps += 1;
            self.changes += 1;
        }
    }
}

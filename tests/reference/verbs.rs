//! What else is done to a bucket, as the ideal does it.

#![allow(dead_code, reason = "not every user of the reference has every verb")]

use super::{Answer, Bounds, Ideal, Moment, Rate, Span};

/// What the crate answered to a reservation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    pub(crate) answer: Answer,
    /// Nanoseconds; of a reservation that was made.
    pub(crate) delay: Option<u64>,
    /// It was refused for the debt, not for want of patience.
    pub(crate) indebted: bool,
}

/// What was taken, and how it left the ideal bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    n: u64,
    before: i128,
    since: Moment,
    mark: i128,
    jumps: i128,
    /// The commit that took it.
    serial: u64,
}

impl Ideal {
    /// Starts with so many tokens, at the first use or at a reading of the clock.
    pub(crate) fn starting_with(mut self, tokens: u64, at: Option<u64>) -> Ideal {
        self.initial = Some(tokens);
        if let Some(now) = at {
            self.level = self.units(tokens.min(self.burst));
            self.at = Some(self.moment(now));
        }
        self
    }

    /// The most that may be owed.
    fn bound(&self) -> i128 {
        self.units(if self.unit.fixed { self.unit.debt } else { self.unit.debt.min(self.burst) })
    }

    fn complaint<T>(&self, what: &str, step: &str, seen: &Bounds) -> Result<T, String> {
        Err(format!("{what}: {step}, ideal {} of {} a token, {self:?}", seen.level, self.units(1)))
    }

    /// The slot that `n` tokens would have, if they were taken now.
    pub(crate) fn slot(&self, now: u64, n: u64) -> Slot {
        let seen = self.bounds(now);
        Slot {
            n,
            before: seen.level,
            since: seen.at,
            mark: seen.at.earned - seen.level + self.units(n),
            jumps: seen.jumps,
            serial: self.serial + 1,
        }
    }

    /// Takes what is there, up to `n`; `taken` of it were.
    pub(crate) fn take_up_to(&mut self, now: u64, n: u64, taken: u64, answer: Answer) -> Result<(), String> {
        let seen = self.bounds(now);
        let step = format!("up to {n} at {now} ns, {taken} taken, {answer:?}");
        let there = self.whole(seen.least).min(n)..=self.whole(seen.most).min(n);
        if !there.contains(&taken) {
            return self.complaint("it is not what is there", &step, &seen);
        }
        if answer.granted != (taken > 0 || n == 0) {
            return self.complaint("none is a refusal, some are a grant", &step, &seen);
        }
        let left = self.units(taken);
        if let Some(what) = self.misstates(&seen, left, answer.remaining, answer.reset_after) {
            return self.complaint(what, &step, &seen);
        }
        if !answer.granted {
            let one = |level| self.wait(self.units(1), level, seen.lag);
            let due =
                answer.retry_after.is_some_and(|retry| one(seen.ahead).contains_to(one(seen.least), retry));
            if !due {
                return self.complaint("retry_after is not when one is there", &step, &seen);
            }
        }
        if taken > 0 || (n > 0 && seen.adopts) {
            self.commit(&seen, seen.level - left);
        }
        Ok(())
    }

    /// Takes `n` that are there or will be, within `patience` nanoseconds (`None`: whenever).
    pub(crate) fn reserve(
        &mut self,
        now: u64,
        n: u64,
        patience: Option<u64>,
        promise: Promise,
    ) -> Result<(), String> {
        let seen = self.bounds(now);
        let Promise { answer, delay, indebted } = promise;
        let step = format!("{n} reserved at {now} ns, patience {patience:?}, {promise:?}");
        if n > self.burst || n == 0 {
            if delay.unwrap_or(0) > 0 {
                return self.complaint("nothing is due at once", &step, &seen);
            }
            return self.take(now, n, answer);
        }
        let need = self.units(n);
        let floor = need - self.bound();
        let patience = patience.map_or(i128::MAX, i128::from);
        let wait = |goal, level| self.wait(goal, level, seen.lag);
        let left = if answer.granted { need } else { 0 };
        if answer.granted {
            if seen.most < floor {
                return self.complaint("the debt is over its bound", &step, &seen);
            }
            let (early, late) = (wait(need, seen.ahead), wait(need, seen.least));
            if !delay.is_some_and(|delay| early.contains_to(late, delay) && i128::from(delay) <= patience) {
                return self.complaint("the delay is not until it is earned", &step, &seen);
            }
        } else {
            if seen.least >= floor && wait(need, seen.least) <= patience {
                return self.complaint("the ideal bucket promises this", &step, &seen);
            }
            if indebted && seen.least >= floor || !indebted && seen.most < floor {
                return self.complaint("it is for the other reason", &step, &seen);
            }
            let due = |level| wait(floor, level).max(wait(need, level).saturating_sub(patience));
            if !answer.retry_after.is_some_and(|retry| due(seen.ahead).contains_to(due(seen.least), retry)) {
                return self.complaint("retry_after is not when it can be made", &step, &seen);
            }
        }
        if let Some(what) = self.misstates(&seen, left, answer.remaining, answer.reset_after) {
            return self.complaint(what, &step, &seen);
        }
        if answer.granted || seen.adopts {
            self.commit(&seen, seen.level - left);
        }
        Ok(())
    }

    /// Takes up to `n` on credit, as far as the debt is bounded; `taken` of it were.
    pub(crate) fn charge_up_to(&mut self, now: u64, n: u64, taken: u64) -> Result<(), String> {
        let seen = self.bounds(now);
        let within = |level| self.whole(level + self.bound()).min(n);
        if !(within(seen.least)..=within(seen.most)).contains(&taken) {
            let step = format!("{n} charged at {now} ns, {taken} taken");
            return self.complaint("it is not what may be owed", &step, &seen);
        }
        if taken > 0 || seen.adopts {
            self.commit(&seen, seen.level - self.units(taken));
        }
        Ok(())
    }

    /// Gives `n` back. A bucket that is full takes nothing, not even the time: within a tick of that only who sees
    /// the word knows whether it was `committed`.
    pub(crate) fn refund(&mut self, now: u64, n: u64, committed: Option<bool>) -> Result<(), String> {
        self.give(now, self.units(n), 0, committed)
    }

    /// Gives `more` back, known to within so many ticks.
    fn give(&mut self, now: u64, more: i128, ticks: i128, committed: Option<bool>) -> Result<(), String> {
        if self.at.is_none() {
            // It was never used: what it starts with is decided when it is.
            let none = committed != Some(true);
            return if none { Ok(()) } else { Err("a bucket that was never used was given to".to_owned()) };
        }
        let seen = self.bounds(now);
        let (room, allowed) = (self.capacity() - seen.level, ticks * self.tick());
        // The crate counts in whole units: less than one is nothing.
        let surely = seen.adopts || (seen.ahead < self.capacity() && more - allowed >= self.tick());
        let surely_not = !seen.adopts && (seen.least >= self.capacity() || more + allowed <= 0);
        let commits = committed.unwrap_or(seen.adopts || (room > 0 && more > 0));
        if surely && !commits || surely_not && commits {
            let step = format!("{more} given at {now} ns, {committed:?}");
            return self.complaint("it was given, and it was not", &step, &seen);
        }
        if commits {
            self.commit(&seen, seen.level + more.min(room));
            self.jumps += ticks;
        }
        Ok(())
    }

    /// Drops a reservation: all of it comes back if it is the last in line. `back` says, if it is known, whether
    /// that was found, and whether it was committed.
    pub(crate) fn give_back(
        &mut self,
        now: u64,
        slot: &Slot,
        back: Option<(bool, bool)>,
    ) -> Result<bool, String> {
        let Some(at) = self.at else { return Ok(false) };
        // The crate knows the place in line modulo the stamp's range: after a wrap it may see one that is long past.
        let turn = self.tick() << self.unit.stamp;
        let moved = (at.earned - self.level - slot.mark + turn / 2).rem_euclid(turn) - turn / 2;
        let allowed = (self.jumps + slot.jumps + 3) * self.tick();
        let last = back.map_or(moved == 0, |(last, _)| last);
        let seen = self.bounds(now);
        let step = format!("{slot:?} dropped at {now} ns, {back:?}");
        if self.serial == slot.serial && !last {
            return self.complaint("nobody has taken since", &step, &seen);
        }
        if moved.abs() > allowed && last {
            return self.complaint("it was not the last in line", &step, &seen);
        }
        if last {
            self.refund(now, slot.n, back.map(|(_, committed)| committed))?;
        } else if back.is_some_and(|(_, committed)| committed) {
            return self.complaint("who is not the last changes nothing", &step, &seen);
        }
        Ok(last)
    }

    /// Undoes a take: gives back what of it the bucket would still have.
    pub(crate) fn undo(&mut self, now: u64, slot: &Slot, committed: Option<bool>) -> Result<(), String> {
        // The bucket is as it was at its stamp, if the reading is behind that.
        let reading = if self.at.is_some() { self.bounds(now).at } else { self.moment(now) };
        let range = 1_i128 << self.unit.stamp;
        let passed = reading.tick - slot.since.tick;
        let shown = passed.rem_euclid(range);
        let back = self.window(4_000_000_000, 4096);
        let back = back + if self.rate.later { self.share(64) } else { self.window(3_600_000_000_000, 64) };
        let earned = if range - shown <= back {
            0
        } else if shown == passed {
            (reading.earned - slot.since.earned).max(0)
        } else {
            shown.checked_mul(self.tick()).unwrap_or(i128::MAX / 4)
        };
        let spilt = slot.before + earned - self.capacity();
        // Known as well as what was there before, and what was earned since.
        let ticks = slot.jumps + self.changes + 2;
        let ticks = if spilt + ticks * self.tick() > 0 { ticks } else { 0 };
        let more = (self.units(slot.n) - spilt.max(0)).max(0);
        self.give(now, more, ticks, committed)
    }

    /// Another rate and burst, of the same period, from a reading of the clock on.
    pub(crate) fn set_quota(&mut self, now: u64, tokens: u64, burst: u64) {
        let then = self.moment(now);
        self.rate = Rate { later: true, ..Rate::new(tokens, self.nanos, self.unit) };
        // Both are 0 at the reading 0 as yet.
        let other = self.moment(now);
        self.rate.earned = then.earned - other.earned;
        self.rate.tick = then.tick - other.tick;
        self.burst = burst;
        if self.at.is_some() {
            self.jumps += 1;
            self.changes += 1;
        }
    }
}

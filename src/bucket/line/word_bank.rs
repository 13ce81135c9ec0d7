//! The bucket of a line: its word, by the engine.

use std::sync::atomic::Ordering::Acquire;

use crate::bucket::atomic::BucketRef;
use crate::bucket::engine::{At, Done, Engine, Now};
use crate::bucket::lease::Mode;
use crate::bucket::line::bank::{Bank, Credit, Mark, Sight};
use crate::fault::{Fault, injected};
use crate::rule::gate::Gate;
use crate::time::clock::Moment;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::PlanTerms;
use crate::word::state::{Reading, Refill, State, TakeOutcome};
use crate::word::verb::{Call, Reserve, Take, by_refill};
use crate::word::wait::Wait;

/// A bucket as a line uses it, and the latest reading.
pub(crate) struct WordBank<'a, W> {
    pub(crate) engine: &'a Engine,
    /// The bucket; `None` if it is lost.
    pub(crate) mode: Option<Mode<'a, W>>,
    /// Whether the bucket is certainly gone.
    pub(crate) is_gone: bool,
    pub(crate) plan: Option<PlanTerms>,
    /// State from which a bucket starts that was never charged.
    pub(crate) initial: Option<State>,
    /// Whether tokens went back to the word.
    pub(crate) was_given: bool,
    reading: Reading,
}

impl<'a, W: BucketRef> WordBank<'a, W> {
    pub(crate) fn new(
        engine: &'a Engine,
        mode: Option<Mode<'a, W>>,
        plan: Option<PlanTerms>,
        initial: Option<State>,
    ) -> WordBank<'a, W> {
        let (is_gone, was_given) = (mode.is_none(), false);
        WordBank { engine, is_gone, mode, plan, initial, was_given, reading: engine.read() }
    }

    /// Returns the outcome of a take of 0 tokens.
    fn look(&self) -> Option<Done> {
        let call = Call { take: Take::Exactly(0), plan: self.plan };
        let (charged, done) = self.mode?.look(self.engine, Now(self.engine), call);
        (charged || self.initial.is_some()).then_some(done)
    }

    /// Reserves tokens behind a line, at an earlier reading if there is one. It is refused while
    /// callers in line wait for the `tail` units without a position. `None` if the bucket is lost.
    pub(crate) fn reserve(
        &mut self,
        tail: u64,
        wanted: Reserve,
        at: Option<Moment>,
    ) -> Option<Result<Done, Denied>> {
        let n = wanted.n;
        // No limit and a pause decide whatever the line is.
        let counted = gate_of(&self.reading, self.plan) == Gate::Counted;
        if tail > 0 && counted && !injected(Fault::ReserveOvertakes) {
            let Sight { now, mark, debt, .. } = self.sight(None);
            let behind = mark?.0 + (tail + self.units(n)).cast_signed() - debt - now;
            let terms = &self.reading.refill;
            return Some(Err(Denied::over_debt(n, terms.tokens(debt.cast_unsigned()), self.nanos(behind))));
        }
        let (call, engine) = (Call { take: wanted.into(), plan: self.plan }, self.engine);
        let done = match at {
            None => self.mode?.charge(engine, self.initial, Now(engine), call),
            Some(at) => self.mode?.charge(engine, self.initial, At(engine, at), call),
        };
        done.map(Ok)
    }
}

impl<W: BucketRef> Bank for WordBank<'_, W> {
    fn sight(&mut self, base: Option<u64>) -> Sight {
        let seen = self.look();
        self.reading = seen.map_or_else(|| self.engine.read(), |done| done.reading);
        let (reading, outcome) = (self.reading, seen.map(|done| done.outcome));
        by_refill!(reading, self.plan, |by| {
            let terms = by.refill.terms();
            let base = base.unwrap_or(by.tick);
            let burst = by.refill.nominal_capacity() - terms.empty_level;
            Sight {
                tick: by.tick,
                now: position(&by, base, by.tick),
                mark: outcome.map(|seen| mark_of(&by, base, &seen)),
                burst: burst.cast_signed(),
                debt: (terms.empty_level - by.refill.min_level()).cast_signed(),
                is_shut: terms.gate == Gate::Shut,
                is_gone: self.is_gone,
                far: by.tick.wrapping_sub(base) & terms.mask > terms.mask / 8,
            }
        })
    }

    fn take_now(&mut self, n: u64) -> Option<Result<Granted, Denied>> {
        let call = Call { take: Take::Exactly(n), plan: self.plan };
        let done = self.mode?.charge(self.engine, self.initial, Now(self.engine), call)?;
        Some(call.decision(done.outcome, done.reading))
    }

    fn take(&mut self, base: u64, units: u64) -> Credit {
        let Some(mode) = self.mode else { return Credit::Lost };
        if gate_of(&self.engine.read(), self.plan) == Gate::Open {
            return Credit::TooLong;
        }
        let n = self.reading.refill.tokens(units);
        let call = Call { take: Take::Reserve(Reserve { n, keep: 0, max_wait: u64::MAX }), plan: self.plan };
        let Some(done) = mode.charge(self.engine, self.initial, Now(self.engine), call) else {
            return Credit::Lost;
        };
        let Done { outcome, reading, .. } = done;
        self.reading = reading;
        if gate_of(&reading, self.plan) == Gate::Open {
            // Joining again, the caller is granted at once.
            return Credit::TooLong;
        }
        by_refill!(reading, self.plan, |by| {
            if !outcome.granted {
                return if by.refill.is_over_the_burst(n) { Credit::TooLong } else { Credit::NoRoom };
            }
            let (end, mark) = mark_of(&by, base, &outcome);
            Credit::Stretch { end, mark }
        })
    }

    fn give_back(&mut self, units: u64, mark: Mark) -> Option<Mark> {
        let left = self.mode?.give_back(self.engine, self.plan, units, mark);
        self.was_given |= left.is_some();
        left
    }

    fn granted(&self, n: u64) -> Granted {
        let call = Call { take: Take::Exactly(n), plan: self.plan };
        let seen = self.look().map(|Done { outcome, reading, .. }| call.granted(outcome, &reading));
        seen.unwrap_or_else(|| Granted::anyway(0, 0)).of_tokens(n)
    }

    fn version(&self) -> u64 {
        self.engine.source.active_version.load(Acquire)
    }

    fn units(&self, n: u64) -> u64 {
        self.reading.refill.units(n)
    }

    fn nanos(&self, units: i64) -> u64 {
        let units = u64::try_from(units).unwrap_or(0);
        by_refill!(self.reading, self.plan, |by| Wait::until(units, 0, 0, &by).nanos())
    }
}

/// Returns whether tokens decide at a reading.
fn gate_of(reading: &Reading, plan: Option<PlanTerms>) -> Gate {
    by_refill!(*reading, plan, |by| by.refill.terms().gate)
}

/// Returns the position of a tick: the units earned since the base tick, or less than 0 before it.
fn position<P: Refill>(by: &Reading<P>, base: u64, tick: u64) -> i64 {
    let mask = by.refill.terms().mask;
    let passed = tick.wrapping_sub(base) & mask;
    // Units earned are below 2^63.
    match passed <= mask / 2 {
        true => by.refill.earned(tick, passed).cast_signed(),
        false => -by.refill.earned(base, base.wrapping_sub(tick) & mask).cast_signed(),
    }
}

/// Returns the position at which the next stretch begins after an outcome, and the word.
fn mark_of<P: Refill>(by: &Reading<P>, base: u64, outcome: &TakeOutcome) -> (i64, Mark) {
    let (terms, stamp) = (by.refill.terms(), by.tick.wrapping_add(outcome.lag));
    let above = outcome.level.cast_signed() - terms.empty_level.cast_signed();
    let mark = Mark { empty_at: terms.empty_at(stamp, outcome.level), stamp };
    (position(by, base, stamp) - above, mark)
}

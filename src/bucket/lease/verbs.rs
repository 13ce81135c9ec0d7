//! The verbs on a bucket that may be spread.

use super::cells::thread_index;
use super::leased_terms::LeasedTerms;
use super::leases::{LeaseCells, Spread};
use crate::bucket::atomic::{Bucket, BucketRef, Miss, Order, ReadClock};
use crate::bucket::engine::{Done, Engine, Now};
use crate::bucket::line::bank::Mark;
use crate::bucket::receipt::Settle;
use crate::sync::MODEL;
use crate::word::by_refill::OwnRefill;
#[cfg(test)]
use crate::word::decision::exactly;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::PlanTerms;
use crate::word::state::{Reading, Refill, State, TakeOutcome};
use crate::word::verb::{Call, Take};

/// Recalls of all cells for one decision, at most: other threads may lease anew meanwhile.
const MAX_ROUNDS: usize = if MODEL { 1 } else { 4 };

/// A bucket, plain or spread over cells.
pub(crate) enum Mode<'a, W = &'a Bucket> {
    /// The word has all tokens.
    Plain(W),
    /// Cells may hold some of the tokens. A call on it is under no plan.
    Spread(Spread<'a>),
}

impl<W: Copy> Clone for Mode<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: Copy> Copy for Mode<'_, W> {}

impl<W: BucketRef> Mode<'_, W> {
    /// Runs a call, as [`Engine::charge`].
    #[inline]
    pub(crate) fn charge(
        self,
        engine: &Engine,
        initial_state: Option<State>,
        read: impl ReadClock,
        call: Call<'_>,
    ) -> Option<Done> {
        match self {
            Mode::Plain(word) => engine.charge(word, initial_state, read, call),
            Mode::Spread(spread) => Some(spread.run(read, call.take)),
        }
    }

    /// Returns whether the bucket was ever charged, and the outcome that a call would have.
    pub(crate) fn look(self, engine: &Engine, read: impl ReadClock, call: Call<'_>) -> (bool, Done) {
        match self {
            Mode::Plain(word) => engine.look(word, read, call),
            Mode::Spread(spread) => (true, spread.look(read, call.take)),
        }
    }

    /// Settles a take, and returns the tokens charged.
    pub(crate) fn settle(self, engine: &Engine, plan: Option<&PlanTerms>, settle: Settle<'_>) -> u64 {
        match self {
            Mode::Plain(word) => engine.settle(word, plan, settle).unwrap_or(0),
            Mode::Spread(spread) => spread.settle(settle),
        }
    }

    /// Gives back the end of a line, if the word still stands at `mark`; returns the word after it.
    pub(crate) fn give_back(
        self,
        engine: &Engine,
        plan: Option<&PlanTerms>,
        units: u64,
        mark: Mark,
    ) -> Option<Mark> {
        match self {
            Mode::Plain(word) => engine.give_back(word, plan, units, mark),
            Mode::Spread(spread) => {
                let step = |state: State, reading: &Reading<LeasedTerms>| {
                    mark.give_back(state, reading, units, || engine.has_plans())
                };
                spread.bucket.update(|state| spread.read(Now(engine), state), step).0
            }
        }
    }
}

impl Spread<'_> {
    /// Takes `n` tokens, of the lease of this core if it has them.
    #[inline(always)]
    pub(crate) fn take_leased(self, read: impl ReadClock, n: u64) -> Result<Granted, Denied> {
        let Spread { bucket, engine, cells } = self;
        if cells.is_drained() {
            return take_drained(bucket, engine, cells, read, n);
        }
        let own = thread_index();
        match cells.of(own).take(n) {
            Some(granted) => Ok(granted),
            None => take_from_word(bucket, engine, cells, read, n),
        }
    }

    /// Attempts once to take `n` tokens of a drained bucket, as of a plain one.
    #[inline(always)]
    pub(crate) fn attempt_drained(
        self,
        read: impl ReadClock,
        n: u64,
    ) -> Result<(TakeOutcome, Reading), Miss> {
        let done = self.bucket.attempt(Order::ClockFirst, self.clock(read), Take::Exactly(n))?;
        let (outcome, Reading { refill: terms, .. }) = &done;
        if outcome.granted && outcome.level >= terms.empty_level + outcome.taken {
            // There are as many more.
            self.cells.note_drained(false);
        }
        Ok(done)
    }

    /// Takes `n` tokens as a `TokenBucket` does, but in the cell that the test names.
    #[cfg(test)]
    pub(crate) fn acquire(self, own: usize, read: impl ReadClock, n: u64) -> Result<Granted, Denied> {
        if self.cells.is_drained()
            && let Ok(done) = self.attempt_drained(read, n)
        {
            return exactly(n, done);
        }
        match self.cells.of(own).take(n) {
            Some(granted) => Ok(granted),
            None => self.acquire_anyhow(own, read, n),
        }
    }

    /// Takes `n` tokens that are not at hand in the cell.
    #[cold]
    #[inline(never)]
    pub(crate) fn acquire_anyhow(self, own: usize, read: impl ReadClock, n: u64) -> Result<Granted, Denied> {
        let cell = self.cells.of(own);
        let batch = cell.batch();
        if batch == 1 {
            // The cell is no longer in demand.
            if cell.lease().size() > 0 {
                self.recall(cell);
            }
        } else if n > 0
            && n <= batch.min(cell.rest())
            && let Some(granted) = self.refill(own, batch, n)
        {
            return Ok(granted);
        }
        let Done { outcome, reading, leased } = self.take(read, n);
        if outcome.granted && n > 0 {
            let (terms, now) = (&reading.refill, reading.nanos());
            let turn = cell.note(now, terms.available(outcome.level), self.most(terms));
            if leased > 0 {
                self.recall_idle(own, turn, now);
            }
        } else if leased > 0 {
            return self.acquire_anywhere(own, read, n);
        } else {
            self.cells.note_drained(!outcome.granted);
        }
        Take::Exactly(n).decision((outcome, reading))
    }

    /// Takes `n` tokens of the word, as of a plain bucket while no token is leased.
    #[inline]
    fn take(self, read: impl ReadClock, n: u64) -> Done {
        let Spread { bucket, engine, .. } = self;
        if !self.is_leased() {
            let (once, take) = (self.clock(read), Take::Exactly(n));
            let attempt = match bucket.attempt(Order::ClockFirst, once, take) {
                Ok(done) => Some(done),
                Err(_) => engine.attempt_again(bucket, once, take, OwnRefill),
            };
            if let Some(done) = attempt {
                return done.into();
            }
        }
        self.step(read, Take::Exactly(n))
    }

    /// Takes by a step on the word alone.
    fn step(self, read: impl ReadClock, take: Take) -> Done {
        let step = |state: State, reading: &Reading<LeasedTerms>| take.apply(state, reading);
        let (outcome, reading) = self.bucket.update(|state| self.read(read, state), step);
        done(outcome, reading)
    }

    /// Takes `n` tokens of another cell, or of all of them together; or is refused.
    #[cold]
    fn acquire_anywhere(self, own: usize, read: impl ReadClock, n: u64) -> Result<Granted, Denied> {
        if let Some(granted) = self.others(own).find_map(|cell| cell.take(n)) {
            return Ok(granted);
        }
        let Done { outcome, reading, .. } = self.run(read, Take::Exactly(n));
        self.cells.note_drained(!outcome.granted);
        Take::Exactly(n).decision((outcome, reading))
    }

    /// Takes by a step: of the word, or of the word after all cells were recalled.
    pub(crate) fn run(self, read: impl ReadClock, take: Take) -> Done {
        if self.is_leased() {
            let seen = self.look(read, take);
            if take.never_writes(&seen.reading.refill) {
                return seen;
            }
            let all = self.step(read, take.in_full());
            if all.outcome.granted {
                return all;
            }
        }
        let mut rounds = 0;
        loop {
            self.recall_all();
            let last = self.step(read, take);
            rounds += 1;
            if last.outcome.granted || last.leased == 0 || rounds == MAX_ROUNDS {
                return last;
            }
        }
    }

    /// Returns the outcome that a step would have on the word and the cells together.
    pub(crate) fn look(self, read: impl ReadClock, take: Take) -> Done {
        let look = |state: State, reading: &Reading<LeasedTerms>| {
            let full = LeasedTerms::in_full(*reading);
            let all = match state {
                state if reading.refill.leased == 0 => state,
                state => {
                    let at_hand = full.refill.units(self.at_hand());
                    state.recalled(&reading.refill, reading.tick, at_hand, at_hand).unwrap_or(state)
                }
            };
            (take.apply(all, &full).0, None)
        };
        let (outcome, reading) = self.bucket.update(|state| self.read(read, state), look);
        done(outcome, reading)
    }

    /// Settles a take, and returns the tokens charged.
    pub(crate) fn settle(self, settle: Settle<'_>) -> u64 {
        if let Settle::Charge(_) = settle {
            self.recall_all();
        }
        let fits = |state: State, reading: &Reading<LeasedTerms>| match settle {
            Settle::Refund(n) | Settle::Excess(_, n) if reading.refill.leased > 0 => {
                reading.view(state).level + reading.refill.terms.units(n) <= reading.refill.capacity()
            }
            _ => true,
        };
        let settled = |must_fit: bool| {
            let step = |state: State, reading: &Reading<LeasedTerms>| {
                if must_fit && !fits(state, reading) {
                    return (Err(NoRoom), None);
                }
                let (charged, next) = settle.apply(state, reading, || self.engine.has_plans());
                (Ok(charged), next)
            };
            self.bucket.update(|state| self.read(Now(self.engine), state), step).0
        };
        let charged = settled(true).unwrap_or_else(|NoRoom| {
            self.recall_all();
            settled(false).unwrap_or(None)
        });
        charged.unwrap_or(0)
    }
}

/// Takes tokens of a bucket that has none to lease.
#[inline(never)]
fn take_drained(
    bucket: &Bucket,
    engine: &Engine,
    cells: &LeaseCells,
    read: impl ReadClock,
    n: u64,
) -> Result<Granted, Denied> {
    match (Spread { bucket, engine, cells }).attempt_drained(read, n) {
        Ok(done) => Take::Exactly(n).decision(done),
        Err(_) => take_from_word(bucket, engine, cells, read, n),
    }
}

/// Takes tokens that are not on lease to this core.
#[cold]
#[inline(never)]
fn take_from_word(
    bucket: &Bucket,
    engine: &Engine,
    cells: &LeaseCells,
    read: impl ReadClock,
    n: u64,
) -> Result<Granted, Denied> {
    Spread { bucket, engine, cells }.acquire_anyhow(thread_index(), read, n)
}

/// A refund does not fit beside the leases.
struct NoRoom;

fn done(outcome: TakeOutcome, reading: Reading<LeasedTerms>) -> Done {
    let leased = reading.refill.leased;
    Done { outcome, reading: LeasedTerms::in_full(reading), leased }
}

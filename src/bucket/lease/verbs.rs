//! The verbs on a spread bucket.

use super::leased_terms::{LeasedTerms, NoLeaseReading};
use super::leases::{Spread, gone, is_gone};
use crate::bucket::atomic::{BucketRef, Order, Read, ReadOnce};
use crate::bucket::engine::Now;
use crate::bucket::reservation::Receipt;
use crate::word::decision::{Denied, Granted};
use crate::word::state::{Outcome, State};
use crate::word::terms::{Reading, Refill};
use crate::word::verb::{Give, Take};

/// Recalls of all cells for one decision, at most: other threads may lease anew meanwhile.
const MAX_ROUNDS: usize = if cfg!(all(test, any(loom, shuttle))) { 1 } else { 4 };

/// The outcome of a step, the reading that counted, and the tokens that were leased then.
pub(crate) type Done = (Outcome, Reading, u64);

fn done((outcome, reading): (Outcome, Reading<LeasedTerms>)) -> Done {
    (outcome, reading.in_full(), reading.refill.leased)
}

/// Returns the step, which does nothing if the bucket is no longer there.
fn if_there<P: Refill>(step: Take) -> impl Fn(State, &Reading<P>) -> (Outcome, Option<State>) {
    move |state, reading| match state {
        State::SEALED => (gone(state, reading), None),
        state => step.apply(state, reading),
    }
}

impl<W: BucketRef> Spread<'_, W> {
    /// Takes `n` tokens that are not at hand in the cell; `None` if the bucket is no longer there.
    #[inline(never)]
    pub(crate) fn acquire(self, own: usize, read: impl ReadOnce, n: u64) -> Option<Result<Granted, Denied>> {
        let cell = self.cells.of(own);
        let batch = cell.batch();
        if batch == 1 {
            // The cell is no longer in demand.
            if cell.lease(self.generation).size() > 0 {
                self.recall(cell);
            }
        } else if n > 0
            && n <= batch.min(cell.rest())
            && let Some(granted) = self.refill(own, batch, n)
        {
            return Some(Ok(granted));
        }
        let (outcome, reading, leased) = self.take(read, n);
        if outcome.granted && n > 0 {
            let (terms, now) = (&reading.refill, reading.nanos());
            let turn = cell.note(now, terms.available(outcome.level), self.most(terms));
            if leased > 0 {
                self.recall_idle(own, turn, now);
            }
        } else if leased > 0 && !is_gone(&outcome) {
            return self.acquire_anywhere(own, read, n);
        }
        (!is_gone(&outcome)).then(|| Take::Exactly(n).decision((outcome, reading)))
    }

    /// Takes `n` tokens of the word, as of a plain bucket while no token is leased.
    #[inline]
    fn take(self, read: impl ReadOnce, n: u64) -> Done {
        let Spread { bucket, engine, .. } = self;
        if !self.is_leased() {
            let once = NoLeaseReading(read, self.leased());
            let attempt = match bucket.attempt(Order::ClockFirst, once, n) {
                Ok(done) => Some(done),
                Err(missed) => engine.attempt_again(bucket, missed, once, n),
            };
            if let Some((outcome, reading)) = attempt {
                return (outcome, reading, 0);
            }
        }
        done(bucket.update(self.less(read), if_there(Take::Exactly(n))))
    }

    /// Takes `n` tokens of another cell, or of all of them together; or is refused.
    #[cold]
    fn acquire_anywhere(
        self,
        own: usize,
        read: impl Read<Reading>,
        n: u64,
    ) -> Option<Result<Granted, Denied>> {
        if let Some(granted) = self.others(own).find_map(|cell| cell.take(self.generation, n)) {
            return Some(Ok(granted));
        }
        let (outcome, reading, _) = self.run(read, Take::Exactly(n));
        (!is_gone(&outcome)).then(|| Take::Exactly(n).decision((outcome, reading)))
    }

    /// Takes by a step: of the word, or of the word after all cells were recalled.
    pub(crate) fn run(self, read: impl Read<Reading>, step: Take) -> Done {
        let bucket = self.bucket;
        if self.is_leased() {
            let seen = self.look(read, step);
            if step.never_writes(&seen.1.refill) || is_gone(&seen.0) {
                return seen;
            }
            let all = done(bucket.update(self.less(read), if_there(Take::Exactly(step.tokens()))));
            if all.0.granted {
                return all;
            }
        }
        let mut rounds = 0;
        loop {
            self.recall_all();
            let last = done(bucket.update(self.less(read), if_there(step)));
            rounds += 1;
            if last.0.granted || is_gone(&last.0) || last.2 == 0 || rounds == MAX_ROUNDS {
                return last;
            }
        }
    }

    /// Returns the outcome that a step would have on the word and the cells together.
    pub(crate) fn look(self, read: impl Read<Reading>, step: Take) -> Done {
        let less = self.less(read);
        let look = |state: State, reading: &Reading<LeasedTerms>| {
            let full = reading.in_full();
            if state == State::SEALED {
                return (gone(state, &full), None);
            }
            if reading.refill.leased == 0 {
                return (step.apply(state, &full).0, None);
            }
            let at_hand = full.refill.units(self.at_hand());
            let all = state.recalled(&reading.refill, reading.tick, at_hand, at_hand).unwrap_or(state);
            (step.apply(all, &full).0, None)
        };
        done(self.bucket.update(less, look))
    }

    /// Gives back the part of `n` tokens that fits below the burst.
    ///
    /// Returns false if the bucket is no longer there.
    pub(crate) fn refund(self, n: u64) -> bool {
        let give = |whatever_fits: bool| {
            let read = self.less(Now(self.engine));
            let step = |state: State, reading: &Reading<LeasedTerms>| {
                let Reading { refill, tick, .. } = reading;
                let fits = reading.view(state).level + refill.terms.units(n) <= refill.capacity();
                if state == State::SEALED {
                    return (Some(false), None);
                }
                match fits || whatever_fits || refill.leased == 0 {
                    true => (Some(true), Give::Refund(n).apply(refill, state, *tick)),
                    false => (None, None),
                }
            };
            self.bucket.update(read, step).0
        };
        give(false).unwrap_or_else(|| {
            self.recall_all();
            give(true) == Some(true)
        })
    }

    /// Gives back the tokens of a receipt, if none were taken or leased since.
    ///
    /// Returns false if the bucket is no longer there.
    pub(crate) fn give_back(self, receipt: &Receipt) -> bool {
        self.settle(|_, plans| receipt.giving_back(plans))
    }

    /// Gives back the tokens that the bucket would still have without the take.
    ///
    /// Returns false if the bucket is no longer there.
    pub(crate) fn undo(self, receipt: &Receipt) -> bool {
        self.settle(|refill, plans| receipt.undoing(plans, refill.nominal_capacity() - refill.capacity()))
    }

    fn settle(self, step: impl Fn(&LeasedTerms, bool) -> Give) -> bool {
        let read = self.less(Now(self.engine));
        let settle = |state: State, reading: &Reading<LeasedTerms>| match state {
            State::SEALED => (false, None),
            state => {
                let step = step(&reading.refill, self.engine.has_plans());
                (true, step.apply(&reading.refill, state, reading.tick))
            }
        };
        self.bucket.update(read, settle).0
    }

    /// Takes up to `n` tokens, on credit if need be, and returns the number taken.
    ///
    /// Returns `None` if the bucket is no longer there.
    pub(crate) fn charge(self, n: u64) -> Option<u64> {
        self.recall_all();
        let read = self.less(Now(self.engine));
        let charge = |state: State, reading: &Reading<LeasedTerms>| {
            if state == State::SEALED {
                return (None, None);
            }
            let (outcome, next) = Take::OnCredit(n).apply(state, reading);
            (Some(reading.refill.terms.tokens(outcome.taken)), next)
        };
        self.bucket.update(read, charge).0
    }
}

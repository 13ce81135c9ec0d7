//! What is asked of a bucket that is spread.

use super::leases::{Central, Spread};
use super::lessened::{Lessened, Unleased};
use crate::bucket::{First, Read, ReadOnce, Word};
use crate::decision::{Denied, Granted};
use crate::entry::Now;
use crate::regime::Source;
use crate::reservation::Receipt;
use crate::state::{Outcome, State};
use crate::step::{Give, GiveBack, Settle, Step, Take, charge_up_to};
use crate::terms::{Pace, Reading};

/// How often cells are gathered for one decision: others may lease anew meanwhile.
const MOST_ROUNDS: usize = if cfg!(all(test, any(loom, shuttle))) { 1 } else { 4 };

/// What came of a step, the reading that counted, and the tokens that were leased then.
pub(crate) type Done = (Outcome, Reading, u64);

fn done((outcome, reading): (Outcome, Reading<Lessened>)) -> Done {
    (outcome, reading.in_full(), reading.pace.leased)
}

impl Spread {
    /// Takes `n` tokens that are not at hand in the cell.
    #[inline(never)]
    pub(crate) fn acquire<R: Source>(
        &self,
        central: Central<'_, R>,
        own: usize,
        read: impl ReadOnce,
        n: u64,
    ) -> Result<Granted, Denied> {
        let cell = self.cell(own);
        let batch = cell.batch();
        if batch == 1 {
            // It is in demand no more.
            if cell.lease().size() > 0 {
                self.gather(central, cell);
            }
        } else if n > 0
            && n <= batch.min(cell.rest())
            && let Some(granted) = self.refill(central, own, batch, n)
        {
            return Ok(granted);
        }
        let (outcome, reading, leased) = self.take(central, read, n);
        if outcome.granted && n > 0 {
            let (terms, now) = (&reading.pace, reading.nanos());
            let turn = cell.note(now, terms.available(outcome.level), self.most(terms));
            if leased > 0 {
                self.gather_idle(central, own, turn, now);
            }
        } else if leased > 0 {
            return self.acquire_anywhere(central, own, read, n);
        }
        Take(n).decision((outcome, reading))
    }

    /// Takes of the word, as of a plain bucket while nothing is leased.
    #[inline]
    fn take<R: Source>(&self, central: Central<'_, R>, read: impl ReadOnce, n: u64) -> Done {
        let Central { bucket, rules } = central;
        if !self.is_leased() {
            let once = Unleased(read, self.leased());
            let attempt = match bucket.attempt(First::Clock, once, n) {
                Ok(done) => Some(done),
                Err(missed) => rules.attempt_again(bucket, missed, once, n),
            };
            if let Some((outcome, reading)) = attempt {
                return (outcome, reading, 0);
            }
        }
        done(rules.run(bucket, self.less(read), Take(n)))
    }

    /// Takes what is in another cell, or in all of them together; or is refused.
    #[cold]
    fn acquire_anywhere<R: Source>(
        &self,
        central: Central<'_, R>,
        own: usize,
        read: impl Read<Reading>,
        n: u64,
    ) -> Result<Granted, Denied> {
        if let Some(granted) = self.others(own).find_map(|cell| cell.take(n)) {
            return Ok(granted);
        }
        let (outcome, reading, _) = self.run(central, read, Take(n));
        Take(n).decision((outcome, reading))
    }

    /// Takes by a step: of the word, if as much is there; else of all that was gathered.
    pub(crate) fn run<R: Source>(
        &self,
        central: Central<'_, R>,
        read: impl Read<Reading>,
        step: impl Step,
    ) -> Done {
        let Central { bucket, rules } = central;
        if self.is_leased() {
            let seen = self.look(central, read, step);
            if step.is_vain(&seen.1.pace) {
                return seen;
            }
            let all = done(rules.run(bucket, self.less(read), Take(step.most())));
            if all.0.granted {
                return all;
            }
        }
        let mut rounds = 0;
        loop {
            self.gather_all(central);
            let last = done(rules.run(bucket, self.less(read), step));
            rounds += 1;
            if last.0.granted || last.2 == 0 || rounds == MOST_ROUNDS {
                return last;
            }
        }
    }

    /// What a step would come to, of the word and the cells together.
    pub(crate) fn look<R: Source>(
        &self,
        central: Central<'_, R>,
        read: impl Read<Reading>,
        step: impl Step,
    ) -> Done {
        let less = self.less(read);
        let look = |state: State, reading: &Reading<Lessened>| {
            let full = reading.in_full();
            if reading.pace.leased == 0 {
                return (step.run(state, &full).0, None);
            }
            let at_hand = full.pace.units(self.at_hand());
            let all = state.gathered(&reading.pace, reading.tick, at_hand, at_hand).unwrap_or(state);
            (step.run(all, &full).0, None)
        };
        done(central.bucket.drive(|state| less.read(state), look))
    }

    /// Gives back `n` tokens, as many as fit below the burst.
    pub(crate) fn refund<R: Source>(&self, central: Central<'_, R>, n: u64) {
        let give = |whatever_fits: bool| {
            let read = self.less(Now(central.rules));
            let step = |state: State, reading: &Reading<Lessened>| {
                let Reading { pace, tick, .. } = reading;
                let fits = reading.view(state).level + pace.terms.units(n) <= pace.capacity();
                match fits || whatever_fits || pace.leased == 0 {
                    true => (true, Give(n).run(pace, state, *tick)),
                    false => (false, None),
                }
            };
            central.bucket.drive(|state| read.read(state), step).0
        };
        if !give(false) {
            self.gather_all(central);
            give(true);
        }
    }

    /// Gives back what a receipt is for, if nobody has taken since, nor leased.
    pub(crate) fn give_back<R: Source>(&self, central: Central<'_, R>, receipt: &Receipt) {
        self.settle(central, |_| GiveBack { units: receipt.units, mark: receipt.mark });
    }

    /// Gives back what the bucket would still have, had it not been taken.
    pub(crate) fn undo<R: Source>(&self, central: Central<'_, R>, receipt: &Receipt) {
        self.settle(central, |pace| receipt.undoing(pace.brim() - pace.capacity()));
    }

    fn settle<R: Source, S: Settle>(&self, central: Central<'_, R>, step: impl Fn(&Lessened) -> S) {
        let read = self.less(Now(central.rules));
        let settle = |state: State, reading: &Reading<Lessened>| {
            ((), step(&reading.pace).run(&reading.pace, state, reading.tick))
        };
        central.bucket.drive(|state| read.read(state), settle);
    }

    /// Takes up to `n` tokens, on credit if need be, and tells how many.
    pub(crate) fn charge<R: Source>(&self, central: Central<'_, R>, n: u64) -> u64 {
        self.gather_all(central);
        let read = self.less(Now(central.rules));
        let charge = |state: State, reading: &Reading<Lessened>| {
            let (outcome, next) = charge_up_to(n, state, reading);
            (reading.pace.terms.tokens(outcome.taken), next)
        };
        central.bucket.drive(|state| read.read(state), charge).0
    }
}

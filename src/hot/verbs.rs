//! The verbs on a key of a limiter that spreads those that are contended.

use std::hash::{BuildHasher, Hash};

use super::registry::{Hot, Life};
use super::watched::Watched;
use crate::bucket::{First, Missed, Read, ReadOnce, Word};
use crate::decision::{Denied, Granted};
use crate::entry::{Done, Place};
use crate::key::ToKey;
use crate::plan::Plan;
use crate::reservation::Receipt;
use crate::shared::Shared;
use crate::slot::{Found, Slot};
use crate::spread::{Central, is_gone, place};
use crate::state::Outcome;
use crate::step::{Step, Take};
use crate::sync::yield_now;
use crate::terms::{Pace, Reading, Terms};

/// Others who spread a key, or fold it back, send a call back to the start.
const MOST_ROUNDS: usize = 1_000;
/// Attempts on a word before the loop of it.
const MOST_ATTEMPTS: usize = 16;

/// A bucket as it was found.
enum As<'a, 'b> {
    /// Spread over the cells of a life.
    Spread(Central<'a, Watched<'a, Found<'a>>>, &'b Life),
    Whole(Watched<'a, Found<'a>>),
}

impl<K: Hash + Eq, S: BuildHasher> Shared<K, S> {
    /// Takes `n` tokens, under no plan.
    pub(crate) fn try_acquire_hot<Q: ToKey<K> + ?Sized>(
        &self,
        hot: &Hot,
        place_of: Slot<'_, K, S, Q>,
        read: impl ReadOnce,
        n: u64,
    ) -> Result<Granted, Denied> {
        let (rules, step) = (&self.rules, Take(n));
        for round in 0..MOST_ROUNDS {
            let Some(found) = place_of.search() else {
                match place_of.admit(read, step) {
                    Some(done) => return done.and_then(|done| step.decision(done)),
                    None => place_of.pause(),
                }
                continue;
            };
            let id = found.id();
            if hot.has(id) {
                let pin = hot.pin();
                let Some(life) = hot.find(id, &pin) else {
                    yield_now();
                    continue;
                };
                let own = place();
                if let Some(granted) = life.spread.cell(own).take(n) {
                    return Ok(granted);
                }
                let central = hot.central(found, life, rules);
                if let Some(decision) = life.spread.acquire(central, own, read, n) {
                    return decision;
                }
                place_of.bury();
                continue;
            }
            let word = hot.whole(found, id);
            let attempt = match round {
                0..MOST_ATTEMPTS => word.attempt(First::Word, read, n),
                _ => Err(Missed::Unfit),
            };
            match attempt {
                Ok((outcome, reading)) => {
                    self.fold_in_turn(hot, place_of.pin, reading.nanos());
                    return step.decision((outcome, reading));
                }
                Err(Missed::Lost) => self.note_lost(hot, place_of, found, rules.clock.nanos()),
                Err(Missed::Unfit) => {
                    if let Some(done) = rules.first_charge(word, place_of.overflow(), read, step) {
                        return step.decision(done);
                    }
                    place_of.bury();
                }
            }
        }
        let now = rules.clock.nanos();
        Err(Denied::full(n, now, Some(now)))
    }

    /// Runs a step on a key's bucket that is under no plan, and tells how many tokens were leased beside what it found.
    pub(crate) fn run_hot<Q: ToKey<K> + ?Sized>(
        &self,
        hot: &Hot,
        place: Slot<'_, K, S, Q>,
        read: impl Read<Reading>,
        step: impl Step,
    ) -> (Done<Terms>, u64) {
        for _ in 0..MOST_ROUNDS {
            let Some(found) = place.search() else {
                match place.admit(read, step) {
                    Some(done) => return (done, 0),
                    None => place.pause(),
                }
                continue;
            };
            let seen = self.with(hot, found, |bucket| match bucket {
                As::Spread(central, life) => {
                    let (outcome, reading, leased) = life.spread.run(central, read, step);
                    (!is_gone(&outcome)).then_some(((outcome, reading), leased))
                }
                As::Whole(word) => {
                    let done = self.rules.first_charge(word, place.overflow(), read, step)?;
                    Some((done, 0))
                }
            });
            if let Some((done, leased)) = seen {
                return (Ok(done), leased);
            }
            place.bury();
        }
        let now = self.rules.clock.nanos();
        (Err(Denied::full(step.most(), now, Some(now))), 0)
    }

    /// As [`run_hot`](Shared::run_hot), under a plan: the key is spread no more for it.
    pub(crate) fn run_hot_under<Q: ToKey<K> + ?Sized, P: Pace>(
        &self,
        hot: &Hot,
        place: Slot<'_, K, S, Q>,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> Done<P> {
        for _ in 0..MOST_ROUNDS {
            let Some(found) = place.search() else {
                match place.admit(read, step) {
                    Some(done) => return done,
                    None => place.pause(),
                }
                continue;
            };
            self.fold(hot, found);
            let word = hot.whole(found, found.id());
            if let Some(done) = self.rules.first_charge(word, place.overflow(), read, step) {
                return Ok(done);
            }
            place.bury();
        }
        let now = self.rules.clock.nanos();
        Err(Denied::full(step.most(), now, Some(now)))
    }

    /// What a step would come to on the key's bucket, under no plan.
    pub(crate) fn peek_hot<Q: ToKey<K> + ?Sized>(
        &self,
        hot: &Hot,
        place: Slot<'_, K, S, Q>,
        read: impl Read<Reading>,
        step: impl Step,
    ) -> (Outcome, Reading) {
        let seen = place.search().and_then(|found| {
            self.with_again(hot, found, |bucket| match bucket {
                As::Spread(central, life) => {
                    let (outcome, reading, _) = life.spread.look(central, read, step);
                    (!is_gone(&outcome)).then_some((outcome, reading))
                }
                As::Whole(word) => {
                    let ((charged, outcome), reading) = self.rules.look(word, read, step);
                    charged.then_some((outcome, reading))
                }
            })
        });
        seen.unwrap_or_else(|| {
            let ((_, outcome), reading) = self.rules.look(place.overflow(), read, step);
            (outcome, reading)
        })
    }

    /// As [`peek_hot`](Shared::peek_hot), under a plan.
    pub(crate) fn peek_hot_under<Q: ToKey<K> + ?Sized, P: Pace>(
        &self,
        hot: &Hot,
        place: Slot<'_, K, S, Q>,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> (Outcome, Reading<P>) {
        for _ in 0..MOST_ROUNDS {
            let Some(found) = place.search() else { break };
            self.fold(hot, found);
            let word = hot.whole(found, found.id());
            let ((charged, outcome), reading) = self.rules.look(word, read, step);
            if charged {
                return (outcome, reading);
            }
            if !hot.has(found.id()) {
                break;
            }
        }
        let ((_, outcome), reading) = self.rules.look(place.overflow(), read, step);
        (outcome, reading)
    }

    /// Gives a found bucket to `settle`, as it is, until that comes to something, or the bucket is sealed. Under a plan it is
    /// spread no more for it.
    fn with_again<'a, T>(
        &'a self,
        hot: &'a Hot,
        found: Found<'a>,
        mut settle: impl FnMut(As<'a, '_>) -> Option<T>,
    ) -> Option<T> {
        for _ in 0..MOST_ROUNDS {
            let done = self.with(hot, found, &mut settle);
            if done.is_some() || !found.state().is_level() {
                return done;
            }
        }
        None
    }

    fn with<'a, T>(
        &'a self,
        hot: &'a Hot,
        found: Found<'a>,
        run: impl FnOnce(As<'a, '_>) -> Option<T>,
    ) -> Option<T> {
        let id = found.id();
        if !hot.has(id) {
            return run(As::Whole(hot.whole(found, id)));
        }
        let pin = hot.pin();
        let Some(life) = hot.find(id, &pin) else {
            yield_now();
            return None;
        };
        run(As::Spread(hot.central(found, life, &self.rules), life))
    }

    /// Gives back `n` tokens.
    pub(crate) fn refund_found(&self, found: Found<'_>, n: u64, plan: Option<Plan>) {
        let rules = &self.rules;
        let Some(hot) = &self.hot else {
            rules.refund(found, n, plan);
            return;
        };
        self.with_again(hot, found, |bucket| match bucket {
            As::Spread(central, life) if plan.is_none() => life.spread.refund(central, n).then_some(()),
            As::Spread(_, life) => self.fold_life(hot, found, life),
            As::Whole(word) => rules.refund(word, n, plan).then_some(()),
        });
    }

    /// Gives back what a receipt is for, if nobody has taken since.
    pub(crate) fn give_back_found(&self, found: Found<'_>, receipt: &Receipt) {
        let rules = &self.rules;
        let Some(hot) = &self.hot else {
            rules.give_back(found, receipt);
            return;
        };
        self.with_again(hot, found, |bucket| match bucket {
            As::Spread(central, life) if receipt.plan.is_none() => {
                life.spread.give_back(central, receipt).then_some(())
            }
            As::Spread(_, life) => self.fold_life(hot, found, life),
            As::Whole(word) => rules.give_back(word, receipt).then_some(()),
        });
    }

    /// Gives back what the bucket would still have, had it not been taken.
    pub(crate) fn undo_found(&self, found: Found<'_>, receipt: &Receipt) {
        let rules = &self.rules;
        let Some(hot) = &self.hot else {
            rules.undo(found, receipt);
            return;
        };
        self.with_again(hot, found, |bucket| match bucket {
            As::Spread(central, life) if receipt.plan.is_none() => {
                life.spread.undo(central, receipt).then_some(())
            }
            As::Spread(_, life) => self.fold_life(hot, found, life),
            As::Whole(word) => rules.undo(word, receipt).then_some(()),
        });
    }

    /// Takes up to `n` tokens, on credit if need be, and tells how many.
    pub(crate) fn charge_found(&self, found: Found<'_>, n: u64, plan: Option<Plan>) -> u64 {
        let rules = &self.rules;
        let Some(hot) = &self.hot else { return rules.charge_later(found, n, plan).unwrap_or(0) };
        let charged = self.with_again(hot, found, |bucket| match bucket {
            As::Spread(central, life) if plan.is_none() => life.spread.charge(central, n),
            As::Spread(_, life) => self.fold_life(hot, found, life),
            As::Whole(word) => rules.charge_later(word, n, plan),
        });
        charged.unwrap_or(0)
    }
}

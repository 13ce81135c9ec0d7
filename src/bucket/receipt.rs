//! Receipts of takes, and their settlement.

use std::time::Duration;

use crate::fault::{Fault, injected};
use crate::time::clock::Moment;
use crate::word::decision::Granted;
use crate::word::plan::PlanTerms;
use crate::word::state::{Left, Origin, Reading, Refill, State, TakeOutcome};
use crate::word::verb::{Call, Give, Reserve, Take, by_refill, kept};
use crate::word::wait::Wait;

/// A record of one take: the units, and the bucket before and after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt {
    pub(crate) origin: Origin,
    pub(crate) plan: Option<PlanTerms>,
    pub(crate) units: u64,
    /// Whole tokens of the units: those of the grant, but for [no limit](crate::Quota::UNLIMITED).
    pub(crate) tokens: u64,
    /// The [mark](State::empty_at) of the bucket after the take.
    pub(crate) empty_at: u64,
    /// Level before the take: the units in a bucket, those out on lease too, or the counts of a
    /// window.
    pub(crate) before: u64,
    /// Tick of the take.
    pub(crate) since: u64,
    /// The removals of the key's shard before the take; of an overflow bucket, the keys of the
    /// shard that had entered the store.
    pub(crate) removals: u64,
    /// Time from the take until all of its tokens are earned.
    pub(crate) delay: Duration,
    pub(crate) made: Moment,
}

impl Receipt {
    /// Returns the receipt of a call whose tokens may be earned later.
    #[cfg(test)]
    pub(crate) fn new(outcome: TakeOutcome, reading: &Reading, plan: Option<&PlanTerms>) -> Receipt {
        Receipt::of(Call { take: Take::OnCredit(outcome.taken), plan }, outcome, reading)
    }

    /// Returns the receipt of a call. A reservation that keeps a part of the burst is due when the
    /// part is there, too.
    pub(crate) fn of(Call { take, plan }: Call<'_>, outcome: TakeOutcome, reading: &Reading) -> Receipt {
        let TakeOutcome { taken, level, lag, .. } = outcome;
        by_refill!(*reading, plan, |by| {
            let receipt = Receipt::at_once(outcome, by, plan);
            let keep = match take {
                Take::Reserve(Reserve { keep, .. }) => keep,
                Take::OnCredit(_) => 0,
                _ => return receipt,
            };
            // A take of 0 is due immediately, even if the bucket is in debt.
            if taken == 0 {
                return receipt;
            }
            let terms = by.refill.terms();
            let due = terms.empty_level + terms.units(kept(keep, &by.refill));
            Receipt { delay: Wait::until(due, level, lag, by).duration(), ..receipt }
        })
    }

    /// Returns a grant of an attempt, and its receipt, which has no origin; `None` for a refusal.
    ///
    /// The ticks of the attempt count from the tick `begun`, and those of a receipt from the first.
    #[inline(always)]
    pub(crate) fn of_grant<P: Refill>(
        take: Take,
        (outcome, reading): (TakeOutcome, Reading<P>),
        begun: u64,
    ) -> Option<(Granted, Receipt)> {
        let tick = reading.tick.wrapping_add(begun);
        let receipt = || Receipt::at_once(outcome, &Reading { tick, ..reading }, None);
        outcome.granted.then(|| (take.granted(outcome, &reading), receipt()))
    }

    /// Returns the receipt of tokens that are there at the take.
    #[inline(always)]
    fn at_once<P: Refill>(outcome: TakeOutcome, reading: &Reading<P>, plan: Option<&PlanTerms>) -> Receipt {
        let TakeOutcome { taken, level, lag, origin, .. } = outcome;
        let (terms, since) = (reading.refill.terms(), reading.tick.wrapping_add(lag));
        Receipt {
            origin,
            plan: plan.copied(),
            units: taken,
            tokens: terms.tokens(taken),
            empty_at: terms.empty_at(since, level),
            before: reading.refill.before_take(level, taken),
            since,
            removals: 0,
            delay: Duration::ZERO,
            made: Moment(reading.nanos()),
        }
    }

    /// Returns the bucket as the take left it.
    ///
    /// In a limiter with plans `empty_at` alone does not identify that, so the stamp is added.
    pub(crate) fn left(&self, plans: bool) -> Left {
        Left { empty_at: self.empty_at, stamp: plans.then_some(self.since) }
    }

    /// Returns the receipt of a take that was not counted.
    pub(crate) fn void(made: Moment) -> Receipt {
        Receipt { made, ..Receipt::of_origin(Origin::Nowhere, None) }
    }

    /// Returns the receipt of a take of 0, which finds the bucket.
    pub(crate) fn of_origin(origin: Origin, plan: Option<PlanTerms>) -> Receipt {
        let (delay, made) = (Duration::ZERO, Moment(0));
        let (units, tokens) = (0, 0);
        Receipt { origin, plan, units, tokens, empty_at: 0, before: 0, since: 0, removals: 0, delay, made }
    }
}

/// A later change to the tokens of a take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Settle<'a> {
    /// Gives back up to `n` tokens, as far as they fit.
    Refund(u64),
    /// Gives back up to `n` tokens of a take: those that the bucket would still have without them.
    Excess(&'a Receipt, u64),
    /// Gives back the whole take, if no tokens were taken since.
    Cancel(&'a Receipt),
    /// Gives back the tokens that the bucket would still have without the take.
    Undo(&'a Receipt),
    /// Takes up to `n` tokens more, on credit if need be.
    Charge(u64),
}

impl Settle<'_> {
    /// Returns the tokens charged, and the state to commit, if any. There are none on a sealed
    /// bucket.
    ///
    /// `plans` returns whether a key may be under a plan. The bucket's capacity may be reduced by
    /// leases; an undo applies the same reduction to the level before the take, because leases had
    /// that room then, too.
    #[inline(always)]
    pub(crate) fn apply<P: Refill>(
        self,
        state: State,
        reading: &Reading<P>,
        plans: impl FnOnce() -> bool,
    ) -> (Option<u64>, Option<State>) {
        let Reading { refill, tick, .. } = reading;
        // Below 0 after such a reduction no unit would spill, as at 0.
        let room = |before: u64| before.saturating_sub(refill.nominal_capacity() - refill.capacity());
        let give = match self {
            Settle::Charge(_) if state == State::SEALED => return (None, None),
            Settle::Charge(n) => {
                let (outcome, next) = Take::OnCredit(n).apply(state, reading);
                return (Some(refill.terms().tokens(outcome.taken)), next);
            }
            Settle::Refund(n) => Give::Refund(n),
            Settle::Excess(receipt, _) if injected(Fault::ExcessAnyway) => {
                Give::Refund(refill.terms().tokens(receipt.units))
            }
            Settle::Excess(receipt, n) => {
                let Receipt { units, before, since, .. } = *receipt;
                let excess = refill.terms().units(n).min(units);
                // The other units stay taken: their take counts as one before the excess.
                let before = room(refill.after_take(before, units - excess));
                Give::Excess { units: excess, before, since }
            }
            Settle::Cancel(receipt) => Give::Cancel { units: receipt.units, left: receipt.left(plans()) },
            Settle::Undo(receipt) => {
                let Receipt { units, before, since, .. } = *receipt;
                Give::Undo { units, left: receipt.left(plans()), before: room(before), since }
            }
        };
        ((state != State::SEALED).then_some(0), give.apply(refill, state, *tick))
    }
}

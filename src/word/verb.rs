//! The verbs, as data: each is one pure step on the word.

use std::time::Duration;

use crate::fault::{Fault, injected};
use crate::rule::gate::Gate;
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::PlanTerms;
use crate::word::state::{Balance, Left, Reading, Refill, State, TakeOutcome};
use crate::word::wait::Wait;

/// A way to take tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Take {
    /// All of `n` tokens, now.
    Exactly(u64),
    /// All of `n` tokens, now, if `keep` hundredths of the burst stay.
    Above { n: u64, keep: u8 },
    /// Up to `n` tokens: those that are there.
    UpTo(u64),
    /// Up to `n` tokens: those that are there above `keep` hundredths of the burst.
    UpToAbove { n: u64, keep: u8 },
    /// All of the tokens, now or later.
    Reserve(Reserve),
    /// Up to `n` tokens as far as the debt allows. The tokens are used already, so there is no
    /// refusal.
    OnCredit(u64),
    /// No token. An uncharged bucket gets a level, so that a later settlement finds it.
    Touch,
}

/// All of `n` tokens, if they and `keep` hundredths of the burst are earned within `max_wait`
/// nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    pub(crate) n: u64,
    pub(crate) keep: u8,
    pub(crate) max_wait: u64,
}

impl From<Reserve> for Take {
    fn from(reserve: Reserve) -> Take {
        Take::Reserve(reserve)
    }
}

/// Returns the tokens of `percent` hundredths of the burst in force, of the plan's burst, or of a
/// window's limit.
///
/// Rounded up to whole tokens. From 100 on, only a take of 0 tokens is granted.
#[inline]
pub(crate) fn kept(percent: u8, refill: &impl Refill) -> u64 {
    let terms = refill.terms();
    if injected(Fault::KeptForgotten) {
        return 0;
    }
    // A burst is at most 2^40.
    let burst = terms.tokens(refill.nominal_capacity() - terms.empty_level);
    (burst * u64::from(percent)).div_ceil(100)
}

impl Take {
    /// Returns the take of all of `n` tokens now, if `keep` hundredths of the burst stay.
    #[inline]
    pub(crate) fn now(n: u64, keep: u8) -> Take {
        match keep {
            0 => Take::Exactly(n),
            keep => Take::Above { n, keep },
        }
    }

    /// Returns the outcome of a take of tokens that are there now, on a bucket where the tokens
    /// decide.
    ///
    /// An attempt makes no other take.
    #[inline(always)]
    pub(super) fn apply_at_once<P: Refill>(self, view: Balance, refill: &P) -> (TakeOutcome, Option<State>) {
        let units = |n| refill.terms().units(n);
        match self {
            // A take of 0 tokens is always granted.
            Take::Exactly(0) | Take::UpTo(0) | Take::Above { n: 0, .. } | Take::UpToAbove { n: 0, .. } => {
                (view.untouched(), None)
            }
            Take::Exactly(n) => view.take(refill, units(n)),
            Take::Above { n, keep } => view.take_above(refill, n, keep),
            Take::UpTo(n) => view.take_up_to(refill, units(n), 0),
            Take::UpToAbove { n, keep } => view.take_up_to(refill, units(n), kept(keep, refill)),
            Take::Reserve(_) | Take::OnCredit(_) | Take::Touch => (view.untouched(), None),
        }
    }

    /// Returns the outcome on a state, and the state to commit, if any.
    #[inline(always)]
    pub(crate) fn apply<P: Refill>(self, state: State, reading: &Reading<P>) -> (TakeOutcome, Option<State>) {
        match reading.refill.terms().gate {
            Gate::Counted => self.apply_by_tokens(state, reading),
            _ => self.apply_by_name(state, reading),
        }
    }

    /// Returns the outcome where all is granted or refused by the name of the quota.
    #[cold]
    fn apply_by_name<P: Refill>(self, state: State, reading: &Reading<P>) -> (TakeOutcome, Option<State>) {
        match self {
            // The tokens are used already, or none is taken.
            Take::OnCredit(_) | Take::Touch => self.apply_by_tokens(state, reading),
            take => state.take_by_name(&reading.refill, reading.tick, take.n()),
        }
    }

    #[inline(always)]
    fn apply_by_tokens<P: Refill>(self, state: State, reading: &Reading<P>) -> (TakeOutcome, Option<State>) {
        let Reading { refill, tick, .. } = reading;
        let units = |n| refill.terms().units(n);
        match self {
            // A take of 0 tokens is always granted.
            Take::Exactly(0) | Take::UpTo(0) | Take::UpToAbove { n: 0, .. } => {
                (reading.view(state).untouched(), None)
            }
            Take::Reserve(Reserve { n: 0, .. }) | Take::Above { n: 0, .. } => {
                (reading.view(state).untouched(), None)
            }
            Take::Exactly(n) => state.take(refill, *tick, units(n)),
            Take::Above { n, keep } => state.at(refill, *tick).take_above(refill, n, keep),
            Take::UpTo(n) => state.at(refill, *tick).take_up_to(refill, units(n), 0),
            Take::UpToAbove { n, keep } => {
                state.at(refill, *tick).take_up_to(refill, units(n), kept(keep, refill))
            }
            // A take of more than the burst is refused as a plain take is.
            Take::Reserve(Reserve { n, keep, .. })
                if refill.is_over_the_burst(n.saturating_add(kept(keep, refill))) =>
            {
                state.at(refill, *tick).take_above(refill, n, keep)
            }
            Take::Reserve(Reserve { n, keep, max_wait }) => {
                let keep = units(kept(keep, refill));
                let goal = units(n) + keep + refill.terms().empty_level;
                let wait = |view: &Balance| Wait::until(goal, view.level, view.lag, reading).nanos();
                let patient = |view: &Balance| max_wait == u64::MAX || wait(view) <= max_wait;
                state.reserve(refill, *tick, (units(n), keep), patient)
            }
            Take::OnCredit(n) => state.charge_up_to(refill, *tick, units(n)),
            Take::Touch => {
                let outcome = reading.view(state).untouched();
                let next = || State::pack(refill.terms(), outcome.level, *tick);
                (outcome, (!state.is_level()).then(next))
            }
        }
    }

    /// Returns the number of tokens asked for.
    pub(crate) fn n(self) -> u64 {
        match self {
            Take::Exactly(n) | Take::UpTo(n) | Take::OnCredit(n) => n,
            Take::Reserve(Reserve { n, .. }) | Take::Above { n, .. } | Take::UpToAbove { n, .. } => n,
            Take::Touch => 0,
        }
    }

    /// Returns the take that grants all of the tokens, or none of them.
    pub(crate) fn in_full(self) -> Take {
        match self {
            Take::Above { .. } => self,
            Take::UpToAbove { n, keep } => Take::Above { n, keep },
            take => Take::Exactly(take.n()),
        }
    }

    /// Returns whether this can never change a bucket: it asks for no token, or for more than the
    /// burst.
    pub(crate) fn never_writes(self, refill: &impl Refill) -> bool {
        match self {
            Take::Touch => false,
            Take::OnCredit(n) => n == 0,
            take if refill.terms().gate != Gate::Counted => {
                take.n() == 0 || refill.terms().gate == Gate::Shut
            }
            Take::Exactly(n) => n == 0 || refill.is_over_the_burst(n),
            Take::Above { n, keep } | Take::Reserve(Reserve { n, keep, .. }) => {
                n == 0 || refill.is_over_the_burst(n.saturating_add(kept(keep, refill)))
            }
            Take::UpToAbove { n, keep } => {
                n == 0 || refill.is_over_the_burst(kept(keep, refill).saturating_add(1))
            }
            Take::UpTo(n) => n == 0,
        }
    }

    /// Returns the grant, with the tokens that the outcome took.
    #[inline(always)]
    pub(crate) fn granted<P: Refill>(self, outcome: TakeOutcome, reading: &Reading<P>) -> Granted {
        match reading.refill.terms().gate {
            Gate::Counted => Granted::new(outcome, reading),
            Gate::Open => Granted::unlimited(self.n()),
            Gate::Shut => Granted::blocked(),
        }
    }

    /// Returns the refusal, with its reason and its wait.
    #[inline(always)]
    pub(crate) fn denied<P: Refill>(self, outcome: TakeOutcome, reading: Reading<P>) -> Denied {
        if reading.refill.terms().gate == Gate::Shut {
            return Denied::blocked(self.n());
        }
        match self {
            Take::Exactly(n) => Denied::exactly(n, outcome, reading),
            Take::Above { n, keep } => Denied::above(n, kept(keep, &reading.refill), outcome, reading),
            Take::Reserve(Reserve { n, keep, max_wait }) => {
                let kept = kept(keep, &reading.refill);
                match reading.refill.is_over_the_burst(n.saturating_add(kept)) {
                    true => Denied::too_many(n, outcome, reading),
                    false => Denied::in_debt(n, kept, max_wait, outcome, &reading),
                }
            }
            // No token is there, so the wait is for one.
            Take::UpToAbove { keep, .. } => Denied::above(1, kept(keep, &reading.refill), outcome, reading),
            Take::UpTo(_) | Take::OnCredit(_) | Take::Touch => Denied::empty(1, outcome, &reading),
        }
    }

    /// Returns the wait before this can be granted, of a bucket of which nothing was taken.
    fn wait<P: Refill>(self, seen: TakeOutcome, reading: Reading<P>) -> Option<Duration> {
        let need = match self {
            Take::Above { n: 0, .. } => 0,
            Take::Above { n, keep } => n.saturating_add(kept(keep, &reading.refill)),
            take => take.n(),
        };
        let there = match reading.refill.terms().gate {
            Gate::Counted => reading.refill.available(seen.level, seen.lag) >= need,
            Gate::Open => true,
            Gate::Shut => need == 0,
        };
        if there { Some(Duration::ZERO) } else { self.denied(seen, reading).retry_after() }
    }

    #[inline(always)]
    pub(crate) fn decision<P: Refill>(
        self,
        (outcome, reading): (TakeOutcome, Reading<P>),
    ) -> Result<Granted, Denied> {
        if outcome.granted { Ok(self.granted(outcome, &reading)) } else { Err(self.denied(outcome, reading)) }
    }
}

/// A take, and the plan that its key is under, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'p> {
    pub(crate) take: Take,
    pub(crate) plan: Option<&'p PlanTerms>,
}

impl From<Take> for Call<'_> {
    fn from(take: Take) -> Self {
        Call { take, plan: None }
    }
}

/// Runs an expression on a reference to a reading with the refill of its word: that of the terms,
/// of a plan, of places, or of windows.
macro_rules! by_refill {
    ($reading:expr, $plan:expr, |$by:ident| $run:expr) => {
        match ($reading.refill.widths.counts.counting, $plan) {
            ($crate::rule::counts::Counting::Bucket, None) => {
                let $by = &$reading;
                $run
            }
            ($crate::rule::counts::Counting::Bucket, Some(plan)) => {
                let $by = &$reading.under(plan);
                $run
            }
            ($crate::rule::counts::Counting::Places, plan) => {
                let $by = &$crate::word::places::PlaceTerms::of($reading, plan.map(|plan| plan.capacity));
                $run
            }
            (_, cap) => {
                let $by =
                    &$crate::word::window::WindowTerms::<{ $crate::word::window::ANY }>::of($reading, cap);
                $run
            }
        }
    };
}
pub(crate) use by_refill;

impl Call<'_> {
    /// Returns the outcome on a state, and the state to commit, if any.
    #[inline(always)]
    pub(crate) fn apply(self, state: State, reading: &Reading) -> (TakeOutcome, Option<State>) {
        by_refill!(*reading, self.plan, |by| self.take.apply(state, by))
    }

    /// Returns the bucket at a reading.
    pub(crate) fn view(self, state: State, reading: &Reading) -> Balance {
        by_refill!(*reading, self.plan, |by| by.view(state))
    }

    /// Returns whether this can never change a bucket.
    pub(crate) fn never_writes(self, reading: &Reading) -> bool {
        by_refill!(*reading, self.plan, |by| self.take.never_writes(&by.refill))
    }

    pub(crate) fn granted(self, outcome: TakeOutcome, reading: &Reading) -> Granted {
        by_refill!(*reading, self.plan, |by| self.take.granted(outcome, by))
    }

    pub(crate) fn decision(self, outcome: TakeOutcome, reading: Reading) -> Result<Granted, Denied> {
        by_refill!(reading, self.plan, |by| self.take.decision((outcome, *by)))
    }

    /// Returns a bucket of which nothing was taken, as this take sees it.
    pub(crate) fn snapshot(self, seen: TakeOutcome, reading: Reading) -> Snapshot {
        by_refill!(reading, self.plan, |by| {
            Snapshot::new(Take::Exactly(0).granted(seen, by), self.take.wait(seen, *by))
        })
    }
}

/// A way to give tokens back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Give {
    /// Up to `n` tokens, as far as they fit.
    Refund(u64),
    /// `units`, if the bucket stands as their take left it.
    Cancel { units: u64, left: Left },
    /// The part of `units` that the bucket would still hold without their take, whose caller was
    /// refused. They were taken at tick `since`, when the level was `before`.
    ///
    /// No unit is given back where a later caller waits, because the time of that reservation was
    /// computed on top of this take. The same holds where the bucket may have been used since under
    /// another plan, because that plan spills at another level.
    Undo { units: u64, left: Left, before: u64, since: u64 },
    /// As `Undo`, of the part of a take that its cost did not need. The take was a use, and later
    /// callers do not matter.
    Excess { units: u64, before: u64, since: u64 },
}

impl Give {
    /// Returns the state to commit, if any.
    #[inline(always)]
    pub(crate) fn apply(self, refill: &impl Refill, state: State, now: u64) -> Option<State> {
        match self {
            Give::Refund(n) => state.give(refill, now, refill.terms().units(n)),
            Give::Cancel { units, left } => state.give_back(refill, now, units, left),
            Give::Undo { units, left, before, since } => {
                let in_debt = state.at(refill, now).level < refill.terms().empty_level;
                let unsure = in_debt || left.stamp.is_some();
                if unsure && !state.stands(refill.terms(), now, left) {
                    return None;
                }
                state.untake(refill, now, units, before, since)
            }
            Give::Excess { units, before, since } if injected(Fault::UseForgotten) => {
                state.untake(refill, now, units, before, since)
            }
            Give::Excess { units, before, since } => state.undo(refill, now, units, before, since),
        }
    }
}

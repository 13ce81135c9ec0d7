//! The verbs that take, each as a step on the word. Pure, as [`State`] is.

use crate::word::decision::{Denied, Granted, Wait};
use crate::word::state::{Left, Outcome, State};
use crate::word::terms::{Reading, Refill};

/// A way to take tokens.
pub(crate) trait Step: Copy {
    fn run<P: Refill>(self, state: State, reading: &Reading<P>) -> (Outcome, Option<State>);

    /// What it takes if nothing counts it, in tokens.
    fn most(self) -> u64;

    /// Whether no bucket of this pace is ever changed by it: it asks for nothing, or for more than there ever is.
    fn never_writes(self, refill: &impl Refill) -> bool;

    /// Why, and for how long, it was not granted: not one token is there.
    fn denied<P: Refill>(self, outcome: Outcome, reading: Reading<P>) -> Denied {
        Denied::empty(1, outcome, &reading)
    }

    #[inline(always)]
    fn decision<P: Refill>(self, (outcome, reading): (Outcome, Reading<P>)) -> Result<Granted, Denied> {
        if outcome.granted { Ok(Granted::new(outcome, &reading)) } else { Err(self.denied(outcome, reading)) }
    }
}

/// Nothing is always granted.
#[inline]
fn nothing<P: Refill>(state: State, reading: &Reading<P>) -> (Outcome, Option<State>) {
    (reading.view(state).untouched(), None)
}

#[inline]
fn over_the_burst(n: u64, refill: &impl Refill) -> bool {
    let terms = refill.terms();
    terms.units(n) > refill.nominal_capacity() - terms.empty_level
}

/// All of so many tokens, now.
#[derive(Clone, Copy)]
pub(crate) struct Take(pub(crate) u64);

impl Step for Take {
    #[inline(always)]
    fn run<P: Refill>(self, state: State, reading: &Reading<P>) -> (Outcome, Option<State>) {
        match self.0 {
            0 => nothing(state, reading),
            n => state.take(&reading.refill, reading.tick, reading.refill.terms().units(n)),
        }
    }

    fn most(self) -> u64 {
        self.0
    }

    fn never_writes(self, refill: &impl Refill) -> bool {
        self.0 == 0 || over_the_burst(self.0, refill)
    }

    #[inline(always)]
    fn denied<P: Refill>(self, outcome: Outcome, reading: Reading<P>) -> Denied {
        if over_the_burst(self.0, &reading.refill) {
            return Denied::too_many(self.0, outcome, reading);
        }
        Denied::empty(self.0, outcome, &reading)
    }
}

/// Nothing yet, of a bucket that is to be charged later: it has a level from here on.
#[derive(Clone, Copy)]
pub(crate) struct Begin;

impl Step for Begin {
    fn run<P: Refill>(self, state: State, reading: &Reading<P>) -> (Outcome, Option<State>) {
        let (outcome, _) = nothing(state, reading);
        let begun = || State::pack(reading.refill.terms(), outcome.level, reading.tick);
        (outcome, (!state.is_level()).then(begun))
    }

    fn most(self) -> u64 {
        0
    }

    fn never_writes(self, _: &impl Refill) -> bool {
        false
    }
}

/// As many of so many tokens as are there.
#[derive(Clone, Copy)]
pub(crate) struct TakeUpTo(pub(crate) u64);

impl Step for TakeUpTo {
    fn run<P: Refill>(self, state: State, reading: &Reading<P>) -> (Outcome, Option<State>) {
        match self.0 {
            0 => nothing(state, reading),
            n => state.take_up_to(&reading.refill, reading.tick, reading.refill.terms().units(n)),
        }
    }

    fn most(self) -> u64 {
        self.0
    }

    fn never_writes(self, _: &impl Refill) -> bool {
        self.0 == 0
    }
}

/// So many tokens, as far as the debt allows: for what was used already, so nobody is refused.
pub(crate) fn charge_up_to<P: Refill>(
    n: u64,
    state: State,
    reading: &Reading<P>,
) -> (Outcome, Option<State>) {
    state.charge_up_to(&reading.refill, reading.tick, reading.refill.terms().units(n))
}

/// All of so many tokens, if they are earned within `max_wait` nanoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Reserve {
    pub(crate) n: u64,
    pub(crate) max_wait: u64,
}

impl Step for Reserve {
    fn run<P: Refill>(self, state: State, reading: &Reading<P>) -> (Outcome, Option<State>) {
        let Reading { refill, .. } = reading;
        if self.n == 0 {
            return nothing(state, reading);
        }
        if over_the_burst(self.n, refill) {
            // More than there ever is: refused as a take is.
            return Take(self.n).run(state, reading);
        }
        let patient =
            |ticks| self.max_wait == u64::MAX || Wait::of_ticks(ticks, reading).nanos() <= self.max_wait;
        state.reserve(refill, reading.tick, refill.terms().units(self.n), patient)
    }

    fn most(self) -> u64 {
        self.n
    }

    fn never_writes(self, refill: &impl Refill) -> bool {
        self.n == 0 || over_the_burst(self.n, refill)
    }

    fn denied<P: Refill>(self, outcome: Outcome, reading: Reading<P>) -> Denied {
        if over_the_burst(self.n, &reading.refill) {
            return Denied::too_many(self.n, outcome, reading);
        }
        Denied::in_debt(self.n, self.max_wait, outcome, &reading)
    }
}

/// A way to give tokens back.
pub(crate) trait Settle {
    fn run(&self, refill: &impl Refill, state: State, now: u64) -> Option<State>;
}

/// So many tokens, as many as fit.
pub(crate) struct Give(pub(crate) u64);

impl Settle for Give {
    fn run(&self, refill: &impl Refill, state: State, now: u64) -> Option<State> {
        state.give(refill, now, refill.terms().units(self.0))
    }
}

/// `units`, if the bucket stands as they left it.
pub(crate) struct GiveBack {
    pub(crate) units: u64,
    pub(crate) left: Left,
}

impl Settle for GiveBack {
    fn run(&self, refill: &impl Refill, state: State, now: u64) -> Option<State> {
        state.give_back(refill, now, self.units, self.left)
    }
}

/// The part of `units`, taken from `before` at the tick `since`, that the bucket would still have.
///
/// Nothing of it where a later caller waits, whose time was promised on top of it. Nothing either where
/// the bucket was used since and may have been so under another plan: it spills at another level then.
pub(crate) struct Undo {
    pub(crate) units: u64,
    pub(crate) left: Left,
    pub(crate) before: u64,
    pub(crate) since: u64,
}

impl Settle for Undo {
    fn run(&self, refill: &impl Refill, state: State, now: u64) -> Option<State> {
        let in_debt = state.at(refill, now).level < refill.terms().empty_level;
        let unsure = in_debt || self.left.stamp.is_some();
        if unsure && !state.stands(refill.terms(), now, self.left) {
            return None;
        }
        state.undo(refill, now, self.units, self.before, self.since)
    }
}

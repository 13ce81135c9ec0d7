//! The verbs that take, each as a step on the word. Pure, as [`State`] is.

use crate::word::decision::{Denied, Granted, Wait};
use crate::word::state::{Left, Outcome, State};
use crate::word::terms::{Pace, Reading};

/// A way to take tokens.
pub(crate) trait Step: Copy {
    fn run<P: Pace>(self, state: State, reading: &Reading<P>) -> (Outcome, Option<State>);

    /// What it takes if nothing counts it, in tokens.
    fn most(self) -> u64;

    /// Whether no bucket of this pace is ever changed by it: it asks for nothing, or for more than there ever is.
    fn is_vain(self, pace: &impl Pace) -> bool;

    /// Why, and for how long, it was not granted: not one token is there.
    fn denied<P: Pace>(self, outcome: Outcome, reading: Reading<P>) -> Denied {
        Denied::empty(1, outcome, &reading)
    }

    #[inline(always)]
    fn decision<P: Pace>(self, (outcome, reading): (Outcome, Reading<P>)) -> Result<Granted, Denied> {
        if outcome.granted { Ok(Granted::new(outcome, &reading)) } else { Err(self.denied(outcome, reading)) }
    }
}

/// Nothing is always granted.
#[inline]
fn nothing<P: Pace>(state: State, reading: &Reading<P>) -> (Outcome, Option<State>) {
    (reading.view(state).untouched(), None)
}

#[inline]
fn over_the_burst(n: u64, pace: &impl Pace) -> bool {
    let terms = pace.terms();
    terms.units(n) > pace.brim() - terms.floor
}

/// All of so many tokens, now.
#[derive(Clone, Copy)]
pub(crate) struct Take(pub(crate) u64);

impl Step for Take {
    #[inline(always)]
    fn run<P: Pace>(self, state: State, reading: &Reading<P>) -> (Outcome, Option<State>) {
        match self.0 {
            0 => nothing(state, reading),
            n => state.take(&reading.pace, reading.tick, reading.pace.terms().units(n)),
        }
    }

    fn most(self) -> u64 {
        self.0
    }

    fn is_vain(self, pace: &impl Pace) -> bool {
        self.0 == 0 || over_the_burst(self.0, pace)
    }

    #[inline(always)]
    fn denied<P: Pace>(self, outcome: Outcome, reading: Reading<P>) -> Denied {
        if over_the_burst(self.0, &reading.pace) {
            return Denied::too_many(self.0, outcome, reading);
        }
        Denied::empty(self.0, outcome, &reading)
    }
}

/// Nothing yet, of a bucket that is to be charged later: it has a level from here on.
#[derive(Clone, Copy)]
pub(crate) struct Begin;

impl Step for Begin {
    fn run<P: Pace>(self, state: State, reading: &Reading<P>) -> (Outcome, Option<State>) {
        let (outcome, _) = nothing(state, reading);
        let begun = || State::pack(reading.pace.terms(), outcome.level, reading.tick);
        (outcome, (!state.is_level()).then(begun))
    }

    fn most(self) -> u64 {
        0
    }

    fn is_vain(self, _: &impl Pace) -> bool {
        false
    }
}

/// As many of so many tokens as are there.
#[derive(Clone, Copy)]
pub(crate) struct TakeUpTo(pub(crate) u64);

impl Step for TakeUpTo {
    fn run<P: Pace>(self, state: State, reading: &Reading<P>) -> (Outcome, Option<State>) {
        match self.0 {
            0 => nothing(state, reading),
            n => state.take_up_to(&reading.pace, reading.tick, reading.pace.terms().units(n)),
        }
    }

    fn most(self) -> u64 {
        self.0
    }

    fn is_vain(self, _: &impl Pace) -> bool {
        self.0 == 0
    }
}

/// So many tokens, as far as the debt allows: for what was used already, so nobody is refused.
pub(crate) fn charge_up_to<P: Pace>(n: u64, state: State, reading: &Reading<P>) -> (Outcome, Option<State>) {
    state.charge_up_to(&reading.pace, reading.tick, reading.pace.terms().units(n))
}

/// All of so many tokens, if they are earned within `patience` nanoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Reserve {
    pub(crate) n: u64,
    pub(crate) patience: u64,
}

impl Step for Reserve {
    fn run<P: Pace>(self, state: State, reading: &Reading<P>) -> (Outcome, Option<State>) {
        let Reading { pace, .. } = reading;
        if self.n == 0 {
            return nothing(state, reading);
        }
        if over_the_burst(self.n, pace) {
            // More than there ever is: refused as a take is.
            return Take(self.n).run(state, reading);
        }
        let patient =
            |ticks| self.patience == u64::MAX || Wait::of_ticks(ticks, reading).nanos() <= self.patience;
        state.reserve(pace, reading.tick, pace.terms().units(self.n), patient)
    }

    fn most(self) -> u64 {
        self.n
    }

    fn is_vain(self, pace: &impl Pace) -> bool {
        self.n == 0 || over_the_burst(self.n, pace)
    }

    fn denied<P: Pace>(self, outcome: Outcome, reading: Reading<P>) -> Denied {
        if over_the_burst(self.n, &reading.pace) {
            return Denied::too_many(self.n, outcome, reading);
        }
        Denied::in_debt(self.n, self.patience, outcome, &reading)
    }
}

/// A way to give tokens back.
pub(crate) trait Settle {
    fn run(&self, pace: &impl Pace, state: State, now: u64) -> Option<State>;
}

/// So many tokens, as many as fit.
pub(crate) struct Give(pub(crate) u64);

impl Settle for Give {
    fn run(&self, pace: &impl Pace, state: State, now: u64) -> Option<State> {
        state.give(pace, now, pace.terms().units(self.0))
    }
}

/// `units`, if the bucket stands as they left it.
pub(crate) struct GiveBack {
    pub(crate) units: u64,
    pub(crate) left: Left,
}

impl Settle for GiveBack {
    fn run(&self, pace: &impl Pace, state: State, now: u64) -> Option<State> {
        state.give_back(pace, now, self.units, self.left)
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
    fn run(&self, pace: &impl Pace, state: State, now: u64) -> Option<State> {
        let in_debt = state.at(pace, now).level < pace.terms().floor;
        let unsure = in_debt || self.left.stamp.is_some();
        if unsure && !state.stands(pace.terms(), now, self.left) {
            return None;
        }
        state.undo(pace, now, self.units, self.before, self.since)
    }
}

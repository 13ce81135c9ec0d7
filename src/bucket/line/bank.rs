//! The bucket of a line, as the line sees it: readings, takes, and the return of the unused end of
//! a run.

use crate::fault::{Fault, injected};
use crate::word::decision::{Denied, Granted};
use crate::word::state::{Left, Reading, Refill, State};
use crate::word::terms::Terms;
use crate::word::verb::Give;

/// The word as a step of the line left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The [mark](crate::word::state::State::empty_at) of the bucket.
    pub(crate) empty_at: u64,
    pub(crate) stamp: u64,
}

impl Mark {
    /// Returns the word as a state at a tick.
    pub(crate) fn of(state: State, terms: &Terms, tick: u64) -> Mark {
        Mark { empty_at: state.empty_at(terms, tick), stamp: state.word() & terms.mask }
    }

    /// Gives back `units` if the state still stands at this mark: returns the mark after that, and
    /// the state to commit.
    ///
    /// `plans` returns whether a key may be under a plan: the stamp then has to be the same, too.
    pub(crate) fn give_back<P: Refill>(
        self,
        state: State,
        reading: &Reading<P>,
        units: u64,
        plans: impl FnOnce() -> bool,
    ) -> (Option<Mark>, Option<State>) {
        let (terms, tick) = (reading.refill.terms(), reading.tick);
        let stood = if injected(Fault::MarkUnseen) { Mark::of(state, terms, tick) } else { self };
        let left = Left { empty_at: stood.empty_at, stamp: plans().then_some(stood.stamp) };
        let next = Give::Cancel { units, left }.apply(&reading.refill, state, tick);
        (next.map(|next| Mark::of(next, terms, tick)), next)
    }
}

/// A bucket and its clock at one reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    pub(crate) tick: u64,
    /// Position of the reading.
    pub(crate) now: i64,
    /// Position at which the next stretch of the word begins, and the word; `None` if the bucket is
    /// lost.
    pub(crate) mark: Option<(i64, Mark)>,
    /// Units of a burst.
    pub(crate) burst: i64,
    /// Units that may be promised.
    pub(crate) debt: i64,
    /// Whether no token is granted until the rule is changed.
    pub(crate) is_shut: bool,
    /// Whether the bucket is certainly gone. Without a mark it may still be there: a receipt may be
    /// void without need.
    pub(crate) is_gone: bool,
    /// Whether positions are far from the base tick, and so must be counted anew.
    pub(crate) far: bool,
}

/// The outcome of a take for a position.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Credit {
    /// The position at which the tokens are earned, and the word after the take.
    Stretch { end: i64, mark: Mark },
    /// The debt has no room now.
    NoRoom,
    /// The stretch would be longer than a burst.
    TooLong,
    /// The bucket is lost.
    Lost,
}

/// The bucket of a line.
pub(crate) trait Bank {
    /// Reads the bucket and the clock. Positions count from the tick `base`, or without it from the
    /// reading.
    fn sight(&mut self, base: Option<u64>) -> Sight;
    /// Takes `n` tokens that are there, for a line without callers; `None` if the bucket is lost.
    fn take_now(&mut self, n: u64) -> Option<Result<Granted, Denied>>;
    /// Takes `units` on credit.
    fn take(&mut self, base: u64, units: u64) -> Credit;
    /// Gives back `units` if the word still stands at `mark`, and returns the word after that.
    fn give_back(&mut self, units: u64, mark: Mark) -> Option<Mark>;
    /// Returns the grant of `n` tokens to a caller that has waited for them. It takes nothing.
    fn granted(&self, n: u64) -> Granted;
    /// Returns the number of the version of the terms.
    fn version(&self) -> u64;
    /// Returns the units of `n` tokens, by the latest reading.
    fn units(&self, n: u64) -> u64;
    /// Returns the nanoseconds until `units` are earned, from the latest reading on.
    fn nanos(&self, units: i64) -> u64;
}

//! Refusals of tokens to come: for the debt, for a deadline, and for a full line.

use super::{Denied, Reason, Wait};
use crate::word::state::{Reading, Refill, TakeOutcome};

impl Denied {
    /// Returns the refusal of a reservation of `n` tokens above `kept` ones that exceeds the bound
    /// on debt, or the caller's `max_wait`.
    pub(crate) fn in_debt<P: Refill>(
        n: u64,
        kept: u64,
        max_wait: u64,
        outcome: TakeOutcome,
        reading: &Reading<P>,
    ) -> Denied {
        let terms = reading.refill.terms();
        let wait = |above| Wait::until(terms.units(n) + above, outcome.level, outcome.lag, reading).nanos();
        let (debt, deadline) = (
            wait(reading.refill.min_level()),
            wait(terms.empty_level + terms.units(kept)).saturating_sub(max_wait),
        );
        let remaining = reading.refill.available(outcome.level, outcome.lag);
        let denied = match debt > 0 {
            true => {
                let bound = terms.tokens(terms.empty_level - reading.refill.min_level());
                Denied::over_debt(n, bound, debt.max(deadline))
            }
            false => Denied::late(n, deadline),
        };
        Denied { remaining, ..denied }
    }

    /// Returns the refusal of a promise of `n` tokens over the bound on debt, for `wait`
    /// nanoseconds.
    #[cold]
    pub(crate) fn over_debt(n: u64, bound: u64, wait: u64) -> Denied {
        Denied { reason: Reason::Debt, remaining: 0, asked: n, retry: Some(Wait::beside(wait, bound)) }
    }

    /// Returns the refusal of `n` tokens that come too late, by `wait` nanoseconds.
    #[cold]
    pub(crate) fn late(n: u64, wait: u64) -> Denied {
        Denied { reason: Reason::Deadline, remaining: 0, asked: n, retry: Some(Wait::of_nanos(wait, 0)) }
    }

    /// Returns the refusal of a caller beside `waiting` others, the first of which is served after
    /// `wait` nanoseconds.
    #[cold]
    pub(crate) fn in_full_line(n: u64, waiting: usize, wait: u64) -> Denied {
        let retry = Some(Wait::beside(wait, waiting as u64));
        Denied { reason: Reason::Line, remaining: 0, asked: n, retry }
    }
}

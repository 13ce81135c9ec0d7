//! A line of callers that wait for tokens of one bucket.
//!
//! The bucket of a key may have several: one for each plan, and one for each key that shares it.
//! The order of arrival holds within a line. A caller has its position in the word's debt. The line
//! is a list of the callers beside it, under a mutex that only verbs touch which wait, reserve or
//! give back. When a caller leaves, all behind it move up, and the tokens at the end go back to the
//! word. When tokens come back, all move up.
//!
//! When the bucket is lost, the callers that are not due join the line of the next one, in order:
//! each leaves here once it has joined there, and that wakes the next one.
//!
//! A *position* is a virtual time in units, from the line's base tick on: the bucket earns one unit
//! at each. A caller has a stretch of them as long as its cost, and is due at the end: that is its
//! own position. The stretches of the line are its *runs*: more than one only where a reservation
//! or a charge came in between. A caller for whom the debt has no room stands in the *tail*,
//! without a position.
//!
//! ```text
//!            now                          mark of the word
//!             |                                  |
//!   run 1  [==A==|==B==|=C=]   run 2     [==D==| ]      then the tail: E, F
//!             head                             rest
//! ```
//!
//! # Invariants
//!
//! * *Invariant:* the law holds, because stretches are disjoint, and each lies within one burst
//!   before its grant. The head is not due, so its stretch begins less than its cost ago. Where no
//!   caller has a position, or one leaves, the runs are clamped to one burst before now.
//! * *Invariant:* the positions are in the order of the callers, because a run ends where the next
//!   begins or before, also if tokens came back since it was taken (`Runs::pull`).
//! * *Invariant:* no caller moves to a later position, because with fewer callers each takes the
//!   same stretch or an earlier one. A lower burst is the exception.
//! * *Invariant:* a stretch lies in one run, because across two it could be longer than a burst.
//! * *Invariant:* when the mutex is free, the timer of the head is at its turn or a wake-up is on
//!   its way, because each change of the head's turn ends with `CallerLine::wake_head`.
//! * *Invariant:* no plain take passes a caller with a position that is not due, because the word
//!   is then in debt. So a plain take needs no look at the line. If tokens come back, the verb that
//!   gave them serves the line: a plain take may come just before it.
//!
//! # Orderings
//!
//! The mutex orders the line. The word keeps its own loop and orderings: a line takes and gives
//! back by the steps of any caller. Checked by the models in `src/tests/models/line.rs`.

pub(crate) mod bank;
pub(crate) mod caller_line;
pub(crate) mod queue;
pub(crate) mod runs;
pub(crate) mod sums;
pub(crate) mod word_bank;

//! A bucket to ask: that of a key, the one bucket of a [`Limit`](crate::Limit), or the one that
//! requests without a key share.
//!
//! [`Ask`](crate::Ask) has each verb once, by the functions of [`Target`].

use std::task::Waker;

use crate::bucket::engine::{Done, Engine};
use crate::bucket::line::caller_line::LineTurn;
use crate::bucket::receipt::Receipt;
use crate::bucket::reservation::Ledger;
use crate::limiter::hook::DecisionHook;
use crate::limiter::options::CallOptions;
use crate::limiter::rule::Rule;
use crate::limiter::ticket::{LineTicket, Promise};
use crate::limiter::verbs::Verb;
use crate::time::jitter::Jitter;
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted};
use crate::word::verb::{Call, Reserve, Take};

/// A bucket that a request is for: [`Keyed`](crate::Keyed), [`PinnedKey`](crate::PinnedKey),
/// [`Shared`](crate::Shared) or a reference to a [`Limit`](crate::Limit).
///
/// Other crates cannot implement it, and need not name it: an [`Ask`](crate::Ask) is used in the
/// expression that makes it.
#[expect(private_bounds, reason = "sealed")]
pub trait Asked<'a>: Target<'a> {
    /// The rule of the bucket's limiter.
    type Rule: Rule;
}

/// The wish of a caller that may wait: its tokens, and its longest wait in nanoseconds.
///
/// `u64::MAX` is a wait without bound.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) n: u64,
    pub(crate) max_wait: u64,
}

/// The bucket of a request, with the steps of which the verbs are made.
///
/// Each step that returns a decision refuses a plan of another limiter, with
/// [`Reason::ForeignPlan`](crate::Reason::ForeignPlan). Only the buckets of keys have plans.
pub(crate) trait Target<'a>: Copy {
    /// Decides by a verb, and shows the decision to the hook.
    ///
    /// It makes one attempt, inlined into the caller. If that comes to nothing, one call out of
    /// line decides. The bucket of requests without a key has no attempt.
    fn decide<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer;

    /// Runs a take by the loop, without the hook. Returns the call with its plan, and the outcome.
    ///
    /// The outcome may be a take that was refused by the tokens. An error is a refusal without a
    /// look at a bucket: a foreign plan, or a new key that finds no room.
    fn run(self, take: Take, options: CallOptions<'_>) -> (Call, Result<Done, Denied>);

    /// Returns the tokens of the bucket, and the wait until the take would be granted.
    ///
    /// It takes nothing, makes no entry and shows nothing to the hook. Under a foreign plan there
    /// are 0 tokens, and the wait is `None`.
    fn peek(self, take: Take, options: CallOptions<'_>) -> Snapshot;

    /// Returns the refusal that a take would get, without the take.
    ///
    /// The hook sees only a refusal. In shadow mode there is none, and neither is there for a
    /// bucket that was never used and starts with too few tokens. The take that follows then
    /// decides.
    fn look(self, take: Take, options: CallOptions<'_>) -> Result<(), Denied>;

    /// Takes tokens, shows the decision to the hook, and returns a receipt for
    /// [`undo`](Self::undo).
    ///
    /// A panic of the hook undoes the take. If shadow mode overrules a refusal, the receipt is
    /// void: it gives nothing back.
    fn receive(self, take: Take, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied>;

    /// Undoes the take of a receipt: gives back the tokens that the bucket would still have without
    /// it.
    ///
    /// Nothing comes back if a later reservation waits. The same holds if plans exist and the
    /// bucket was used since.
    fn undo(self, receipt: &Receipt);

    /// Gives `n` tokens back, as many as fit; see [`Ask::refund`](crate::Ask::refund).
    fn refund(self, n: u64, options: CallOptions<'_>);

    /// Takes tokens as [`receive`](Self::receive) does, and returns a receipt for the
    /// [`ledger`](Self::ledger).
    ///
    /// The receipt finds the bucket without the key.
    fn hold(self, take: Take, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied>;

    /// Takes tokens that are there or will be earned within `max_wait`, and returns a receipt for
    /// the [`ledger`](Self::ledger). The hook sees the decision.
    ///
    /// The reservation stands behind the callers in line. With a `max_wait` of 0, and in shadow
    /// mode, it is a plain take.
    fn reserve(self, wanted: Reserve, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied>;

    /// Returns the ledger that settles receipts of [`hold`](Self::hold) and
    /// [`reserve`](Self::reserve).
    fn ledger(self) -> &'a (dyn Ledger + Send + Sync);

    /// Takes the tokens now, or joins the line of the bucket if they come in time.
    ///
    /// The hook sees a grant or a refusal, but not a caller that joins. A caller that would wait
    /// longer is refused with [`Reason::Deadline`](crate::Reason::Deadline), and one that finds the
    /// line full with [`Reason::Line`](crate::Reason::Line). With a longest wait of 0, and in
    /// shadow mode, the take alone decides.
    fn join(self, patience: Patience, options: CallOptions<'_>, waker: &Waker) -> Result<Promise, Denied>;

    /// Serves the callers in line that are due, and returns the turn of the caller of a ticket.
    ///
    /// `fired`: the timer of this caller is over. `waker` is woken when the caller is served or
    /// turned away, or when its turn gets earlier than its timer. The number is the version of the
    /// terms, which each change of the rule raises.
    fn look_at_turn(self, ticket: &LineTicket, fired: bool, waker: &Waker) -> (LineTurn, u64);

    /// Takes a caller out of the line; all behind it move up. A caller that was served meanwhile
    /// has spent its tokens.
    fn leave_line(self, ticket: &LineTicket);

    /// Returns the grant of a caller that was served, with the tokens that remain at this moment.
    /// It takes nothing.
    fn granted_in_line(self, ticket: &LineTicket) -> Granted;

    /// Returns the clock and the terms of the bucket.
    fn engine(&self) -> &Engine;

    /// Returns the hook of the limiter, which also has its shadow mode.
    fn hook(&self) -> &DecisionHook;

    /// Returns the random time by which the limiter lengthens waits.
    fn jitter(self) -> Jitter;
}

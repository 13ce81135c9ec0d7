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

/// The wish of a caller that may wait: its tokens, and the nanoseconds for which it is ready to
/// wait.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) n: u64,
    pub(crate) max_wait: u64,
}

/// The bucket of a request, by the steps of which the verbs are made.
pub(crate) trait Target<'a>: Copy {
    /// Decides by a verb: by an attempt, or by the one call after it.
    fn decide<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer;

    /// Runs a take that no hook sees.
    fn run(self, take: Take, options: CallOptions<'_>) -> (Call, Result<Done, Denied>);

    /// Returns the content of the bucket, as a take sees it.
    fn peek(self, take: Take, options: CallOptions<'_>) -> Snapshot;

    /// Returns the refusal of a take, without the take.
    fn look(self, take: Take, options: CallOptions<'_>) -> Result<(), Denied>;

    /// Takes tokens, shows the decision to the hook, and returns a receipt for the take.
    fn receive(self, take: Take, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied>;

    /// Gives back the tokens that the bucket would still have without the take.
    fn undo(self, receipt: &Receipt);

    /// Gives `n` tokens back.
    fn refund(self, n: u64, options: CallOptions<'_>);

    /// Takes tokens, and returns a receipt for the [`ledger`](Self::ledger).
    fn hold(self, take: Take, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied>;

    /// Takes tokens that are there or will be, and returns a receipt for the
    /// [`ledger`](Self::ledger).
    fn reserve(self, wanted: Reserve, options: CallOptions<'_>) -> Result<(Granted, Receipt), Denied>;

    fn ledger(self) -> &'a (dyn Ledger + Send + Sync);

    /// Takes the tokens now, or joins the line of the bucket if they come in time.
    fn join(self, patience: Patience, options: CallOptions<'_>, waker: &Waker) -> Result<Promise, Denied>;

    /// Returns the turn of a caller, and the version of the terms. `fired`: its timer is over.
    fn look_at_turn(self, ticket: &LineTicket, fired: bool, waker: &Waker) -> (LineTurn, u64);

    fn leave_line(self, ticket: &LineTicket);

    /// Returns the grant of a caller that was served.
    fn granted_in_line(self, ticket: &LineTicket) -> Granted;

    fn engine(&self) -> &Engine;

    fn hook(&self) -> &DecisionHook;

    fn jitter(self) -> Jitter;
}

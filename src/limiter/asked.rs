//! A bucket to ask: that of a key, the one bucket of a [`Limit`](crate::Limit), or the one that
//! requests without a key share.
//!
//! [`Ask`](crate::Ask) has each verb once, by the steps of [`Target`] and [`Site`].

use crate::bucket::engine::{Done, Engine};
use crate::bucket::line::caller_line::{CallerLine, Wakes};
use crate::bucket::receipt::Receipt;
use crate::bucket::reservation::Ledger;
use crate::keyed::in_line::{LineBank, Touch};
use crate::keyed::lines::LineId;
use crate::limiter::hook::DecisionHook;
use crate::limiter::rule::Rule;
use crate::limiter::verbs::Verb;
use crate::time::clock::Moment;
use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::PlanTerms;
use crate::word::state::Origin;
use crate::word::verb::{Call, Take};

/// A bucket that a request is for: [`Keyed`](crate::Keyed), [`PinnedKey`](crate::PinnedKey),
/// [`Shared`](crate::Shared) or a reference to a [`Limit`](crate::Limit).
///
/// Other crates cannot implement it, and need not name it: an [`Ask`](crate::Ask) is used in the
/// expression that makes it.
#[expect(private_bounds, reason = "sealed")]
pub trait Asked<'a>: Target + Lent<'a> {
    /// The rule of the bucket's limiter.
    type Rule: Rule;
}

/// The options of a call, beside its key and its tokens.
#[derive(Clone, Copy, Default)]
pub(crate) struct CallOptions<'a> {
    pub(crate) plan: Option<&'a PlanTerms>,
    pub(crate) now: Option<Moment>,
}

impl CallOptions<'_> {
    pub(crate) const NOW: CallOptions<'static> = CallOptions { plan: None, now: None };

    /// Returns whether the call is now, and under no plan.
    pub(super) fn is_plain(&self) -> bool {
        self.plan.is_none() && self.now.is_none()
    }
}

/// The parts of a limiter that all of its buckets share.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    /// The clock and the terms.
    pub(crate) engine: &'a Engine,
    /// The hook, which also has the shadow mode.
    pub(crate) hook: &'a DecisionHook,
    /// The random time by which waits are longer.
    pub(crate) jitter: Jitter,
    /// Most callers that wait in the line of a bucket.
    pub(crate) max_waiting: usize,
}

/// The bucket of a request.
pub(crate) trait Target: Copy {
    type Site: Site;

    /// Decides by a verb, and shows the decision to the hook.
    ///
    /// It makes one attempt, inlined into the caller. If that comes to nothing, one call out of
    /// line decides. The bucket of requests without a key has no attempt.
    fn decide<V: Verb>(self, verb: V, options: CallOptions<'_>) -> V::Answer;

    /// Returns the bucket for the steps of one call.
    fn site(self) -> Self::Site;

    /// Returns the parts that the buckets of the limiter share.
    fn frame(&self) -> Frame<'_>;

    /// Returns the ledger that settles the receipts of the bucket.
    fn settles(&self) -> &dyn Ledger;

    /// Runs `run` on a line of the bucket, and wakes callers after it.
    fn with_line<T>(
        self,
        id: &LineId,
        touch: Touch,
        run: impl FnOnce(Option<&mut CallerLine>, &mut LineBank<'_>, &mut Wakes) -> T,
    ) -> T;
}

/// A bucket whose ledger guards may borrow.
pub(crate) trait Lent<'a> {
    /// Returns the ledger that settles the receipts of the bucket.
    fn ledger(self) -> &'a (dyn Ledger + Send + Sync);
}

/// A bucket in one call: of a key, with its guard and its hash.
pub(crate) trait Site {
    /// Returns the removals of the key's shard, from which a receipt counts.
    fn removals(&self) -> u64 {
        0
    }

    /// Returns the number of keys that have entered the store, as long as the key of an overflow
    /// bucket has not.
    fn entered(&self, _: Origin) -> u64 {
        0
    }

    /// Returns the plan of a call that names `named`. `None` is the limiter's own rule.
    ///
    /// # Errors
    ///
    /// [`Reason::ForeignPlan`](crate::Reason::ForeignPlan) for a plan of another limiter. Only the
    /// buckets of keys have plans.
    fn plan<'p>(&'p self, named: Option<&'p PlanTerms>) -> Result<Option<&'p PlanTerms>, Denied> {
        named.map_or(Ok(None), |_| Err(Denied::foreign_plan()))
    }

    /// Runs a call by the loop, without the hook.
    ///
    /// The outcome may be a take that was refused by the tokens. Its origin finds the bucket
    /// without the key.
    ///
    /// # Errors
    ///
    /// The refusal of a new key that finds no room.
    fn charge(&self, call: Call<'_>, now: Option<Moment>) -> Result<Done, Denied>;

    /// Returns the grant of a take at the present time under no plan, and its receipt, if one
    /// attempt decides and the limiter has no hook.
    fn attempt(&self, _: Take) -> Option<(Granted, Receipt)> {
        None
    }

    /// Returns whether the bucket was ever charged, and the outcome that a call would have.
    fn look(&self, call: Call<'_>, now: Option<Moment>) -> (bool, Done);

    /// Gives `n` tokens back, as many as fit; see [`Ask::refund`](crate::Ask::refund).
    fn refund(&self, plan: Option<&PlanTerms>, n: u64);

    /// Runs a take under the plan of the call. Returns the call with its plan, and the outcome.
    #[inline(always)]
    fn run<'p>(&'p self, take: Take, options: CallOptions<'p>) -> (Call<'p>, Result<Done, Denied>) {
        match self.plan(options.plan) {
            Ok(plan) => {
                let call = Call { take, plan };
                (call, self.charge(call, options.now))
            }
            Err(denied) => (take.into(), Err(denied)),
        }
    }
}

//! The limits of a layer, and how they are taken at once.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use super::said::Said;
use super::stats::{LimitCounters, LimitStats};
use crate::http::{Check, Head, Policy};
use crate::limiter::all_of::{sealed, take_all};
use crate::word::decision::{Denied, Granted};

/// A request, as limits are asked about it.
pub(crate) struct LayerRequest<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) cost: u64,
    /// The limits of the layer.
    pub(crate) limits: usize,
    /// The faults of the setup that were said already.
    pub(crate) said: &'a Said,
    /// By limiters of layers before this one.
    pub(crate) counted: &'a [u64],
    /// The limit is enforced for some keys only, by their hash.
    pub(crate) sampled: bool,
    /// The hash of the first limit's key, or 0 if no share is sampled.
    pub(crate) hash: Cell<u64>,
    /// The tokens may be given back.
    pub(crate) refundable: bool,
}

/// What all limits of a layer came to.
pub(crate) struct ChainOutcome<'a> {
    pub(crate) kind: LimitOutcome,
    /// The limit that refused, or has the fewest tokens left. `None` if no limit applies.
    pub(crate) decider: Option<Decider<'a>>,
    /// Of all others.
    pub(crate) also: Vec<Arc<Policy>>,
    pub(crate) refunds: Vec<Refund>,
    pub(crate) which: usize,
}

/// The limit that decided on a request.
pub(crate) struct Decider<'a> {
    pub(crate) policy: Arc<Policy>,
    pub(crate) counters: &'a Arc<LimitCounters>,
}

pub(crate) enum LimitOutcome {
    Decided(Result<Granted, Denied>),
    /// No limit applies.
    Free,
    /// There is no key, and one is needed: perhaps by a fault of the setup.
    NoKey {
        check: Option<Check>,
    },
}

/// Gives back the tokens of a limit. Returns the tokens that are left then, if this limit decided.
pub(crate) type Refund = Box<dyn FnOnce() -> Option<Granted> + Send>;

impl<'a> ChainOutcome<'a> {
    pub(crate) fn new(kind: LimitOutcome, which: usize) -> ChainOutcome<'a> {
        ChainOutcome { kind, decider: None, also: Vec::new(), refunds: Vec::new(), which }
    }
}

/// The limits that apply to a request so far, the latest first: each is on the stack of the gate that found its key.
pub(crate) struct LimitChain<'a> {
    pub(crate) limit: &'a dyn sealed::Limit,
    pub(crate) before: Option<&'a LimitChain<'a>>,
    pub(crate) index: usize,
}

impl sealed::Limits for LimitChain<'_> {
    fn get(&self, index: usize) -> Option<&dyn sealed::Limit> {
        match index.cmp(&self.index) {
            std::cmp::Ordering::Greater => None,
            std::cmp::Ordering::Equal => Some(self.limit),
            std::cmp::Ordering::Less => self.before.and_then(|before| before.get(index)),
        }
    }
}

/// A limit, whatever its keys are.
pub(crate) trait DynLimit: Any + Send + Sync {
    /// Finds the key, and goes on to the others; the last takes of all or of none. What is left to say of this limit is added to what
    /// came of that.
    fn decide<'a>(
        &'a self,
        asked: &LayerRequest<'_>,
        rest: &'a [Arc<dyn DynLimit>],
        chain: Option<&LimitChain<'_>>,
    ) -> ChainOutcome<'a>;
    /// Of its limiter.
    fn id(&self) -> u64;
    /// Says a fault of the setup that a request shows, or without one that the source of keys has.
    fn examine(&self, head: Option<Head<'_>>, said: &Said);
    fn stats(&self) -> LimitStats;
}

/// The rest of the gates, of which there is one at first; after the last, the decision.
pub(crate) fn next<'a>(
    asked: &LayerRequest<'_>,
    rest: &'a [Arc<dyn DynLimit>],
    chain: Option<&LimitChain<'_>>,
) -> ChainOutcome<'a> {
    match (rest.split_first(), chain) {
        (Some((limit, rest)), chain) => limit.decide(asked, rest, chain),
        (None, None) => ChainOutcome::new(LimitOutcome::Free, usize::MAX),
        (None, Some(all)) => match take_all(all) {
            Ok((granted, which)) => ChainOutcome::new(LimitOutcome::Decided(Ok(granted)), which),
            Err(denied) => ChainOutcome::new(LimitOutcome::Decided(Err(denied.denied())), denied.which()),
        },
    }
}

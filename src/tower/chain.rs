//! The limits of a layer, taken at once: all of them or none.
//!
//! Each limit finds its key, puts itself on the stack as a `LimitChain`, and calls the next. The
//! last takes from all. On the way back each notes its policy and refund in the `LayerRequest`.

use std::any::Any;
use std::sync::Arc;

use super::said::Said;
use super::stats::{LimitCounters, LimitStats};
use crate::http::{Check, Head, Policy};
use crate::limiter::all_of::{sealed, take_all};
use crate::word::decision::{Denied, Granted};

/// A request to the limits of a layer, and the notes of the limits.
pub(crate) struct LayerRequest<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) cost: u64,
    /// Number of limits of the layer.
    pub(crate) limits: usize,
    /// Faults of the setup that were reported already.
    pub(crate) said: &'a Said,
    /// Limiters that counted the request in an outer layer.
    pub(crate) counted: &'a [u64],
    /// Whether refusals are enforced for a share of keys only, by their hash.
    pub(crate) sampled: bool,
    /// Hash of the first limit's key, or 0 if no share is sampled.
    pub(crate) hash: u64,
    /// The limit that refused, or has the fewest tokens left. `None` if no limit applies.
    pub(crate) decider: Option<Decider<'a>>,
    /// Policies of the other limits.
    pub(crate) also: Vec<Arc<Policy>>,
    /// Refunds of the limits, if the tokens may be given back.
    pub(crate) refunds: Option<Vec<Refund>>,
}

/// The limit that decided on a request.
pub(crate) struct Decider<'a> {
    pub(crate) policy: Arc<Policy>,
    pub(crate) counters: &'a Arc<LimitCounters>,
}

pub(crate) enum LimitOutcome {
    /// The decision, and the index of the limit that made it.
    Decided(Result<Granted, Denied>, usize),
    /// No limit applies.
    Free,
    /// A key is missing and needed, perhaps by a fault of the setup.
    NoKey { check: Option<Check> },
}

/// Gives back the tokens of a limit, and returns the tokens left if this limit decided.
pub(crate) type Refund = Box<dyn FnOnce() -> Option<Granted> + Send>;

/// The limits that apply so far, the latest first. Each link is on the stack of its limit.
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

/// A limit with its type of keys erased.
pub(crate) trait DynLimit: Any + Send + Sync {
    /// Decides on a request at this limit and the rest.
    fn decide<'a>(
        &'a self,
        asked: &mut LayerRequest<'a>,
        rest: &'a [Arc<dyn DynLimit>],
        chain: Option<&LimitChain<'_>>,
    ) -> LimitOutcome;
    /// Returns the id of the limiter.
    fn id(&self) -> u64;
    /// Reports a fault that `head` shows or, without `head`, a fault of the key source.
    fn examine(&self, head: Option<Head<'_>>, said: &Said);
    fn stats(&self) -> LimitStats;
}

/// Decides at the rest of the limits; after the last, takes from the whole chain.
pub(crate) fn next<'a>(
    asked: &mut LayerRequest<'a>,
    rest: &'a [Arc<dyn DynLimit>],
    chain: Option<&LimitChain<'_>>,
) -> LimitOutcome {
    match (rest.split_first(), chain) {
        (Some((limit, rest)), chain) => limit.decide(asked, rest, chain),
        (None, None) => LimitOutcome::Free,
        (None, Some(all)) => match take_all(all) {
            Ok((granted, which)) => LimitOutcome::Decided(Ok(granted), which),
            Err(denied) => LimitOutcome::Decided(Err(denied.denied()), denied.which()),
        },
    }
}

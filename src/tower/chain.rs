//! The limits of a layer, taken at once: all of them or none.
//!
//! Each limit finds its key, puts itself on the stack as a `LimitChain`, and calls the next. The
//! last takes from all. On the way back each notes its policy and refund in the `LayerRequest`.

use std::any::Any;
use std::sync::Arc;

use super::key_future::{Replies, SearchFuture};
use super::said::Said;
use super::stats::{LimitCounters, LimitStats};
use crate::http::{Check, Head, Policy};
use crate::limiter::all_of::{RequestAt, TakeOne, take_all};
use crate::limiter::place::Place;
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
    /// The way to change the takes of the limits later, if that may be needed.
    pub(crate) adjusts: Option<Vec<Adjust>>,
    /// The refusal of a limit in shadow mode, beside the grant of the other limits.
    pub(crate) over: Option<Box<(Denied, Decider<'a>)>>,
    /// Whether the limit that decided is in shadow mode, since no other one applies.
    pub(crate) silent: bool,
    pub(crate) pass: Pass,
    /// The replies of the limiters that were asked.
    pub(crate) replies: Option<&'a Replies>,
}

/// The way in which the limits are taken.
pub(crate) enum Pass {
    /// All of them now, or none. A refusal is final.
    Only,
    /// The same. After a refusal another pass decides.
    First,
    /// Each by a place in line.
    InLine(Box<Places>),
}

/// The places of a request at the limits so far, each at most `max_wait` nanoseconds from its turn.
pub(crate) struct Places {
    pub(crate) max_wait: u64,
    /// Most requests that wait for one key.
    pub(crate) max_waiting: usize,
    pub(crate) places: Vec<Place>,
}

impl Pass {
    /// Returns whether a refusal of this pass is the decision.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Pass::First)
    }
}

/// The limit that decided on a request.
pub(crate) struct Decider<'a> {
    pub(crate) policy: Arc<Policy>,
    pub(crate) counters: &'a Arc<LimitCounters>,
    pub(crate) ban: Ban,
}

/// The part of a ban in a refusal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ban {
    None,
    /// The refusal of the limit begins a ban.
    Begins,
    /// The key is banned.
    Refuses,
}

pub(crate) enum LimitOutcome {
    /// The decision, and the index of the limit that made it.
    Decided(Result<Granted, Denied>, usize),
    /// No limit applies.
    Free,
    /// A key is missing and needed, perhaps by a fault of the setup.
    NoKey { check: Option<Check> },
}

/// Changes the take of a granted request at one limit, and returns the tokens left if this limit
/// decided.
pub(crate) type Adjust = Box<dyn Fn(Adjustment) -> Option<Granted> + Send + Sync>;

/// A change of a take, in tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Adjustment {
    Refund(u64),
    /// Takes more, on credit if need be.
    Charge(u64),
}

/// The limits that apply so far, the latest first. Each link is on the stack of its limit.
pub(crate) struct LimitChain<'a> {
    pub(crate) limit: &'a dyn TakeOne,
    pub(crate) before: Option<&'a LimitChain<'a>>,
    pub(crate) index: usize,
}

impl RequestAt for LimitChain<'_> {
    fn request_at(&self, index: usize) -> Option<&dyn TakeOne> {
        match index.cmp(&self.index) {
            std::cmp::Ordering::Greater => None,
            std::cmp::Ordering::Equal => Some(self.limit),
            std::cmp::Ordering::Less => self.before.and_then(|before| before.request_at(index)),
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
    /// Returns whether the limit enforces its refusals for all keys, applies to all requests, has
    /// no bans, and asks no limiter.
    fn is_plain(&self) -> bool;
    /// Returns whether the limit has to search for the keys of requests, or to ask its limiter.
    fn searches(&self) -> bool;
    /// Returns whether the limit has to ask its limiter.
    fn asks(&self) -> bool;
    /// Returns the search for the key of a request, and the question of its cost.
    fn search(self: Arc<Self>, head: Head<'_>, cost: u64, counted: &[u64]) -> Option<SearchFuture>;
    /// Reports a fault that a request shows.
    fn examine(&self, head: Head<'_>, said: &Said);
    fn stats(&self) -> LimitStats;
}

/// Decides at the rest of the limits; after the last, takes from the whole chain.
#[inline(always)]
pub(crate) fn next<'a>(
    asked: &mut LayerRequest<'a>,
    rest: &'a [Arc<dyn DynLimit>],
    chain: Option<&LimitChain<'_>>,
) -> LimitOutcome {
    match (rest.split_first(), chain) {
        (Some((limit, rest)), chain) => limit.decide(asked, rest, chain),
        (None, None) => LimitOutcome::Free,
        // Each limit of the chain has its place already.
        (None, Some(_)) if matches!(asked.pass, Pass::InLine(_)) => LimitOutcome::Free,
        (None, Some(all)) => match take_all(all) {
            Ok((granted, which)) => LimitOutcome::Decided(Ok(granted), which),
            Err(denied) => LimitOutcome::Decided(Err(denied.denied()), denied.which()),
        },
    }
}

//! One limit of a layer, with its type of keys erased.

use std::any::Any;
use std::sync::Arc;

use super::ban::Ban;
use super::reported::Reported;
use super::request::{LentAnswer, LentFuture, Part, SearchFuture};
use super::stats::{LimitCounters, LimitStats};
use crate::http::{Check, Head, Policy};
use crate::limiter::all_of::Tokens;
use crate::limiter::place::Place;
use crate::time::clock::Clock;
use crate::word::decision::{Denied, Granted};

/// The part of a limit in each stage. A part is the request's part at this limit.
pub(crate) trait DynLimit: Any + Send + Sync {
    /// Returns an empty bucket.
    fn new_bucket(&self) -> Box<dyn Any + Send + Sync>;

    /// Returns the id of the limiter.
    fn id(&self) -> usize;
    /// Returns whether the limit searches for its keys.
    fn searches(&self) -> bool;
    /// Returns whether the decisions of the limiter are at hand.
    fn is_at_hand(&self) -> bool;
    /// Returns whether the limit bans keys.
    fn bans(&self) -> bool;
    /// Returns whether the limit spares some keys or all.
    fn spares(&self) -> bool;

    /// Returns the search for the key of a request to which the limit applies.
    fn search(&self, head: Head<'_>) -> Option<SearchFuture>;
    /// Finds the key, the plan and the role of the limit. `counted` are the limiters that counted
    /// the request in an outer layer. The error is a key that is missing and needed.
    fn find(
        &self,
        head: Head<'_>,
        counted: &[usize],
        reported: &Reported,
        part: &mut Part<'_>,
    ) -> Result<(), Option<Check>>;
    /// Returns a hash of the key, or 0.
    fn hash(&self, part: &Part<'_>) -> u64;
    /// Returns the refusal of a banned key.
    fn check_ban(&self, part: &Part<'_>) -> Option<Denied>;
    /// Asks a limiter that is not at hand.
    fn ask(&self, part: &Part<'_>, n: u64) -> Result<LentAnswer, LentFuture>;
    /// Takes the tokens of a limiter at hand.
    fn take(&self, part: &Part<'_>, n: u64) -> Result<Granted, Denied>;
    fn with_clock(&self, then: &mut dyn FnMut(&Clock));
    /// Calls `then` with the request as one of several limits.
    fn with_tokens(&self, part: &Part<'_>, n: u64, then: &mut dyn FnMut(&dyn Tokens));
    /// Takes a place in line by the longest wait in nanoseconds and the most requests of a key that
    /// wait. `None`: the limiter is not at hand.
    fn place(&self, part: &Part<'_>, n: u64, wait: (u64, usize)) -> Option<Result<(Granted, Place), Denied>>;
    /// Returns the granted tokens as lent: they go back unless they are spent.
    fn lend(&self, part: &Part<'_>, n: u64, granted: Granted) -> LentAnswer;

    /// Returns the policy of the rule in force.
    fn policy(&self, part: &Part<'_>) -> Arc<Policy>;
    /// Counts a refusal for the limit's lists and bans. Returns its policy and its part in a ban,
    /// which makes the wait longer. `banned`: the refusal is by a ban.
    fn refused(&self, part: &Part<'_>, n: u64, denied: &mut Denied, banned: bool) -> (Arc<Policy>, Ban);
    /// Returns the way to change a take later. `decided`: the limit decided.
    fn adjust(&self, part: &Part<'_>, decided: bool) -> Adjust;
    fn counters(&self) -> &Arc<LimitCounters>;
    /// Reports a fault that a request shows.
    fn examine(&self, head: Head<'_>, reported: &Reported);
    fn stats(&self) -> LimitStats;
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

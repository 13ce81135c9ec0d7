//! One limit of a layer, with its type of keys erased.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::ban::Ban;
use super::counts::{LimitCounters, LimitStats};
use super::limiter::Sleep;
use super::part::{Asked, LentFuture, Part, SearchFuture};
use super::reported::Reported;
use crate::request::check::Check;
use crate::request::key::Head;
use crate::response::policy::Policy;
use tollgate::Clock;
use tollgate::Tokens;
use tollgate::{Denied, Granted};

/// The part of a limit in each stage. A part is the request's part at this limit.
pub(crate) trait DynLimit: Any + Send + Sync {
    /// Returns an empty bucket.
    fn new_bucket(&self) -> Box<dyn Any + Send + Sync>;

    /// Returns the id of the limiter.
    fn id(&self) -> usize;
    /// Returns whether the limit searches for its keys.
    fn has_search(&self) -> bool;
    /// Returns whether the decisions of the limiter are at hand.
    fn is_at_hand(&self) -> bool;
    /// Returns whether the limit bans keys.
    fn has_bans(&self) -> bool;
    /// Returns whether the limit spares some keys or all.
    fn has_shadow(&self) -> bool;

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
    fn ask(&self, part: &Part<'_>, n: u64) -> Asked;
    /// Takes the tokens of a limiter at hand.
    fn take(&self, part: &Part<'_>, n: u64) -> Result<Granted, Denied>;
    fn clock(&self) -> Clock;
    /// Returns the refusal that a take would get at a limiter at hand, without the take; `None` if
    /// the tokens are there. No hook sees it.
    fn look(&self, part: &Part<'_>, n: u64) -> Option<Denied>;
    /// Calls `then` with the request as one of several limits.
    fn with_tokens(&self, part: &Part<'_>, n: u64, then: &mut dyn FnMut(&dyn Tokens));
    /// Takes the tokens of a limiter at hand within the longest wait of the line, by its timers.
    fn wait(&self, part: &Part<'_>, n: u64, max_wait: Duration, sleep: &Sleep) -> LentFuture;

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

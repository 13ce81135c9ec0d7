//! Another rule for some of the keys of a limiter.

use std::fmt;

use crate::limiter::rule::Rule;
use crate::rule::rate::Quota;
use crate::word::plan::PlanTerms;

/// Another rule for some of the keys, compiled for one limiter by
/// [`RateLimiter::plan`](crate::RateLimiter::plan).
///
/// A plan is a plain value and `Copy`: nothing is registered. A key is under the plan that a call
/// [names](crate::Ask::under), and keeps its tokens from plan to plan. Tokens earned since the
/// key's last use count at the plan of the present call.
///
/// Under a quota a key keeps the tokens that are *left*: an empty bucket under one plan is empty
/// under all, and an upgraded customer fills up at the new rate. A plan of windows is another limit
/// on the same count of *used* tokens: an upgraded customer has the difference at once.
///
/// # Of a quota
///
/// A plan counts in ticks of the limiter. It is right to one tick and to one unit of its own, a
/// small fraction of a token.
///
/// A plan is a ratio to the quota that was in force when the plan was made. A later
/// [`set_rule`](crate::RateLimiter::set_rule) changes its rate in proportion; its burst stays.
/// [`rule_under`](crate::RateLimiter::rule_under) returns the quota in force.
///
/// A plan made after a change counts from that change on. The time before the change earns nothing
/// under the plan, also at a clock reading that is behind the change.
///
/// # Of a window
///
/// A later [`set_rule`](crate::RateLimiter::set_rule) does not change the limit of a plan.
///
/// # Examples
///
/// ```
/// use tollgate::{RateLimiter, Window};
///
/// let day = Window::per_day(10);
/// let daily = RateLimiter::<String, _>::builder(day).headroom(day.with_limit(1_000)?)?.build();
/// let gold = daily.plan(day.with_limit(1_000)?)?;
/// assert!(daily.key("ada").n(10).try_acquire().is_ok());
/// assert_eq!(daily.key("ada").under(&gold).peek().remaining(), 990);
/// assert_eq!(gold.rule().limit(), 1_000);
/// # Ok::<(), tollgate::InvalidRule>(())
/// ```
#[derive(Clone, Copy, PartialEq)]
pub struct Plan<R: Rule = Quota> {
    pub(crate) terms: PlanTerms,
    pub(super) rule: R,
}

impl<R: Rule> Plan<R> {
    /// Returns the rule that the plan was made of.
    #[must_use]
    pub fn rule(&self) -> R {
        self.rule
    }
}

impl<R: Rule> fmt::Debug for Plan<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Plan").field(&format_args!("{}", self.rule)).finish()
    }
}

//! Quotas that are no rate: nothing is refused, or all.

use crate::rule::layout::RawQuota;
use crate::rule::rate::Quota;

/// Whether the tokens of a bucket decide, or the name of its quota does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// The tokens decide.
    Counted,
    /// Nothing is refused: [`Quota::UNLIMITED`].
    Open,
    /// All is refused: [`Quota::BLOCKED`], or a window that is blocked.
    Shut,
}

/// The numbers by which a bucket counts while no quota of a rate was named: 2^20 tokens, at 1,000 a
/// second. They leave room for most plans and later quotas.
const USUAL: RawQuota = RawQuota { tokens: 1_000, nanos: 1_000_000_000, burst: 1 << 20 };

impl Quota {
    /// No limit: each request is granted at once, whatever it asks for, and is counted.
    ///
    /// It is a quota [of a bucket or a limiter](crate::Limit::set_rule), or a
    /// [plan](crate::RateLimiter::plan) for some of its keys. Hooks, statistics and layers see each
    /// decision. [`Granted::remaining`](crate::Granted::remaining) is `u64::MAX`, and no wait is
    /// told.
    ///
    /// A grant takes the tokens that the bucket has, and none below 0. So a key that comes under a
    /// limit later has the tokens that are left. The bucket earns tokens as before: by the rate
    /// that was set last, under a plan by that of the limiter.
    ///
    /// * [`tokens`](Quota::tokens) and [`capacity`](Quota::capacity) are `u64::MAX`, and
    ///   [`period`](Quota::period) is 1 ns. The text form is `unlimited`.
    /// * A limiter that is built with it has room for quotas up to that of
    ///   [`headroom`](crate::Builder::headroom), by default for 2^20 tokens and some thousand a
    ///   second.
    /// * A decision costs about three times that under a rate.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Clock, Quota, RateLimiter};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let limiter = RateLimiter::<String>::builder(Quota::per_hour(10)).clock(clock).build();
    /// let partner = limiter.plan(Quota::UNLIMITED)?;
    /// for _ in 0..1_000 {
    ///     assert!(limiter.key("ada").under(&partner).try_acquire().is_ok());
    /// }
    /// // The tokens were counted: under the limiter's own quota none is left.
    /// assert_eq!(limiter.peek("ada").remaining(), 0);
    /// # Ok::<(), tollgate::InvalidRule>(())
    /// ```
    pub const UNLIMITED: Quota = Quota { tokens: u64::MAX, nanos: 1, burst: u64::MAX };

    /// A pause: each request for a token is refused, until another quota is set.
    ///
    /// It is a quota [of a bucket or a limiter](crate::Limit::set_rule), for all keys under
    /// whatever plan; or a [plan](crate::RateLimiter::plan) that shuts some keys out. A rate of 0
    /// is no quota.
    ///
    /// A refusal has [`Reason::Blocked`](crate::Reason::Blocked) and no wait: the end of the pause
    /// is not known. It changes no bucket and makes no entry. Buckets keep their tokens, and earn
    /// by the rate that was set last: the pause ends the grants, not the time.
    ///
    /// A new wait is refused at once. Of the callers in line, those with promised tokens are served
    /// as their tokens come due. The others sleep until the pause or their patience ends.
    ///
    /// A call that has begun before the pause may still be granted. So may tokens on a lease of a
    /// [spread](crate::LimitBuilder::spread) bucket, if their thread is stopped while it takes the
    /// lease. A pause ends with the next change of a quota that adapts.
    ///
    /// * [`tokens`](Quota::tokens) and [`capacity`](Quota::capacity) are 0, and
    ///   [`period`](Quota::period) is 1 ns. The text form is `blocked`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Clock, Quota, Reason, TokenBucket};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let quota = Quota::per_hour(10);
    /// let bucket = TokenBucket::builder(quota).clock(clock).build();
    /// assert!(bucket.try_acquire_n(4).is_ok());
    /// bucket.set_rule(Quota::BLOCKED)?;
    /// let denied = bucket.try_acquire().unwrap_err();
    /// assert_eq!((denied.reason(), denied.retry_after()), (Reason::Blocked, None));
    /// bucket.set_rule(quota)?;
    /// assert_eq!(bucket.peek().remaining(), 6);
    /// # Ok::<(), tollgate::InvalidRule>(())
    /// ```
    pub const BLOCKED: Quota = Quota { tokens: 0, nanos: 1, burst: 0 };

    /// Returns whether the quota is a rate, or one of the two names.
    pub(crate) const fn gate(&self) -> Gate {
        // A quota of a rate has at least 1 token and at most 10^12 a second.
        match self.burst {
            u64::MAX => Gate::Open,
            0 => Gate::Shut,
            _ => Gate::Counted,
        }
    }

    /// Returns the numbers by which a bucket counts: those of the quota, if it is a rate.
    pub(crate) const fn numbers_or_usual(&self) -> RawQuota {
        match self.gate() {
            Gate::Counted => self.numbers(),
            Gate::Open | Gate::Shut => USUAL,
        }
    }
}

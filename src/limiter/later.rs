//! The verbs for tokens of time to come, of requests under a quota alone: a reservation, and a wait
//! in this thread.

use crate::bucket::reservation::{LedgerOf, Reservation};
use crate::limiter::ask::Ask;
use crate::limiter::asked::Asked;
use crate::limiter::waiting::block;
use crate::rule::rate::Quota;
use crate::word::decision::{Denied, Granted};

impl<'a, B: Asked<'a, Rule = Quota>> Ask<'_, B> {
    /// Reserves the tokens that are there or will be earned: the bucket goes into debt.
    ///
    /// Each reservation has a time of its own, in order of arrival, behind the callers that wait in
    /// line. The debt is bounded by [`max_debt`](crate::LimitBuilder::max_debt), one burst by
    /// default. (The word of a few quotas above 10^11 tokens a second, or with bursts that take
    /// decades to fill, has no room for debt.) Plain takes never go into debt. A reservation of 0
    /// always succeeds, due at once. With [`within`](Self::within) zero the call is a plain take.
    ///
    /// A reservation takes the mutex of the line. It is refused, with
    /// [`Reason::Debt`](crate::Reason::Debt), while callers wait for whom the debt has no room.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the reservation can be made, or that the tokens are more than the burst
    /// and never come.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, RateLimiter};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let limiter = RateLimiter::<u64>::builder(Quota::per_second(10).burst(1)).clock(clock).build();
    /// assert_eq!(limiter.key(&1).reserve()?.commit().tokens(), 1);
    /// assert_eq!(limiter.key(&1).reserve()?.delay(), Duration::from_millis(100));
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn reserve(self) -> Result<Reservation<'a>, Denied> {
        let (granted, receipt) = self.reserved()?;
        Ok(Reservation::new(LedgerOf::Borrowed(self.bucket().ledger()), receipt, granted))
    }

    /// Waits for the tokens in this thread, and takes them.
    ///
    /// The length of the sleep is computed on the limiter's clock. The sleep itself is on the
    /// system's clock.
    ///
    /// Threads are served first come, first served, beside tasks that [wait](crate::_guide#wait).
    /// Any number may wait, unless [`max_waiting`](crate::LimitBuilder::max_waiting) is set. A
    /// change of the rule moves the times of waiting threads.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, without a sleep, if the line is full, if the tokens are more than the
    /// burst (see [`hold`](Self::hold) for a cost that is larger), or if the wait is longer than
    /// [`within`](Self::within). After a lower rate was set, such a wait is refused late. A limiter
    /// may also refuse a new key, with [`Reason::Full`](crate::Reason::Full).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, Reason, TokenBucket};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(1_000).burst(1));
    /// for _ in 0..3 {
    ///     bucket.ask().blocking_acquire()?; // the second and third a millisecond later each
    /// }
    ///
    /// let slow = TokenBucket::new(Quota::per_hour(1));
    /// assert!(slow.ask().blocking_acquire().is_ok());
    /// let denied = slow.ask().within(Duration::from_millis(5)).blocking_acquire().unwrap_err();
    /// assert_eq!(denied.reason(), Reason::Deadline); // now, not in 5 ms
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn blocking_acquire(self) -> Result<Granted, Denied> {
        block(self)
    }
}

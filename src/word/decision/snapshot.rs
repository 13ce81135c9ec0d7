//! The content of a bucket that was looked at.

use std::time::Duration;

use super::Granted;

/// The content of a bucket, from [`peek`](crate::TokenBucket::peek). No token was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Snapshot(pub(crate) Granted);

impl Snapshot {
    /// Returns the whole tokens in the bucket.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.0.remaining()
    }

    /// Returns the time from the look until the bucket has one token more than
    /// [`remaining`](Snapshot::remaining), if none is taken; `None` if it is full.
    #[must_use]
    pub fn next_token(&self) -> Option<Duration> {
        self.0.next_token()
    }

    /// Returns the time from the look until `n` tokens can be taken, if none is taken before; 0 if
    /// they are there, `None` if the bucket never holds as many.
    ///
    /// It is exact: see [`Granted::time_to`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, RateLimiter};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let limiter = RateLimiter::<String>::builder(Quota::per_minute(60)).clock(clock).build();
    /// let _ = limiter.try_acquire_n("ada", 60)?;
    /// assert_eq!(limiter.peek("ada").time_to(20), Some(Duration::from_secs(20)));
    /// assert_eq!(limiter.peek("bob").next_token(), None);
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    #[must_use]
    pub fn time_to(&self, n: u64) -> Option<Duration> {
        self.0.time_to(n)
    }

    /// Returns the time from the look until the bucket is full, if no more is taken; 0 if it is
    /// full.
    pub fn reset_after(&self) -> Duration {
        self.0.reset_after()
    }
}

/// A take of 0 tokens is always granted and serves as a look.
impl From<Granted> for Snapshot {
    fn from(granted: Granted) -> Snapshot {
        Snapshot(granted)
    }
}

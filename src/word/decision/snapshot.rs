//! The content of a bucket that was looked at.

use std::time::Duration;

use super::Granted;

/// The content of a bucket, from [`peek`](crate::Ask::peek). No token was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Snapshot {
    content: Granted,
    retry: Option<Duration>,
}

impl Snapshot {
    /// `content` is the grant of no token. The request that looked can be granted after `retry`.
    pub(crate) fn new(content: Granted, retry: Option<Duration>) -> Snapshot {
        Snapshot { content, retry }
    }

    /// Returns the time from the look until the request can be granted, with its tokens, its kept
    /// part and its plan, if none is taken before; 0 if it can be now, `None` if it never can.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let bucket = TokenBucket::builder(Quota::per_second(10)).clock(clock).build();
    /// let _ = bucket.try_acquire_n(8)?;
    /// let ask = bucket.ask().n(5);
    /// assert_eq!(ask.peek().retry_after(), Some(Duration::from_millis(300)));
    /// assert_eq!(ask.keep(50).peek().retry_after(), Some(Duration::from_millis(800)));
    /// assert_eq!(ask.n(11).peek().retry_after(), None);
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry
    }

    /// Returns the whole tokens in the bucket.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.content.remaining()
    }

    /// Returns the time from the look until the bucket has one token more than
    /// [`remaining`](Snapshot::remaining), if none is taken; `None` if it is full.
    #[must_use]
    pub fn next_token(&self) -> Option<Duration> {
        self.content.next_token()
    }

    /// Returns the time from the look until the bucket is full, if no more is taken; 0 if it is
    /// full.
    pub fn reset_after(&self) -> Duration {
        self.content.reset_after()
    }
}

/// The look of a request for one token: a grant of 0 tokens has the content of its bucket.
impl From<Granted> for Snapshot {
    fn from(content: Granted) -> Snapshot {
        Snapshot { content, retry: content.time_to(1) }
    }
}

/// The content of the bucket, as a grant of no token has it.
impl From<Snapshot> for Granted {
    fn from(seen: Snapshot) -> Granted {
        seen.content
    }
}

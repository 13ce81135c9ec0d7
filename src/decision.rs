//! What a decision says. Plain values: durations are computed when asked for.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::state::{Outcome, View};
use crate::terms::{Terms, TickClock};

/// Some ticks from a clock reading on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    ticks: u64,
    from: u64,
    clock: TickClock,
}

impl Wait {
    fn duration(self) -> Duration {
        Duration::from_nanos(self.clock.nanos_until(self.from, self.ticks))
    }

    /// Until the bucket has `goal` units, from `level` at `lag` ticks after the reading.
    #[inline]
    fn until(terms: &Terms, goal: u64, level: u64, lag: u64, from: u64) -> Wait {
        let missing = goal.saturating_sub(level);
        let lag = if missing == 0 { 0 } else { lag };
        Wait { ticks: terms.ticks_for(missing) + lag, from, clock: terms.ticks }
    }
}

/// Tokens were granted.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, Quota, TokenBucket};
///
/// let (clock, _mock) = Clock::mock();
/// let bucket = TokenBucket::with_clock(Quota::per_second(10), clock);
/// let granted = bucket.try_acquire_n(4)?;
/// assert_eq!(granted.remaining(), 6);
/// assert_eq!(granted.reset_after(), Duration::from_millis(400));
/// # Ok::<(), tollgate::Denied>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Granted {
    remaining: u64,
    reset: Wait,
}

impl Granted {
    #[inline]
    pub(crate) fn new(terms: &Terms, level: u64, lag: u64, from: u64) -> Granted {
        let reset = Wait::until(terms, terms.capacity, level, lag, from);
        Granted { remaining: terms.tokens(level), reset }
    }

    /// Whole tokens left in the bucket after this decision, at its moment.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// From the decision until the bucket is full, if nobody takes more; 0 if it is full.
    ///
    /// At most the time to fill an empty bucket, but for a clock reading that was behind, which adds by
    /// how much.
    pub fn reset_after(&self) -> Duration {
        self.reset.duration()
    }
}

/// What is in a bucket, from [`peek`](crate::TokenBucket::peek). Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Snapshot(Granted);

impl Snapshot {
    #[inline]
    pub(crate) fn new(terms: &Terms, view: View, from: u64) -> Snapshot {
        Snapshot(Granted::new(terms, view.level, view.lag, from))
    }

    /// Whole tokens in the bucket.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.0.remaining
    }

    /// From the moment of the look until the bucket is full, if nobody takes more; 0 if it is full.
    pub fn reset_after(&self) -> Duration {
        self.0.reset_after()
    }

    /// Taking nothing is always granted.
    pub(crate) fn granted(self) -> Granted {
        self.0
    }
}

/// Tokens were not granted, and none were taken.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, Quota, Reason, TokenBucket};
///
/// let (clock, mock) = Clock::mock();
/// let bucket = TokenBucket::with_clock(Quota::per_second(10), clock);
/// let _ = bucket.try_acquire_n(9)?;
///
/// let denied = bucket.try_acquire_n(3).unwrap_err();
/// assert_eq!((denied.reason(), denied.remaining()), (Reason::Empty, 1));
/// assert_eq!(denied.retry_after(), Some(Duration::from_millis(200)));
/// mock.advance(Duration::from_millis(200));
/// assert!(bucket.try_acquire_n(3).is_ok());
///
/// // More than the bucket ever holds.
/// let denied = bucket.try_acquire_n(11).unwrap_err();
/// assert_eq!((denied.reason(), denied.retry_after()), (Reason::TooMany, None));
/// # Ok::<(), tollgate::Denied>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Denied {
    reason: Reason,
    remaining: u64,
    retry: Option<Wait>,
}

/// Why tokens were [`Denied`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// There are not enough tokens now.
    Empty,
    /// More tokens were asked for than the bucket ever holds.
    TooMany,
    /// The key is new, and the limiter has no room for it
    /// (only with [`WhenFull::Deny`](crate::WhenFull::Deny)).
    Full,
}

impl Denied {
    #[inline]
    pub(crate) fn empty(terms: &Terms, need: u64, outcome: Outcome, from: u64) -> Denied {
        let retry = Wait::until(terms, need, outcome.level, outcome.lag, from);
        Denied { reason: Reason::Empty, remaining: terms.tokens(outcome.level), retry: Some(retry) }
    }

    pub(crate) fn too_many(snapshot: Snapshot) -> Denied {
        Denied { reason: Reason::TooMany, remaining: snapshot.remaining(), retry: None }
    }

    /// No room; there may be some at the clock reading `due`, if ever.
    pub(crate) fn full(from: u64, due: Option<u64>) -> Denied {
        let wait = |due: u64| Wait { ticks: due.saturating_sub(from), from, clock: TickClock::NANOS };
        Denied { reason: Reason::Full, remaining: 0, retry: due.map(wait) }
    }

    /// How long after the decision the same request is granted, if nobody takes tokens in between.
    ///
    /// Exact on the limiter's clock: one nanosecond earlier it is refused. `None` if it can never be
    /// granted. With [`Reason::Full`] it is when room for a new key may be due, at the earliest: zero until the
    /// limiter has looked at all of its keys in vain, of which each such call does 64.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry.map(Wait::duration)
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Whole tokens in the bucket; 0 if there is none.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }
}

impl Error for Denied {}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::Empty => write!(f, "not enough tokens: {} left", self.remaining)?,
            Reason::TooMany => f.write_str("more tokens than the bucket ever holds")?,
            Reason::Full => f.write_str("no room for a new key")?,
        }
        match self.retry_after() {
            Some(wait) => write!(f, ", retry after {wait:?}"),
            None => Ok(()),
        }
    }
}

//! Results of a decision. Plain values: durations are computed when asked for.

mod debug;
mod equal;
mod promised;
pub(crate) mod snapshot;
mod waits;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::word::refilled::Refilled;
use crate::word::state::{Reading, Refill, TakeOutcome};
use crate::word::wait::{Wait, cut};

/// Tokens were granted.
///
/// Grants are equal that have the same tokens and the same waits, at whatever moments they were
/// made.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, Quota, TokenBucket};
///
/// let (clock, _mock) = Clock::mock();
/// let bucket = TokenBucket::builder(Quota::per_second(10)).clock(clock).build();
/// let granted = bucket.try_acquire_n(4)?;
/// assert_eq!(granted.remaining(), 6);
/// assert_eq!(granted.reset_after(), Duration::from_millis(400));
/// # Ok::<(), tollgate::Denied>(())
/// ```
#[derive(Clone, Copy)]
pub struct Granted {
    tokens: u64,
    remaining: u64,
    refilled: Refilled,
}

/// One word more costs each decision whose grant is passed on some 12 instructions.
const _: () = assert!(size_of::<Granted>() == 64);

impl Granted {
    #[inline]
    pub(crate) fn new<P: Refill>(outcome: TakeOutcome, reading: &Reading<P>) -> Granted {
        let TakeOutcome { taken, level, lag, .. } = outcome;
        let Reading { refill, at, tick } = reading;
        let refilled = refill.refilled(*at, *tick, level, lag);
        Granted { tokens: refill.terms().tokens(taken), remaining: refill.available(level, lag), refilled }
    }

    /// Returns a grant that took nothing from a bucket: by shadow mode, without a limit, or of 0
    /// tokens.
    pub(crate) fn anyway(tokens: u64, remaining: u64) -> Granted {
        Granted { tokens, remaining, refilled: Refilled::Told { reset: 0 } }
    }

    /// Returns a grant without a limit.
    #[cold]
    pub(crate) fn unlimited(tokens: u64) -> Granted {
        Granted::anyway(tokens, u64::MAX)
    }

    /// Returns a grant of no token, of a limit that is blocked.
    #[cold]
    pub(crate) fn blocked() -> Granted {
        Granted { tokens: 0, remaining: 0, refilled: Refilled::Never }
    }

    /// Returns this state of the bucket as the grant of `n` tokens.
    pub(crate) fn of_tokens(self, n: u64) -> Granted {
        Granted { tokens: n, ..self }
    }

    /// Returns a grant from a lease, when `remaining` tokens were known to be left. The bucket is
    /// full in at most `nanos` nanoseconds.
    #[inline(always)]
    pub(crate) fn leased(tokens: u64, remaining: u64, nanos: u64) -> Granted {
        Granted { tokens, remaining, refilled: Refilled::Told { reset: nanos } }
    }

    /// Returns the grant of a limiter that is not of this crate, such as one that a fleet shares.
    ///
    /// A wait of more than 584 years is cut.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Granted;
    ///
    /// let granted = Granted::from_parts(1, 9, Duration::from_secs(1));
    /// assert_eq!((granted.tokens(), granted.remaining()), (1, 9));
    /// assert_eq!(granted.reset_after(), Duration::from_secs(1));
    /// ```
    #[must_use]
    pub fn from_parts(tokens: u64, remaining: u64, reset_after: Duration) -> Granted {
        Granted { tokens, remaining, refilled: Refilled::Told { reset: cut(reset_after) } }
    }

    /// Returns the tokens that were granted: the number asked for, or fewer by
    /// [`acquire_up_to`](crate::Ask::acquire_up_to).
    ///
    /// A grant of an [`all_of`](crate::all_of) has the tokens of the limit with the fewest left. In
    /// shadow mode, and by [`WhenFull::Allow`](crate::WhenFull::Allow), no bucket may have counted
    /// the tokens of a grant.
    #[inline]
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns the whole tokens left in the bucket after this decision, at its moment.
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the time from the decision until the bucket has one token more than
    /// [`remaining`](Granted::remaining), if no more is taken; `None` if it is full.
    ///
    /// See [`time_to`](Granted::time_to).
    #[must_use]
    pub fn next_token(&self) -> Option<Duration> {
        self.time_to(self.remaining().checked_add(1)?).filter(|wait| !wait.is_zero())
    }

    /// Returns the time from the decision until `n` tokens can be taken, if no more is taken
    /// before; 0 if they are left, `None` if the bucket never holds as many.
    ///
    /// The time is exact on the limiter's clock, as [`Denied::retry_after`] is: one nanosecond
    /// earlier a take of `n` is refused. Under a [plan](crate::Plan) that holds for the next token
    /// and for a full bucket; the times between may be two ticks of the limiter too long. In a
    /// grant from a [lease](crate::LimitBuilder::spread) and in one [from
    /// parts](Granted::from_parts) the time is that of a full bucket.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let (clock, mock) = Clock::mock();
    /// let bucket = TokenBucket::builder(Quota::per_second(10)).clock(clock).build();
    /// let granted = bucket.try_acquire_n(8)?;
    /// assert_eq!(granted.next_token(), Some(Duration::from_millis(100)));
    /// assert_eq!(granted.time_to(2), Some(Duration::ZERO));
    /// assert_eq!(granted.time_to(5), Some(Duration::from_millis(300)));
    /// assert_eq!(granted.time_to(11), None);
    /// mock.advance(Duration::from_millis(300));
    /// assert!(bucket.try_acquire_n(5).is_ok());
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    #[must_use]
    pub fn time_to(&self, n: u64) -> Option<Duration> {
        self.nanos_until(n).map(Duration::from_nanos)
    }

    /// Returns the time from the decision until the bucket is full, if no more is taken; 0 if it is
    /// full.
    ///
    /// The time is at most that to fill an empty bucket, plus the lag of a clock reading that was
    /// behind.
    pub fn reset_after(&self) -> Duration {
        Duration::from_nanos(self.reset_nanos())
    }
}

/// Tokens were not granted, and none were taken.
///
/// Refusals that print the same are equal, at whatever moments they were made.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, Quota, Reason, TokenBucket};
///
/// let (clock, mock) = Clock::mock();
/// let bucket = TokenBucket::builder(Quota::per_second(10)).clock(clock).build();
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
#[derive(Clone, Copy)]
#[must_use]
#[non_exhaustive]
pub struct Denied {
    reason: Reason,
    remaining: u64,
    asked: u64,
    retry: Option<Wait>,
}

/// The reason why tokens were [`Denied`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// There are not enough tokens now.
    Empty,
    /// More tokens were asked for than the bucket ever holds.
    TooMany,
    /// The key is new, and the limiter has no room for it.
    ///
    /// A limiter decides so by [`WhenFull::Deny`](crate::WhenFull::Deny). By
    /// [`WhenFull::Share`](crate::WhenFull::Share) it decides so for a key whose plan has no shared
    /// buckets. Under any policy it denies a key whose entry other threads insert and evict again
    /// and again during the call.
    Full,
    /// The debt to waiting callers has no room for these tokens under its bound,
    /// [`max_debt`](crate::Builder::max_debt).
    Debt,
    /// As many callers wait as [`max_waiting`](crate::Builder::max_waiting) allows.
    Line,
    /// The tokens would come later than the caller is ready to wait.
    Deadline,
    /// The limit is [blocked](crate::Quota::BLOCKED), until another one is set.
    Blocked,
    /// The plan was made for another limiter.
    ForeignPlan,
    /// More than 64 limits were to be taken [at once](crate::all_of).
    TooManyLimits,
    /// The limiter could not ask the store that holds its buckets. No limiter of this crate has
    /// one. Over HTTP this is 503.
    Unavailable,
}

/// Returns the decision on a take of exactly `n` tokens.
#[cfg(test)]
pub(crate) fn exactly<P: Refill>(
    n: u64,
    (outcome, reading): (TakeOutcome, Reading<P>),
) -> Result<Granted, Denied> {
    match outcome.granted {
        true => Ok(Granted::new(outcome, &reading)),
        false => Err(Denied::exactly(n, outcome, reading)),
    }
}

impl Denied {
    #[inline(always)]
    pub(crate) fn exactly<P: Refill>(n: u64, outcome: TakeOutcome, reading: Reading<P>) -> Denied {
        match reading.refill.is_over_the_burst(n) {
            true => Denied::too_many(n, outcome, reading),
            false => Denied::empty(n, outcome, &reading),
        }
    }

    #[inline]
    pub(crate) fn empty<P: Refill>(asked: u64, outcome: TakeOutcome, reading: &Reading<P>) -> Denied {
        let terms = reading.refill.terms();
        let need = terms.units(asked) + terms.empty_level;
        let retry = Some(Wait::until(need, outcome.level, outcome.lag, reading));
        Denied {
            reason: Reason::Empty,
            remaining: reading.refill.available(outcome.level, outcome.lag),
            asked,
            retry,
        }
    }

    #[cold]
    pub(crate) fn too_many<P: Refill>(asked: u64, outcome: TakeOutcome, reading: Reading<P>) -> Denied {
        // A window or places, blocked by a limit of 0 that is a count like any other.
        if reading.refill.capacity() == 0 {
            return Denied::blocked(asked);
        }
        let remaining = reading.refill.available(outcome.level, outcome.lag);
        Denied { reason: Reason::TooMany, remaining, asked, retry: None }
    }

    /// Returns the refusal of a take that would leave fewer than `kept` tokens.
    #[cold]
    pub(crate) fn above<P: Refill>(
        asked: u64,
        kept: u64,
        outcome: TakeOutcome,
        reading: Reading<P>,
    ) -> Denied {
        Denied { asked, ..Denied::exactly(asked.saturating_add(kept), outcome, reading) }
    }

    /// Returns the refusal of a new key. Room may come at the clock reading `due`, if ever.
    pub(crate) fn full(asked: u64, from: u64, due: Option<u64>) -> Denied {
        let wait = |due: u64| Wait::of_nanos(due.saturating_sub(from), from);
        Denied { reason: Reason::Full, remaining: 0, asked, retry: due.map(wait) }
    }

    /// Returns the refusal of a limit that is blocked.
    #[cold]
    pub(crate) fn blocked(asked: u64) -> Denied {
        Denied { reason: Reason::Blocked, remaining: 0, asked, retry: None }
    }

    pub(crate) fn foreign_plan() -> Denied {
        Denied { reason: Reason::ForeignPlan, remaining: 0, asked: 0, retry: None }
    }

    pub(crate) fn too_many_limits() -> Denied {
        Denied { reason: Reason::TooManyLimits, remaining: 0, asked: 0, retry: None }
    }

    /// Returns the refusal of a limiter that is not of this crate, such as one that a fleet shares.
    ///
    /// A wait of more than 584 years is cut.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Denied, Reason};
    ///
    /// let denied = Denied::from_parts(Reason::Empty, 1, 0, Some(Duration::from_millis(5)));
    /// assert_eq!(denied.to_string(), "not enough tokens: 0 left, retry after 5ms");
    /// ```
    pub fn from_parts(reason: Reason, asked: u64, remaining: u64, retry_after: Option<Duration>) -> Denied {
        let retry = retry_after.map(Wait::of);
        Denied { reason, remaining, asked, retry }
    }

    /// Returns the wait before the same request can be granted; `None` if it never can.
    ///
    /// The wait counts from the decision, and assumes that no tokens are taken in between. It is
    /// exact on the limiter's clock: one nanosecond earlier the request is refused.
    ///
    /// With [`Reason::Full`] the wait is only a lower bound: the key has no room before it. A map
    /// looks at its keys in turn for one to evict, at most 64 in a refused call. Until a whole turn
    /// has found none, the bound is zero.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry.map(Wait::duration)
    }

    /// Returns the reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the whole tokens in the bucket; 0 if there is no bucket.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the tokens that were asked for; 0 if the refusal was not a bucket's.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// Returns the bound in the message of a full debt or line; 0 if there is none.
    fn bound(&self) -> u64 {
        match self.reason {
            Reason::Debt | Reason::Line => self.retry.map_or(0, |wait| wait.from),
            _ => 0,
        }
    }
}

impl Error for Denied {}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::Empty => write!(f, "not enough tokens: {} left", self.remaining)?,
            Reason::TooMany => {
                write!(f, "more tokens than the bucket ever holds: hold(1), then settle({})", self.asked)?;
            }
            Reason::Full => f.write_str("no room for a new key")?,
            // The debt of a limiter of another crate has no bound here.
            Reason::Debt => match self.bound() {
                0 => f.write_str("too many tokens are promised already (max_debt)")?,
                bound => write!(
                    f,
                    "{} more tokens do not fit under the bound of {bound} promised tokens (max_debt)",
                    self.asked
                )?,
            },
            Reason::Line => match self.bound() {
                0 => f.write_str("the line is full (max_waiting)")?,
                waiting => write!(f, "the line is full: {waiting} callers wait (max_waiting)")?,
            },
            Reason::Deadline => f.write_str("the tokens come too late")?,
            Reason::Blocked => f.write_str("the limit is blocked until another one is set")?,
            Reason::ForeignPlan => f.write_str("the plan was made for another limiter")?,
            Reason::TooManyLimits => f.write_str("more than 64 limits at once")?,
            Reason::Unavailable => f.write_str("the store of the limit is unavailable")?,
        }
        match self.retry_after() {
            Some(wait) => write!(f, ", retry after {wait:?}"),
            None => Ok(()),
        }
    }
}

//! A request: a bucket, the tokens, the options, and the verbs that do not wait.

use std::fmt;
use std::time::Duration;

use crate::bucket::reservation::{Hold, LedgerOf, Reservation};
use crate::limiter::asked::{Asked, CallOptions, Target};
use crate::limiter::rule::Plan;
use crate::limiter::verbs::{InFull, Keep, UpTo, UpToAbove};
use crate::rule::rate::Quota;
use crate::time::clock::{Moment, nanos_of};
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::PlanTerms;
use crate::word::verb::Take;

/// A request for tokens of a bucket: from [`RateLimiter::key`](crate::RateLimiter::key),
/// [`Pinned::key`](crate::Pinned::key), [`Limit::ask`](crate::Limit::ask) or
/// [`RateLimiter::shared`](crate::RateLimiter::shared).
///
/// It is for one token now, under the limiter's own rule. Options change that; a verb decides. The
/// value is `Copy` and takes nothing by itself: each verb decides anew. [`all_of`](crate::all_of)
/// takes several requests together.
///
/// # Options and verbs
///
/// Each option has a meaning for each verb.
///
/// | | [`n`](Self::n) | [`under`](Self::under) | [`keep`](Self::keep) | [`at`](Self::at) | [`within`](Self::within) |
/// |---|---|---|---|---|---|
/// | [`try_acquire`](Self::try_acquire) | all or none | the plan decides | the part stays | decides at that moment | waits 0 |
/// | [`acquire_up_to`](Self::acquire_up_to) | at most | the plan decides | the part stays | decides at that moment | waits 0 |
/// | [`peek`](Self::peek) | `retry_after` is for them | as seen under the plan | `retry_after` counts it | as it was then | waits 0 |
/// | [`refund`](Self::refund) | they come back | up to the plan's burst | the tokens are for all | the tokens come back now | waits 0 |
/// | [`hold`](Self::hold) | the estimate | the plan decides | the part stays | decides at that moment | waits 0 |
/// | [`reserve`](Self::reserve) | all of them | the plan decides | due when the part stays | the delay counts from it | longest delay |
/// | [`acquire`](Self::blocking_acquire), [`limited`](Self::limited) | all of them | the plan decides | waits out of line, until the part stays | the wait counts from it | longest wait |
///
/// A plan of another limiter, or on a bucket without plans, is refused with
/// [`Reason::ForeignPlan`](crate::Reason::ForeignPlan); it gives nothing back.
///
/// # Price
///
/// `try_acquire` of a request costs the instructions of the limiter's own
/// [`try_acquire`](crate::RateLimiter::try_acquire); a kept part and `acquire_up_to` 1.2 times as
/// many (1.2 times on one bucket), and a plan 1.4 times; one that a function chooses 3.8 times. On
/// a key a `refund` takes 1.7 times as many, and a `hold` 2.8 times. `verify/instructions.txt` has
/// the counts.
///
/// # Examples
///
/// ```
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::<String>::builder(Quota::per_hour(10)).headroom(Quota::per_hour(100))?.build();
/// let gold = limiter.plan(Quota::per_hour(100))?;
///
/// let upload = limiter.key("ada").n(30).under(&gold);
/// assert_eq!(upload.try_acquire()?.remaining(), 70);
/// upload.refund();
/// assert_eq!(upload.peek().remaining(), 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
#[must_use = "a request takes nothing before a verb"]
pub struct Ask<'k, B> {
    pub(super) bucket: B,
    pub(super) n: u64,
    pub(super) plan: Option<&'k PlanTerms>,
    pub(super) keep: u8,
    pub(super) at: Option<Moment>,
    /// Nanoseconds.
    pub(super) within: u64,
}

impl<'k, 'a, B: Asked<'a>> Ask<'k, B> {
    /// Sets the number of tokens; by default 1.
    #[inline]
    pub fn n(self, n: u64) -> Self {
        Ask { n, ..self }
    }

    /// Sets the plan: a [`Plan`] or `None`, by a reference or an option of one.
    ///
    /// Under `None`, as by default, the rule of the limiter decides, or its
    /// [`plan_for`](crate::Builder::plan_for).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<String>::builder(Quota::per_hour(10)).headroom(Quota::per_hour(100))?.build();
    /// let gold = limiter.plan(Quota::per_hour(100))?;
    /// let left = |key: &str, pays: bool| limiter.key(key).under(pays.then_some(&gold)).peek().remaining();
    /// assert_eq!((left("ada", true), left("bob", false)), (100, 10));
    /// # Ok::<(), tollgate::InvalidRule>(())
    /// ```
    #[inline]
    pub fn under(self, plan: impl Into<Option<&'k Plan<B::Rule>>>) -> Self {
        Ask { plan: plan.into().map(|plan| &plan.terms), ..self }
    }

    /// Leaves `percent` of the burst to other requests: a priority in one bucket.
    ///
    /// The tokens are granted if the kept part is left after the take. So requests of a low
    /// priority leave that part to those of a high one.
    ///
    /// * The part is a percentage of the burst in force, of the plan's burst, or of a window's
    ///   limit. It is rounded up to whole tokens: 50 % of a burst of 5 are 3 tokens. 0 % keeps
    ///   nothing. From 100 % on only a take of 0 tokens is granted.
    /// * [`retry_after`](Denied::retry_after) is exact: the time until the tokens and the kept ones
    ///   are there, if no more are taken. It is `None` if both together are more than the burst.
    /// * [`remaining`](Granted::remaining) counts all tokens, those that are kept too.
    /// * A caller that waits with a kept part has no place in line. It tries again each time the
    ///   tokens and the kept ones are due. It may starve: takes by others put it off without bound.
    ///   [`within`](Self::within) bounds its wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, RateLimiter};
    ///
    /// let (clock, mock) = Clock::mock();
    /// let limiter = RateLimiter::<String>::builder(Quota::per_second(10)).clock(clock).build();
    /// // Batches leave half of the burst to the other requests of the account.
    /// let batch = limiter.key("ada").keep(50);
    /// assert_eq!((0..10).filter(|_| batch.try_acquire().is_ok()).count(), 5);
    /// let denied = batch.try_acquire().unwrap_err();
    /// assert_eq!((denied.remaining(), denied.retry_after()), (5, Some(Duration::from_millis(100))));
    /// assert_eq!(batch.n(10).acquire_up_to().tokens(), 0);
    /// assert_eq!(batch.reserve()?.delay(), Duration::from_millis(100));
    /// assert_eq!((0..10).filter(|_| limiter.try_acquire("ada").is_ok()).count(), 5);
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    #[inline]
    pub fn keep(self, percent: u8) -> Self {
        Ask { keep: percent, ..self }
    }

    /// Decides at an earlier reading of the limiter's clock, from
    /// [`now`](crate::RateLimiter::now). One reading serves many decisions.
    ///
    /// The *skew* is the difference that a bucket allows for between the clocks of two cores. It is
    /// 4 s, or a 4,096th of the time range of the bucket's word if that is less.
    ///
    /// * The clock is read as well for a bucket that was never used, or was used after `now`. So it
    ///   is if the last use was more than the skew before `now`, or if the first attempt fails.
    /// * The new reading then decides on a bucket that was never used, or was used more than the
    ///   skew after `now`. So it does if `now` is a quarter of that time range ago, or more. Else
    ///   the earlier reading decides.
    /// * Waits count from the reading that decides.
    /// * A reading of any age grants no token that is not there now. The time since is not lost:
    ///   later decisions earn it.
    /// * After the clock was set back by more than the skew, a reading from before grants no more.
    ///   After less it is as one of a core that is ahead: it earns the time in between, up to 4 s
    ///   and once. Later decisions earn nothing until the clock is there again.
    /// * `now` must be a reading of this clock, never a future time. Up to the skew ahead of the
    ///   clock, such a time would grant tokens that are not earned yet.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let (connections, bytes) = (TokenBucket::new(Quota::per_second(10)), TokenBucket::new(Quota::per_second(10_000)));
    /// let now = connections.now();
    /// assert!(connections.ask().at(now).try_acquire().is_ok());
    /// assert!(bytes.ask().n(1_500).at(now).try_acquire().is_ok());
    /// ```
    #[inline]
    pub fn at(self, now: Moment) -> Self {
        Ask { at: Some(now), ..self }
    }

    /// Sets the longest wait of a verb that waits; by default it is not bounded. A longer wait is
    /// refused at once and takes nothing, with [`Reason::Deadline`](crate::Reason::Deadline). The
    /// `retry_after` of that refusal is the time until the same call is accepted, and not until the
    /// tokens are there.
    ///
    /// Any other verb waits for 0 s, whatever is set here.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, Reason, TokenBucket};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let bucket = TokenBucket::builder(Quota::per_second(10)).clock(clock).build();
    /// let _ = bucket.try_acquire_n(10)?;
    /// let ask = bucket.ask().n(2);
    /// let denied = ask.within(Duration::from_millis(150)).reserve().unwrap_err();
    /// assert_eq!((denied.reason(), denied.retry_after()), (Reason::Deadline, Some(Duration::from_millis(50))));
    /// assert!(ask.within(Duration::from_millis(200)).reserve().is_ok());
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    #[inline]
    pub fn within(self, max_wait: Duration) -> Self {
        Ask { within: nanos_of(max_wait), ..self }
    }

    /// Takes the tokens, all or none. A take of 0 is always granted.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back; with more tokens than the burst, that is never. A new key
    /// may be refused for want of room, with [`Reason::Full`](crate::Reason::Full).
    #[inline(always)]
    pub fn try_acquire(self) -> Result<Granted, Denied> {
        match self.keep {
            0 => self.bucket.decide(InFull(self.n), self.options()),
            keep => self.bucket.decide(Keep { n: self.n, keep }, self.options()),
        }
    }

    /// Takes the tokens that are there, from none to all of them, in one step.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let bytes = TokenBucket::builder(Quota::per_second(1_000)).clock(clock).build();
    /// let part = bytes.ask().n(700);
    /// assert_eq!(part.acquire_up_to().tokens(), 700);
    /// assert_eq!(part.acquire_up_to().tokens(), 300);
    /// assert_eq!(part.acquire_up_to().tokens(), 0);
    /// ```
    #[inline(always)]
    #[must_use = "it may be fewer than were asked for"]
    pub fn acquire_up_to(self) -> Granted {
        match self.keep {
            0 => self.bucket.decide(UpTo(self.n), self.options()),
            keep => self.bucket.decide(UpToAbove { n: self.n, keep }, self.options()),
        }
    }

    /// Returns the content of the bucket, and takes nothing.
    ///
    /// A new key gets no entry.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(5));
    /// assert_eq!(limiter.key(&1).peek().remaining(), 5);
    /// assert!(limiter.is_empty());
    /// ```
    pub fn peek(self) -> Snapshot {
        self.content()
    }

    /// Gives the tokens back at once, as many as fit below the burst. The rest is lost.
    ///
    /// * A window takes back the tokens that it still counts, the newest first. Places in use
    ///   become free. A refund of 0 changes nothing, and more than the missing tokens fill the
    ///   bucket.
    /// * All tokens are lost if the key has no entry: its bucket is as new, or
    ///   [shared](crate::WhenFull::Share). A refund makes no entry.
    /// * All are lost under a plan of another limiter, or on a bucket without plans.
    /// * Over any time `T`, a bucket grants at most the tokens of its law and those refunded to it
    ///   in `T`. A refund counts at the moment of this call. That holds also for the tokens of a
    ///   reservation, which may be ready later.
    /// * A refund has no receipt: tokens come back although the bucket has been full since their
    ///   take. Tokens of an earlier window come back to the present one. A settled
    ///   [hold](Self::hold) gives back only the tokens that the bucket would still have.
    /// * Callers in line for the tokens move up. Once a caller has waited, a refund locks the line.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let bucket = TokenBucket::builder(Quota::per_second(5)).clock(clock).build();
    /// let _ = bucket.try_acquire_n(3)?;
    /// bucket.ask().n(2).refund();
    /// assert_eq!(bucket.peek().remaining(), 4);
    /// bucket.ask().n(100).refund();
    /// assert_eq!(bucket.peek().remaining(), 5);
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn refund(self) {
        self.give_back();
    }

    /// Takes the tokens for a cost that is not yet known, [settled](Hold::settle) when it is.
    ///
    /// It does not wait: a caller that waits takes the tokens by a waiting verb, and corrects the
    /// cost by [`refund`](Self::refund), or by `n(0).hold()` and `settle`.
    ///
    /// It is also the way for a cost above the burst: `hold()` of one token, then `settle(n)`. The
    /// rest is owed, up to [`max_debt`](crate::LimitBuilder::max_debt), before the next token is
    /// granted. Of a window a shortfall is counted above the limit, as far as the word has room,
    /// and forgotten with the window.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_hour(1_000));
    /// let hold = limiter.key(&1).n(400).hold()?;
    /// assert_eq!(hold.settle(150), 0);
    /// assert_eq!(limiter.peek(&1).remaining(), 850);
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn hold(self) -> Result<Hold<'a>, Denied> {
        let (granted, receipt) = self.held()?;
        Ok(Hold::new(LedgerOf::Borrowed(self.bucket.ledger()), receipt, granted))
    }
}

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
        Ok(Reservation::new(LedgerOf::Borrowed(self.bucket.ledger()), receipt, granted))
    }
}

#[expect(private_bounds, reason = "sealed")]
impl<'k, B: Target> Ask<'k, B> {
    #[inline(always)]
    pub(super) fn new(bucket: B) -> Self {
        Ask { bucket, n: 1, plan: None, keep: 0, at: None, within: u64::MAX }
    }

    #[inline(always)]
    pub(super) fn options(&self) -> CallOptions<'k> {
        CallOptions { plan: self.plan, now: self.at }
    }

    /// Returns the take of all tokens now.
    pub(super) fn take(&self) -> Take {
        Take::now(self.n, self.keep)
    }

    /// Returns the longest wait from now on, in nanoseconds.
    pub(super) fn patience(&self) -> u64 {
        match (self.at, self.within) {
            (None, within) | (_, within @ u64::MAX) => within,
            (Some(Moment(at)), within) => {
                within.saturating_sub(self.bucket.frame().engine.clock.nanos().saturating_sub(at))
            }
        }
    }
}

/// Never prints the key.
impl<B> fmt::Debug for Ask<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("n", &self.n).field("keep", &self.keep).finish_non_exhaustive()
    }
}

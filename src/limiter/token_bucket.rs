//! One bucket, its terms and its clock.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::bucket::engine::{At, Done, Engine, Now};
use crate::bucket::lease::{LeaseCells, Mode};
use crate::bucket::line::caller_line::CallerLine;
use crate::bucket::live_terms::{Change, LiveTerms};
use crate::bucket::padded::PaddedBucket;
use crate::bucket::receipt::Settle;
use crate::bucket::reservation::{Hold, Reservation};
use crate::limiter::observer::DecisionHook;
use crate::limiter::verbs::{InFull, UpTo};
use crate::quota::counts::Counting;
use crate::quota::error::InvalidQuota;
use crate::quota::rate::Quota;
use crate::sync::{Mutex, const_fn};
use crate::time::clock::{Clock, Moment, nanos_of};
use crate::time::jitter::Jitter;
use crate::word::by_refill::BUCKETS;
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted};
use crate::word::verb::{Call, Take};

/// One token bucket, shared by reference between threads.
///
/// A bucket starts full. A grant is one compare-and-swap, a refusal writes nothing, and no call
/// waits for a lock.
///
/// # Examples
///
/// ```
/// use tollgate::{Quota, TokenBucket};
///
/// static LIMIT: TokenBucket = TokenBucket::new(Quota::per_second(100).burst(200));
///
/// match LIMIT.try_acquire() {
///     Ok(granted) => println!("go on, {} left", granted.remaining()),
///     Err(denied) => println!("{denied}"),
/// }
/// ```
pub struct TokenBucket {
    // Apart, so that commits do not evict the terms from other cores' caches.
    pub(super) bucket: PaddedBucket,
    pub(super) engine: Engine,
    pub(crate) hook: DecisionHook,
    pub(crate) jitter: Jitter,
    pub(super) cells: Option<Box<LeaseCells>>,
    /// Whether the bucket is neither spread nor observed: one test on the hot path.
    pub(super) fast_path: bool,
    /// Most callers that wait in line.
    pub(super) max_waiting: usize,
    /// The callers that wait, from the first wait on.
    pub(super) line: Mutex<Option<Box<CallerLine>>>,
    /// Whether a caller has waited. Relaxed: set before its place is committed, and loaded after
    /// the commit of a verb that gives back.
    pub(super) waited: AtomicBool,
}

impl TokenBucket {
    const_fn! {
        /// Returns a full bucket on the [processor's counter](Clock::new). The
        /// [builder](TokenBucket::builder) has other clocks.
        #[must_use]
        pub const fn new(quota: Quota) -> TokenBucket {
            let source = LiveTerms::new(quota, quota.layout());
            TokenBucket::of(Engine::new(source, Clock::new(), None), DecisionHook::NONE, Jitter::NONE)
        }
    }

    const_fn! {
        /// Returns an unused bucket.
        pub(crate) const fn of(engine: Engine, hook: DecisionHook, jitter: Jitter) -> TokenBucket {
            let fast_path = hook.is_none();
            TokenBucket {
                bucket: PaddedBucket::new(),
                engine,
                hook,
                jitter,
                cells: None,
                fast_path,
                max_waiting: usize::MAX,
                line: Mutex::new(None),
                waited: AtomicBool::new(false),
            }
        }
    }

    pub(crate) fn from_rules(engine: Engine, hook: DecisionHook, jitter: Jitter) -> TokenBucket {
        let state = engine.initial();
        let bucket = TokenBucket::of(engine, hook, jitter);
        bucket.bucket.set(state);
        bucket
    }

    /// Spreads the bucket over the cores, unless a hook or shadow mode sees each decision.
    pub(super) fn spread(mut self) -> TokenBucket {
        if self.hook.is_none() {
            self.cells = Some(Box::new(LeaseCells::one_a_core()));
            self.fast_path = false;
        }
        self
    }

    /// Takes one token, if there is one.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to try again.
    #[inline]
    pub fn try_acquire(&self) -> Result<Granted, Denied> {
        self.try_acquire_n(1)
    }

    /// Takes `n` tokens, all or none. A take of 0 always succeeds.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to try again, or that `n` is over the burst and never passes.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let bytes = TokenBucket::new(Quota::per_second(125_000_000).burst(64 * 1024));
    /// assert!(bytes.try_acquire_n(1500).is_ok());
    /// assert!(bytes.try_acquire_n(64 * 1024 + 1).is_err());
    /// ```
    #[inline]
    pub fn try_acquire_n(&self, n: u64) -> Result<Granted, Denied> {
        self.decide::<BUCKETS, _>(Counting::Bucket, InFull(n), Now(&self.engine))
    }

    /// Takes `n` tokens, all or none, at an earlier reading of the clock.
    ///
    /// One [`now`](TokenBucket::now) serves many decisions. If the reading is more than jitter
    /// (4 s at most) away from the bucket's last decision, or the bucket was never used, the clock
    /// is read as well: a reading of any age, also one of before the clock was set back, grants no
    /// token that is not there now. Time that passed since is earned later, not lost. `now` must be
    /// a reading, not a future time such as [`ready_at`](Reservation::ready_at): within the jitter,
    /// tokens not earned yet would be granted.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to try again, counted from the reading.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let (connections, bytes) = (TokenBucket::new(Quota::per_second(10)), TokenBucket::new(Quota::per_second(10_000)));
    /// let now = connections.now();
    /// assert!(connections.try_acquire_at(now, 1).is_ok());
    /// assert!(bytes.try_acquire_at(now, 1_500).is_ok());
    /// ```
    #[inline]
    pub fn try_acquire_at(&self, now: Moment, n: u64) -> Result<Granted, Denied> {
        self.decide::<BUCKETS, _>(Counting::Bucket, InFull(n), At(&self.engine, now))
    }

    /// Takes up to `n` tokens: those that are there, from none to all of them, in one step.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let bytes = TokenBucket::builder(Quota::per_second(1_000)).clock(clock).build();
    /// assert_eq!(bytes.acquire_up_to(700).tokens(), 700);
    /// assert_eq!(bytes.acquire_up_to(700).tokens(), 300);
    /// assert_eq!(bytes.acquire_up_to(700).tokens(), 0);
    /// ```
    #[inline]
    #[must_use = "it may be fewer than were asked for"]
    pub fn acquire_up_to(&self, n: u64) -> Granted {
        self.decide::<BUCKETS, _>(Counting::Bucket, UpTo(n), Now(&self.engine))
    }

    /// Gives back up to `n` tokens, as many as fit below the burst.
    ///
    /// Over any time `T` at most `burst + rate * T` tokens are granted, plus those refunded in `T`:
    /// tokens of long ago come back even if the bucket was full since. A [hold](TokenBucket::hold)
    /// gives back only the tokens that the bucket would still have. Callers in line move up. The
    /// refund of a reservation counts from its own time, not from when it is ready.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let bucket = TokenBucket::builder(Quota::per_second(5)).clock(clock).build();
    /// let _ = bucket.try_acquire_n(3)?;
    /// bucket.refund(2);
    /// assert_eq!(bucket.peek().remaining(), 4);
    /// bucket.refund(100);
    /// assert_eq!(bucket.peek().remaining(), 5);
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn refund(&self, n: u64) {
        self.settle_word(Settle::Refund(n));
    }

    /// Reserves `n` tokens that are there or will be earned: the bucket goes into debt.
    ///
    /// Each reservation has a time of its own, in order of arrival, behind the callers that wait in
    /// line. The debt is bounded by [`max_debt`](crate::BucketBuilder::max_debt), one burst by
    /// default. (The word of a few quotas above 10^11 tokens a second, or with bursts that take
    /// decades to fill, has no room for debt.) Plain takes never go into debt. A reservation of 0
    /// always succeeds, due at once.
    ///
    /// A reservation takes the mutex of the line. It is refused, with
    /// [`Reason::Debt`](crate::Reason::Debt), while callers wait for whom the debt has no room.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the reservation can be made, or that `n` is over the burst and never
    /// passes.
    ///
    /// # Examples
    ///
    /// See [`Reservation`].
    pub fn reserve(&self, n: u64) -> Result<Reservation<'_>, Denied> {
        self.reserve_for(n, u64::MAX)
    }

    /// Reserves `n` tokens, if they are due within `max_wait`.
    ///
    /// A longer wait is refused at once and takes nothing. With a `max_wait` of zero the call is a
    /// plain take. See [`reserve`](TokenBucket::reserve).
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the reservation can be made, or that `n` is over the burst and never
    /// passes.
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
    /// let denied = bucket.reserve_within(2, Duration::from_millis(150)).unwrap_err();
    /// assert_eq!((denied.reason(), denied.retry_after()), (Reason::Deadline, Some(Duration::from_millis(50))));
    /// assert!(bucket.reserve_within(2, Duration::from_millis(200)).is_ok());
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn reserve_within(&self, n: u64, max_wait: Duration) -> Result<Reservation<'_>, Denied> {
        self.reserve_for(n, nanos_of(max_wait))
    }

    /// Takes `estimate` tokens for a cost that is not yet known, [settled](Hold::settle) when it
    /// is.
    ///
    /// It is also the way for a cost above the burst: `hold(1)`, then `settle(n)`. The rest is
    /// owed, up to [`max_debt`](crate::BucketBuilder::max_debt), before the next token is granted.
    ///
    /// # Errors
    ///
    /// As [`try_acquire_n`](TokenBucket::try_acquire_n).
    ///
    /// # Examples
    ///
    /// See [`Hold`].
    pub fn hold(&self, estimate: u64) -> Result<Hold<'_>, Denied> {
        let (granted, receipt) = self.receive(estimate, Take::Exactly(estimate))?;
        Ok(Hold::new(self, receipt, granted))
    }

    /// Returns the content of the bucket, and takes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let bucket = TokenBucket::new(Quota::per_minute(6));
    /// assert_eq!(bucket.peek().remaining(), 6);
    /// ```
    pub fn peek(&self) -> Snapshot {
        let call = Call::from(Take::Exactly(0));
        let Done { outcome, reading, .. } = self.look(Now(&self.engine), call.take);
        call.granted(outcome, &reading).into()
    }

    /// Returns a reading of the bucket's clock, for
    /// [`try_acquire_at`](TokenBucket::try_acquire_at).
    #[inline]
    #[must_use]
    pub fn now(&self) -> Moment {
        self.engine.clock.now()
    }

    /// Changes rate and burst, together and at once.
    ///
    /// The bucket keeps its tokens, as far as the new burst allows. Time before the change earns at
    /// the old rate, time after it at the new. A bucket that was never used is full, whatever the
    /// quota. Reservations keep their times. Decisions never wait for a change; changes wait for
    /// each other.
    ///
    /// [`Quota::BLOCKED`] is a pause, and [`Quota::UNLIMITED`] ends the limit.
    ///
    /// The time before the change fills a raised burst: the word records the last use of the
    /// bucket, not the time since which it is full. A bucket that was idle for 100 s under `10/s
    /// burst 10` holds 1,000 tokens once the burst is 1,000.
    ///
    /// # Errors
    ///
    /// [`InvalidQuota`] names the bound if the word, as it was built, cannot hold the quota. See
    /// [`headroom`](crate::BucketBuilder::headroom).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let (clock, mock) = Clock::mock();
    /// let bucket = TokenBucket::builder(Quota::per_second(10)).clock(clock).build();
    /// let _ = bucket.try_acquire_n(10)?;
    /// mock.advance(Duration::from_millis(300));
    /// bucket.set_quota(Quota::per_second(1).burst(10))?;
    /// assert_eq!(bucket.peek().remaining(), 3);
    /// mock.advance(Duration::from_secs(1));
    /// assert_eq!(bucket.peek().remaining(), 4);
    ///
    /// // Idle for longer than it takes to fill: a raised burst has room for all of that time.
    /// let (small, (clock, mock)) = (Quota::per_second(10), Clock::mock());
    /// let bucket = TokenBucket::builder(small).headroom(small.burst(1_000))?.clock(clock).build();
    /// let _ = bucket.try_acquire_n(10)?;
    /// mock.advance(Duration::from_secs(100));
    /// assert_eq!(bucket.peek().remaining(), 10);
    /// bucket.set_quota(small.burst(1_000))?;
    /// assert_eq!(bucket.peek().remaining(), 1_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) -> Result<(), InvalidQuota> {
        let change = self.engine.source.set(quota, &self.engine.clock)?;
        if let Mode::Spread(spread) = self.mode()
            && change == Change::LowerBurst
        {
            spread.recall_after_a_lower_burst();
        }
        self.unset_timers();
        Ok(())
    }

    /// Returns the quota in force.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.engine.source.quota()
    }

    /// Returns the number of refusals that [shadow mode](crate::BucketBuilder::shadow) overruled.
    #[must_use]
    pub fn overruled(&self) -> u64 {
        self.hook.overruled()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }
}

impl fmt::Debug for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenBucket")
            .field("quota", &format_args!("{}", self.quota()))
            .field("remaining", &self.peek().remaining())
            .finish_non_exhaustive()
    }
}

//! One bucket, its terms and its clock.

use std::fmt;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::bucket::atomic::{Bucket, BucketRef, Miss, Order, ReadClock};
use crate::bucket::engine::{At, Done, Engine, Now};
use crate::bucket::lease::{Generation, LeaseCells, Mode, Spread, thread_index};
use crate::bucket::live_terms::{Change, LiveTerms};
use crate::bucket::receipt::{Receipt, Settle};
use crate::bucket::reservation::{Hold, Ledger, Reservation, Reserved};
use crate::limiter::observer::DecisionHook;
use crate::quota::rate::{InvalidQuota, Quota};
use crate::sync::const_fn;
use crate::time::clock::{Clock, Moment, nanos_of};
use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted, Snapshot};
use crate::word::state::{Origin, State};
use crate::word::verb::Take;

/// The bucket of a `TokenBucket` is in no store.
const NEVER_SEALED: &str = "only buckets of a store are sealed";

/// One token bucket, shared by reference between threads.
///
/// It starts full. A grant is one compare-and-swap, a refusal writes nothing, nobody ever waits for a lock.
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
    // A line of its own: commits do not push the terms out of other cores' caches.
    bucket: CachePadded<Bucket>,
    engine: Engine,
    pub(crate) hook: DecisionHook,
    pub(crate) jitter: Jitter,
    cells: Option<Box<LeaseCells>>,
    /// Neither spread nor observed: one test on the hot path.
    fast_path: bool,
}

impl TokenBucket {
    const_fn! {
        /// A full bucket on the [processor's counter](Clock::new).
        #[must_use]
        pub const fn new(quota: Quota) -> TokenBucket {
            TokenBucket::with_clock(quota, Clock::new())
        }
    }

    const_fn! {
        /// A full bucket on a clock of your own.
        #[must_use]
        pub const fn with_clock(quota: Quota, clock: Clock) -> TokenBucket {
            let source = LiveTerms::new(quota, quota.layout());
            TokenBucket {
                bucket: CachePadded::new(Bucket::new()),
                engine: Engine::new(source, clock, None),
                hook: DecisionHook::NONE,
                jitter: Jitter::NONE,
                cells: None,
                fast_path: true,
            }
        }
    }

    pub(crate) fn from_rules(engine: Engine, hook: DecisionHook, jitter: Jitter) -> TokenBucket {
        let state = engine.initial();
        let fast_path = hook.is_none();
        TokenBucket {
            bucket: CachePadded::new(Bucket::from_state(state)),
            engine,
            hook,
            jitter,
            cells: None,
            fast_path,
        }
    }

    /// This bucket, spread over the cores: for one limit that many threads take of at once.
    ///
    /// A plain bucket is one word, and cores that take of it wait for each other's. Of one that is spread, each core has tokens at
    /// hand that it took ahead, a lease, and a grant of those touches nothing that other cores write, and reads no clock. How many
    /// follows demand: none where takes are rare, and then it decides just as a plain bucket; up to 512, or to a
    /// quarter of the burst for all cores together, where one follows the other. What is left of a lease goes back when its core has not used
    /// it for a millisecond and somebody takes of the bucket.
    ///
    /// * The law is that of any bucket: tokens at hand are tokens of the bucket, which never has more than its burst.
    /// * Nobody is refused a token that another core has at hand. A refusal, and what it says, is that of a plain
    ///   bucket, and writes nothing once there are no more leases. (A thread that is stopped, by the scheduler say, in the
    ///   few nanoseconds in which it takes a lease hides that for so long.)
    /// * The price is in the depth. What was spent of a lease is earned again only from when the lease has ended. So a bucket that was in
    ///   demand fills up to its burst less what is leased, which is at most a quarter of it, and to its full burst again later, when
    ///   it has been used a few times at leisure, or was asked for more than that. The rate is never less.
    /// * What a [`Granted`] says of the rest is what this core has at hand, and what was left when it last took a lease.
    /// * The other verbs work on the whole: where what they ask for is not there, they call in all leases. A
    ///   bucket that is mostly used by them gains nothing, nor does one with a burst of less than some eight tokens a core.
    ///
    /// A bucket with a [hook](crate::BucketBuilder::on_decision) or in [shadow mode](crate::BucketBuilder::shadow) stays plain.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let service = TokenBucket::with_clock(Quota::per_second(100_000), clock).spread();
    /// let granted = std::thread::scope(|scope| {
    ///     let take_all = || (0..100_000).filter(|_| service.try_acquire().is_ok()).count();
    ///     let threads = [scope.spawn(take_all), scope.spawn(take_all)];
    ///     threads.map(|thread| thread.join().unwrap()).iter().sum::<usize>()
    /// });
    /// assert_eq!(granted, 100_000);
    /// assert_eq!(service.peek().remaining(), 0);
    /// ```
    #[must_use]
    pub fn spread(mut self) -> TokenBucket {
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
    /// [`Denied`] says when to come back.
    #[inline]
    pub fn try_acquire(&self) -> Result<Granted, Denied> {
        self.try_acquire_n(1)
    }

    /// Takes `n` tokens, all or none. Taking 0 always succeeds and takes nothing.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back, or that `n` is over the burst and never passes.
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
        self.decide(n, Now(&self.engine))
    }

    /// As [`try_acquire_n`](TokenBucket::try_acquire_n), at a reading of the clock that was taken before: one
    /// [`now`](TokenBucket::now) serves many decisions.
    ///
    /// A reading that is too old to decide on is not used: where it is behind the bucket's last decision by more
    /// than jitter, or the bucket was never used, the clock is read again. Time that passed since the reading is
    /// earned later, not lost. It must be a reading, not a time to come such as
    /// [`ready_at`](Reservation::ready_at): what was not earned yet would be granted.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back, counted from the reading.
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
        self.decide(n, At(&self.engine, now))
    }

    /// Takes what is there of `n` tokens, from none to all of them, in one step.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let bytes = TokenBucket::with_clock(Quota::per_second(1_000), clock);
    /// assert_eq!(bytes.acquire_up_to(700).tokens(), 700);
    /// assert_eq!(bytes.acquire_up_to(700).tokens(), 300);
    /// assert_eq!(bytes.acquire_up_to(700).tokens(), 0);
    /// ```
    #[must_use = "it may be fewer than were asked for"]
    pub fn acquire_up_to(&self, n: u64) -> Granted {
        let Done { outcome, reading, .. } = self.run(Now(&self.engine), Take::UpTo(n));
        let decision = Take::UpTo(n).decision((outcome, reading));
        self.hook.observe_up_to(n, Granted::new(outcome, &reading), decision)
    }

    /// Gives back `n` tokens, as many as fit below the burst.
    ///
    /// Over any time `T` at most `burst + rate * T` tokens are granted, and those that were refunded in it. (Of what was
    /// reserved, a refund counts from the time it was reserved at, not from when it is ready.)
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let bucket = TokenBucket::with_clock(Quota::per_second(5), clock);
    /// let _ = bucket.try_acquire_n(3)?;
    /// bucket.refund(2);
    /// assert_eq!(bucket.peek().remaining(), 4);
    /// bucket.refund(100);
    /// assert_eq!(bucket.peek().remaining(), 5);
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn refund(&self, n: u64) {
        self.mode().settle(&self.engine, None, Settle::Refund(n));
    }

    /// Takes `n` tokens that are there or will be: the bucket goes into debt, and who comes later waits longer. Each
    /// reservation has a slot of time of its own, in order of arrival.
    ///
    /// The debt is bounded by [`max_debt`](crate::BucketBuilder::max_debt), one burst by default. (For a few quotas above 10^11
    /// tokens a second, or of bursts that take decades to fill, the word has no room for any.) Plain takes never go into debt.
    /// Reserving 0 always succeeds, due at once.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the reservation can be made, or that `n` is over the burst and never passes.
    ///
    /// # Examples
    ///
    /// See [`Reservation`].
    pub fn reserve(&self, n: u64) -> Result<Reservation<'_>, Denied> {
        self.reserve_for(n, u64::MAX)
    }

    /// As [`reserve`](TokenBucket::reserve), if the tokens are due within `max_wait`. A wait that would be longer
    /// is refused at once, and takes nothing. With a patience of zero it is a take, and refused as one.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the reservation can be made, or that `n` is over the burst and never passes.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, Reason, TokenBucket};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let bucket = TokenBucket::with_clock(Quota::per_second(10), clock);
    /// let _ = bucket.try_acquire_n(10)?;
    /// let denied = bucket.reserve_within(2, Duration::from_millis(150)).unwrap_err();
    /// assert_eq!((denied.reason(), denied.retry_after()), (Reason::Deadline, Some(Duration::from_millis(50))));
    /// assert!(bucket.reserve_within(2, Duration::from_millis(200)).is_ok());
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn reserve_within(&self, n: u64, max_wait: Duration) -> Result<Reservation<'_>, Denied> {
        self.reserve_for(n, nanos_of(max_wait))
    }

    pub(crate) fn reserve_for(&self, n: u64, max_wait: u64) -> Reserved<'_> {
        // In shadow mode nobody waits, either.
        let (granted, receipt) = match max_wait == 0 || self.hook.is_shadow() {
            true => self.receive(n, Take::Exactly(n))?,
            false => self.receive(n, Take::Reserve { n, max_wait })?,
        };
        Ok(Reservation::new(self, receipt, granted))
    }

    /// Takes `estimate` tokens for what is not yet known, to be [settled](Hold::settle) when it is.
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

    /// Looks into the bucket and takes nothing.
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
        let Done { outcome, reading, .. } = self.look(Now(&self.engine), Take::Exactly(0));
        Granted::new(outcome, &reading).into()
    }

    /// A reading of the bucket's clock, for [`try_acquire_at`](TokenBucket::try_acquire_at).
    #[inline]
    #[must_use]
    pub fn now(&self) -> Moment {
        self.engine.clock.moment()
    }

    /// Changes rate and burst, together and at once.
    ///
    /// Tokens in hand are kept, as far as the new burst allows; what was earned before the change counts at the old
    /// rate, what comes after at the new. A bucket that was never used is full, whatever the quota. Reservations keep the times they were promised. Nobody waits for it; changes
    /// wait for each other.
    ///
    /// A raised burst is filled by the time before: the word notes when the bucket was last used,
    /// not since when it is full. A bucket that was idle for 100 s under `10/s burst 10` holds
    /// 1,000 tokens once the burst is 1,000.
    ///
    /// # Errors
    ///
    /// [`InvalidQuota`] if the word, as it was built, cannot hold it; it names the bound. See
    /// [`headroom`](crate::BucketBuilder::headroom).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let (clock, mock) = Clock::mock();
    /// let bucket = TokenBucket::with_clock(Quota::per_second(10), clock);
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
        Ok(())
    }

    /// The quota in force.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.engine.source.quota()
    }

    /// What [shadow mode](crate::BucketBuilder::shadow) has granted of what would have been denied, in decisions.
    #[must_use]
    pub fn overruled(&self) -> u64 {
        self.hook.overruled()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    fn mode(&self) -> Mode<'_, &Bucket> {
        let (bucket, engine) = (&*self.bucket, &self.engine);
        match self.cells.as_deref() {
            None => Mode::Plain(bucket),
            Some(cells) => Mode::Spread(Spread { bucket, engine, cells, generation: Generation::ONLY }),
        }
    }

    /// Returns the outcome that a take would have.
    pub(crate) fn look(&self, read: impl ReadClock, take: Take) -> Done {
        let seen = self.mode().look(&self.engine, read, take.into());
        seen.expect(NEVER_SEALED).1
    }

    fn run(&self, read: impl ReadClock, take: Take) -> Done {
        self.mode().charge(&self.engine, Some(State::FULL), read, take.into()).expect(NEVER_SEALED)
    }

    pub(crate) fn undo(&self, receipt: &Receipt) {
        self.settle(receipt, Settle::Undo(receipt));
    }

    #[inline(always)]
    fn decide(&self, n: u64, read: impl ReadClock) -> Result<Granted, Denied> {
        let missed = match self.fast_path {
            true => match self.bucket.attempt(Order::ClockFirst, read, n) {
                Ok(done) => return Take::Exactly(n).decision(done),
                Err(missed) => missed,
            },
            false => Miss::StaleReading,
        };
        self.decide_anyhow(missed, n, read)
    }

    // A function of its own, and small: what is inlined beside an attempt takes registers from it, 7 to 12 instructions.
    #[cold]
    #[inline(never)]
    fn decide_anyhow(&self, missed: Miss, n: u64, read: impl ReadClock) -> Result<Granted, Denied> {
        let Some(cells) = &self.cells else { return self.decide_again(missed, n, read) };
        let own = thread_index();
        match cells.of(own).take(Generation::ONLY, n) {
            Some(granted) => Ok(granted),
            None => self.refill(own, n, read),
        }
    }

    /// Of tokens that are not at hand.
    #[cold]
    #[inline(never)]
    fn refill(&self, own: usize, n: u64, read: impl ReadClock) -> Result<Granted, Denied> {
        match self.mode() {
            Mode::Spread(spread) => spread.acquire(own, read, n).expect(NEVER_SEALED),
            Mode::Plain(_) => self.decide_again(Miss::StaleReading, n, read),
        }
    }

    #[inline(never)]
    fn decide_again(&self, missed: Miss, n: u64, read: impl ReadClock) -> Result<Granted, Denied> {
        let again = self.engine.attempt_again(&*self.bucket, missed, read, n);
        let Done { outcome, reading, .. } =
            again.map_or_else(|| self.run(read, Take::Exactly(n)), Done::from);
        self.hook.observe(n, Take::Exactly(n).decision((outcome, reading)))
    }

    /// A decision with a receipt for what was taken. In shadow mode that is nothing, for what was denied.
    pub(crate) fn receive(&self, n: u64, step: Take) -> Result<(Granted, Receipt), Denied> {
        let Done { outcome, reading, leased } = self.run(Now(&self.engine), step);
        let granted = self.hook.observe(n, step.decision((outcome, reading)))?;
        let receipt = match outcome.granted {
            true => Receipt::new(outcome, &reading, None).beside(reading.refill.units(leased)),
            false => Receipt::void(Moment(reading.nanos())),
        };
        Ok((granted, receipt))
    }
}

impl Ledger for TokenBucket {
    fn settle(&self, receipt: &Receipt, settle: Settle<'_>) -> u64 {
        match receipt.origin {
            Origin::Nowhere => 0,
            _ => self.mode().settle(&self.engine, None, settle).unwrap_or(0),
        }
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

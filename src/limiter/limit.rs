//! One bucket, its terms and its clock.

use std::fmt;
use std::sync::atomic::AtomicBool;

use crate::bucket::engine::{Engine, Now};
use crate::bucket::lease::{LeaseCells, Mode};
use crate::bucket::line::caller_line::CallerLine;
use crate::bucket::live_terms::{Change, LiveTerms};
use crate::bucket::padded::PaddedBucket;
use crate::limiter::ask::Ask;
use crate::limiter::hook::DecisionHook;
use crate::limiter::rule::{Rule, engine_of};
use crate::limiter::verbs::InFull;
use crate::rule::error::InvalidRule;
use crate::rule::rate::Quota;
use crate::rule::window::Window;
use crate::sync::{Mutex, const_fn};
use crate::time::clock::{Clock, Moment};
use crate::time::jitter::Jitter;
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted};

/// One bucket under a rule, shared by reference between threads: a [`TokenBucket`] or a
/// [`WindowCounter`].
///
/// A bucket starts full. Its level and its time are one atomic word: a grant is one
/// compare-and-swap, a refusal writes nothing, and no take waits for a lock.
///
/// [`ask`](Limit::ask) has all options and verbs. The verbs here are its short forms.
///
/// A window has no `reserve`, no waiting verb and no `spread`: nothing in its word is in the
/// future.
///
/// ```compile_fail,E0599
/// # use tollgate::{Window, WindowCounter};
/// let _ = WindowCounter::new(Window::per_hour(10)).ask().reserve();
/// ```
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, Quota, TokenBucket, Window, WindowCounter};
///
/// static LIMIT: TokenBucket = TokenBucket::new(Quota::per_second(100).burst(200));
/// static SOLD: WindowCounter = WindowCounter::new(Window::per_day(1_000).utc());
///
/// match LIMIT.try_acquire() {
///     Ok(granted) => println!("go on, {} left", granted.remaining()),
///     Err(denied) => println!("{denied}"),
/// }
/// assert!(SOLD.try_acquire().is_ok());
///
/// let (clock, mock) = Clock::mock();
/// let window = Window::per(5, Duration::from_secs(900)).sliding();
/// let logins = WindowCounter::builder(window).clock(clock).build();
/// assert!(logins.try_acquire_n(5).is_ok());
/// mock.advance(Duration::from_secs(899));
/// let denied = logins.try_acquire().unwrap_err();
/// // Fifteen minutes after the end of the sub-window of the grants.
/// assert_eq!(denied.retry_after(), Some(Duration::from_millis(57_250)));
/// ```
pub struct Limit<R: Rule = Quota> {
    pub(super) engine: Engine,
    // Apart, so that commits do not evict the terms from other cores' caches.
    pub(super) bucket: PaddedBucket,
    pub(super) hook: DecisionHook,
    pub(super) jitter: Jitter,
    pub(super) cells: Option<Box<LeaseCells>>,
    /// Whether the bucket is neither spread nor observed: one test on the hot path.
    pub(super) fast_path: bool,
    /// Most callers that wait in line.
    pub(super) max_waiting: usize,
    /// The callers that wait, from the first wait on.
    pub(super) line: Mutex<Option<Box<CallerLine>>>,
    /// Whether a caller has waited. Relaxed: set before its position is committed, and loaded after
    /// the commit of a verb that gives back.
    pub(super) waited: AtomicBool,
    pub(super) built: R::Built,
}

/// One token bucket, shared by reference between threads.
///
/// See [`Limit`] for its verbs and examples.
pub type TokenBucket = Limit<Quota>;

/// One window of tokens, shared by reference between threads: at most a limit in a period.
///
/// A [`Window`] says how periods follow each other, and which law holds. See [`Limit`] for the
/// verbs and examples.
pub type WindowCounter = Limit<Window>;

impl Limit<Quota> {
    const_fn! {
        /// Returns a full bucket on the [processor's counter](Clock::new). The
        /// [builder](Limit::builder) has other clocks.
        #[must_use]
        pub const fn new(quota: Quota) -> TokenBucket {
            let source = LiveTerms::new(quota, quota.layout());
            Limit::of((), Engine::new(source, Clock::new(), None), DecisionHook::NONE)
        }
    }
}

impl Limit<Window> {
    const_fn! {
        /// Returns an unused window on the [processor's counter](Clock::new), or on the
        /// [wall clock](Clock#the-wall-clock) if its edges are by the calendar. The
        /// [builder](Limit::builder) has other clocks.
        #[must_use]
        pub const fn new(window: Window) -> WindowCounter {
            let clock = match window.anchor() {
                Some(anchor) => Clock::unix(anchor),
                None => Clock::new(),
            };
            Limit::of(window, engine_of(window.held_layout(), clock, None), DecisionHook::NONE)
        }
    }
}

impl<R: Rule> Limit<R> {
    const_fn! {
        /// Returns an unused bucket.
        pub(super) const fn of(built: R::Built, engine: Engine, hook: DecisionHook) -> Limit<R> {
            let fast_path = hook.is_none();
            Limit {
                bucket: PaddedBucket::new(),
                engine,
                hook,
                jitter: Jitter::NONE,
                cells: None,
                fast_path,
                max_waiting: usize::MAX,
                line: Mutex::new(None),
                waited: AtomicBool::new(false),
                built,
            }
        }
    }
}

impl<R: Rule> Limit<R> {
    /// Spreads the bucket over the cores, unless a hook or shadow mode sees each decision.
    pub(super) fn spread(mut self) -> Limit<R> {
        if self.hook.is_none() {
            self.cells = Some(Box::new(LeaseCells::one_a_core()));
            self.fast_path = false;
        }
        self
    }

    /// Returns a request for one token of this bucket, with all options and verbs; see [`Ask`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let bytes = TokenBucket::new(Quota::per_second(125_000_000).burst(64 * 1024));
    /// assert_eq!(bytes.ask().n(100_000).acquire_up_to().tokens(), 64 * 1024);
    /// ```
    #[inline]
    pub fn ask(&self) -> Ask<'_, &Limit<R>> {
        Ask::new(self)
    }

    /// Takes one token, if there is one. It is short for `ask().try_acquire()`.
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
        self.decide_by(InFull(n), Now(&self.engine))
    }

    /// Returns the content of the bucket, and takes nothing; see [`Ask::peek`].
    pub fn peek(&self) -> Snapshot {
        self.ask().peek()
    }

    /// Gives back up to `n` tokens, as many as fit below the burst; see [`Ask::refund`].
    pub fn refund(&self, n: u64) {
        self.ask().n(n).refund();
    }

    /// Returns a reading of the bucket's clock, for [`Ask::at`].
    #[inline]
    #[must_use]
    pub fn now(&self) -> Moment {
        self.engine.clock.now()
    }

    /// Changes the rule, at once.
    ///
    /// Decisions never wait for a change. Changes wait for each other, and the first one in a
    /// process for the calibration of the [processor's counter](Clock::new).
    ///
    /// # Of a quota
    ///
    /// The bucket keeps its tokens, as far as the new burst allows. Time before the change earns at
    /// the old rate, time after it at the new. A bucket that was never used is full, whatever the
    /// quota. Reservations keep their times.
    ///
    /// [`Quota::BLOCKED`] is a pause, and [`Quota::UNLIMITED`] ends the limit.
    ///
    /// Callers in line keep their order, and wait for the same tokens at the new rate:
    ///
    /// * A wait that gets longer than [`within`](Ask::within) ends in a refusal, with
    ///   [`Reason::Deadline`](crate::Reason::Deadline).
    /// * The tokens of the first callers are promised, as far as
    ///   [`max_debt`](crate::LimitBuilder::max_debt) has room. These callers are served in a pause,
    ///   too; the others sleep until it ends, or are refused when [`within`](Ask::within) is over.
    /// * A caller without a promise for more than the new burst is refused, with
    ///   [`Reason::TooMany`](crate::Reason::TooMany). If there is no limit any more, each caller
    ///   without a promise is served at once.
    ///
    /// The time before the change fills a raised burst: the word records the last use of the
    /// bucket, not the time since which it is full. A bucket that was idle for 100 s under `10/s
    /// burst 10` holds 1,000 tokens once the burst is 1,000.
    ///
    /// # Of a window
    ///
    /// The tokens that were used stay counted. A higher limit has room at once, and a lower one
    /// refuses until enough of them are forgotten. [`Window::blocked`] is a pause. Another period
    /// is another window: it is refused.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] names the bound if the word, as it was built, cannot hold the rule. See
    /// [`headroom`](crate::LimitBuilder::headroom).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, TokenBucket, Window, WindowCounter};
    ///
    /// let (clock, mock) = Clock::mock();
    /// let bucket = TokenBucket::builder(Quota::per_second(10)).clock(clock).build();
    /// let _ = bucket.try_acquire_n(10)?;
    /// mock.advance(Duration::from_millis(300));
    /// bucket.set_rule(Quota::per_second(1).burst(10))?;
    /// assert_eq!(bucket.peek().remaining(), 3);
    ///
    /// // Idle for longer than it takes to fill: a raised burst has room for all of that time.
    /// let (small, (clock, mock)) = (Quota::per_second(10), Clock::mock());
    /// let bucket = TokenBucket::builder(small).headroom(small.burst(1_000))?.clock(clock).build();
    /// let _ = bucket.try_acquire_n(10)?;
    /// mock.advance(Duration::from_secs(100));
    /// assert_eq!(bucket.peek().remaining(), 10);
    /// bucket.set_rule(small.burst(1_000))?;
    /// assert_eq!(bucket.peek().remaining(), 1_000);
    ///
    /// let hour = Window::per_hour(5);
    /// let counter = WindowCounter::builder(hour).headroom(hour.with_limit(8)?)?.build();
    /// assert!(counter.try_acquire_n(5).is_ok());
    /// counter.set_rule(hour.with_limit(8)?)?;
    /// assert_eq!(counter.peek().remaining(), 3);
    /// assert_eq!(
    ///     counter.set_rule(hour.with_limit(16)?).unwrap_err().to_string(),
    ///     "a limit of 16 is over the bound of 14 tokens that there is room for"
    /// );
    /// assert_eq!(
    ///     counter.set_rule(Window::per_day(5)).unwrap_err().to_string(),
    ///     "5/d fixed is not 5/h fixed with another limit: the words count one period in one way"
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_rule(&self, rule: R) -> Result<(), InvalidRule> {
        let change = rule.set(self.built, &self.engine)?;
        if let Mode::Spread(spread) = self.mode()
            && change == Change::LowerBurst
        {
            spread.recall_after_a_lower_burst();
        }
        self.unset_timers();
        Ok(())
    }

    /// Checks that the word has room for a rule, as [`set_rule`](Self::set_rule) does.
    ///
    /// # Errors
    ///
    /// As [`set_rule`](Self::set_rule).
    pub fn check_rule(&self, rule: R) -> Result<(), InvalidRule> {
        rule.check(self.built, &self.engine.source)
    }

    /// Returns the rule in force.
    #[must_use]
    pub fn rule(&self) -> R {
        R::in_force(self.built, &self.engine.source)
    }

    /// Returns the number of refusals that [shadow mode](crate::LimitBuilder::shadow) overruled.
    #[must_use]
    pub fn overruled(&self) -> u64 {
        self.hook.overruled()
    }
}

impl<R: Rule> fmt::Debug for Limit<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("rule", &format_args!("{}", self.rule()))
            .field("remaining", &self.peek().remaining())
            .finish_non_exhaustive()
    }
}

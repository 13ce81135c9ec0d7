//! One window, its terms and its clock.

use std::fmt;

use crate::bucket::engine::{At, Engine, Now};
use crate::bucket::reservation::Hold;
use crate::limiter::all_of::BucketLimit;
use crate::limiter::observer::DecisionHook;
use crate::limiter::token_bucket::TokenBucket;
use crate::limiter::verbs::{InFull, UpTo};
use crate::limiter::window_settings::engine_of;
use crate::quota::counts::Counting;
use crate::quota::window::Window;
use crate::quota::window_error::InvalidWindow;
use crate::sync::const_fn;
use crate::time::clock::{Clock, Moment};
use crate::time::jitter::Jitter;
use crate::word::by_refill::WINDOWS;
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted};

/// One window of tokens, shared by reference between threads: at most a limit in a period.
///
/// Its counts and its time are one atomic word, as those of a [`TokenBucket`]. A grant is one
/// compare-and-swap, a refusal writes nothing, and no call waits for a lock. A [`Window`] says how
/// periods follow each other, and which law holds.
///
/// A window has no `reserve`, no waiting verb and no `spread`: nothing in the word is in the
/// future.
///
/// ```compile_fail
/// # use tollgate::{Window, WindowCounter};
/// let _ = WindowCounter::new(Window::per_hour(10)).reserve(1);
/// ```
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, Window, WindowCounter};
///
/// static SOLD: WindowCounter = WindowCounter::new(Window::per_day(1_000).utc());
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
pub struct WindowCounter {
    /// The word, the clock and the hook. Its terms count windows.
    counter: TokenBucket,
    counting: Counting,
    window: Window,
}

impl WindowCounter {
    const_fn! {
        /// Returns an unused window on the [processor's counter](Clock::new), or on the
        /// [wall clock](Clock#the-wall-clock) if its edges are by the calendar. The
        /// [builder](WindowCounter::builder) has other clocks.
        #[must_use]
        pub const fn new(window: Window) -> WindowCounter {
            let clock = match window.anchor() {
                Some(anchor) => Clock::unix(anchor),
                None => Clock::new(),
            };
            WindowCounter::of(window, engine_of(window.held_layout(), clock), DecisionHook::NONE)
        }
    }

    const_fn! {
        pub(super) const fn of(window: Window, engine: Engine, hook: DecisionHook) -> WindowCounter {
            let counting = engine.source.counts().counting;
            WindowCounter { counter: TokenBucket::of(engine, hook, Jitter::NONE), counting, window }
        }
    }

    /// Takes one token, if the window has one left.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to try again.
    #[inline(always)]
    pub fn try_acquire(&self) -> Result<Granted, Denied> {
        self.try_acquire_n(1)
    }

    /// Takes `n` tokens, all or none. A take of 0 always succeeds.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to try again, or that `n` is over the limit and never passes.
    #[inline(always)]
    pub fn try_acquire_n(&self, n: u64) -> Result<Granted, Denied> {
        self.counter.decide::<WINDOWS, _>(self.counting, InFull(n), Now(self.counter.engine()))
    }

    /// Takes `n` tokens, all or none, at an earlier reading of the clock. See
    /// [`TokenBucket::try_acquire_at`].
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to try again, counted from the reading.
    #[inline]
    pub fn try_acquire_at(&self, now: Moment, n: u64) -> Result<Granted, Denied> {
        self.counter.decide::<WINDOWS, _>(self.counting, InFull(n), At(self.counter.engine(), now))
    }

    /// Takes up to `n` tokens: those that are left, from none to all of them, in one step.
    #[inline]
    #[must_use = "it may be fewer than were asked for"]
    pub fn acquire_up_to(&self, n: u64) -> Granted {
        self.counter.decide::<WINDOWS, _>(self.counting, UpTo(n), Now(self.counter.engine()))
    }

    /// Gives back up to `n` tokens that are still counted, the newest first.
    ///
    /// Over any time, at most the tokens of the window's law are granted, plus those refunded in
    /// it. A refund has no receipt: tokens that were taken in an earlier window come back to the
    /// present one, which then grants more by that number. A [hold](WindowCounter::hold) of an
    /// earlier window gives nothing back.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Window, WindowCounter};
    ///
    /// let counter = WindowCounter::new(Window::per_hour(5));
    /// let _ = counter.try_acquire_n(3)?;
    /// counter.refund(2);
    /// assert_eq!(counter.peek().remaining(), 4);
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn refund(&self, n: u64) {
        self.counter.refund(n);
    }

    /// Takes `estimate` tokens for a cost that is not yet known, [settled](Hold::settle) when it
    /// is.
    ///
    /// A shortfall is counted above the limit, as far as the word has room. It is forgotten with
    /// the window.
    ///
    /// # Errors
    ///
    /// As [`try_acquire_n`](WindowCounter::try_acquire_n).
    pub fn hold(&self, estimate: u64) -> Result<Hold<'_>, Denied> {
        self.counter.hold(estimate)
    }

    /// Returns the tokens that are left, and takes nothing.
    pub fn peek(&self) -> Snapshot {
        self.counter.peek()
    }

    /// Returns a request for `n` tokens, for [`all_of`](crate::all_of).
    #[must_use]
    pub fn n(&self, n: u64) -> BucketLimit<'_> {
        self.counter.n(n)
    }

    /// Returns a reading of the window's clock, for
    /// [`try_acquire_at`](WindowCounter::try_acquire_at).
    #[inline]
    #[must_use]
    pub fn now(&self) -> Moment {
        self.counter.now()
    }

    /// Changes the limit, at once.
    ///
    /// The tokens that were used stay counted. A higher limit has room at once, and a lower one
    /// refuses until enough of them are forgotten. Another period is another window.
    ///
    /// # Errors
    ///
    /// [`InvalidWindow`] names the bound if the word, as it was built, cannot hold the limit. See
    /// [`headroom`](crate::WindowCounterBuilder::headroom).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Window, WindowCounter};
    ///
    /// let counter = WindowCounter::builder(Window::per_hour(5)).headroom(8)?.build();
    /// assert!(counter.try_acquire_n(5).is_ok());
    /// counter.set_limit(8)?;
    /// assert_eq!(counter.peek().remaining(), 3);
    /// assert_eq!(
    ///     counter.set_limit(16).unwrap_err().to_string(),
    ///     "a limit of 16 is over the bound of 14 tokens that there is room for: build with headroom"
    /// );
    /// # Ok::<(), tollgate::InvalidWindow>(())
    /// ```
    pub fn set_limit(&self, limit: u64) -> Result<(), InvalidWindow> {
        let Engine { source, clock, .. } = self.counter.engine();
        Ok(source.set_limit(limit, clock)?)
    }

    /// Blocks the window: each request for a token is refused, until another limit is set.
    ///
    /// The tokens used stay counted, and the window goes on. See
    /// [`Quota::BLOCKED`](crate::Quota::BLOCKED) for the refusals.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Reason, Window, WindowCounter};
    ///
    /// let counter = WindowCounter::new(Window::per_hour(5));
    /// assert!(counter.try_acquire_n(2).is_ok());
    /// counter.block();
    /// assert_eq!(counter.try_acquire().unwrap_err().reason(), Reason::Blocked);
    /// counter.set_limit(5)?;
    /// assert_eq!(counter.peek().remaining(), 3);
    /// # Ok::<(), tollgate::InvalidWindow>(())
    /// ```
    pub fn block(&self) {
        let Engine { source, clock, .. } = self.counter.engine();
        source.block(clock);
    }

    /// Returns the limit in force; 0 while the window is [blocked](Self::block).
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.counter.engine().source.limit()
    }

    /// Returns the window as it was built.
    #[must_use]
    pub fn window(&self) -> Window {
        self.window
    }

    /// Returns the number of refusals that [shadow mode] overruled.
    ///
    /// [shadow mode]: crate::WindowCounterBuilder::shadow
    #[must_use]
    pub fn overruled(&self) -> u64 {
        self.counter.overruled()
    }
}

impl fmt::Debug for WindowCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowCounter")
            .field("window", &format_args!("{}", self.window))
            .field("limit", &self.limit())
            .field("remaining", &self.peek().remaining())
            .finish_non_exhaustive()
    }
}

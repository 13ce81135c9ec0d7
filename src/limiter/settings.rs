//! What one bucket and many are set up with alike.

use std::fmt;

use crate::bucket::engine::Engine;
use crate::bucket::live_terms::LiveTerms;
use crate::limiter::observer::{Extras, Hook, Observer};
use crate::quota::layout::{Layout, LayoutOptions, QuotaError};
use crate::quota::rate::Quota;
use crate::time::clock::Clock;
use crate::time::jitter::Jitter;

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) quota: Quota,
    pub(crate) clock: Clock,
    pub(crate) room: LayoutOptions,
    /// Of the quota and the room.
    pub(crate) layout: Layout,
    pub(crate) initial: Option<u64>,
    pub(crate) shadow: bool,
    pub(crate) hook: Option<Hook>,
    pub(crate) jitter: Jitter,
}

impl Settings {
    pub(crate) fn new(quota: Quota) -> Settings {
        Settings {
            quota,
            clock: Clock::new(),
            room: LayoutOptions::DEFAULT,
            layout: quota.layout(),
            initial: None,
            shadow: false,
            hook: None,
            jitter: Jitter::NONE,
        }
    }

    pub(crate) fn with_room(&mut self, room: LayoutOptions) -> Result<(), QuotaError> {
        self.layout = Layout::of(self.quota.numbers(), room)?;
        self.room = room;
        Ok(())
    }

    pub(crate) fn finish(self) -> (Engine, Extras) {
        let source = LiveTerms::new(self.quota, self.layout);
        let observer = Observer::new(self.shadow, self.hook);
        (Engine::new(source, self.clock, self.initial), Extras { observer, jitter: self.jitter })
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("quota", &format_args!("{}", self.quota))
            .field("clock", &self.clock)
            .field("max_debt", &self.room.max_debt)
            .field("initial", &self.initial)
            .field("shadow", &self.shadow)
            .field("hook", &self.hook.is_some())
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}

/// The setters that both builders have.
macro_rules! common_setters {
    () => {
        /// The clock to decide on; by default the [processor's counter](Clock::new).
        pub fn clock(mut self, clock: Clock) -> Self {
            self.settings.clock = clock;
            self
        }

        /// Makes room for a quota that may come into force later: with it, `set_quota` and plans may go up to its rate and
        /// its burst. The word has so many bits, so it is at the cost of precision: a tick is then a fraction of a token
        /// as of the faster and larger of both.
        ///
        /// # Errors
        ///
        /// [`InvalidQuota`] if no word holds both.
        ///
        /// # Examples
        ///
        /// ```
        /// use tollgate::{Quota, TokenBucket};
        ///
        /// let (night, day) = (Quota::per_second(1_000_000), Quota::per_second(100));
        /// let bucket = TokenBucket::builder(day).headroom(night)?.build();
        /// bucket.set_quota(night)?;
        /// assert_eq!(bucket.quota(), night);
        ///
        /// let error = TokenBucket::new(day).set_quota(night).unwrap_err();
        /// assert!(error.to_string().starts_with("a burst of 1000000 is over the bound of 155 tokens"));
        /// # Ok::<(), tollgate::InvalidQuota>(())
        /// ```
        pub fn headroom(mut self, quota: Quota) -> Result<Self, InvalidQuota> {
            self.settings
                .with_room(LayoutOptions { headroom: Some(quota.numbers()), ..self.settings.room })?;
            self.tried()
        }

        /// The most tokens that may be promised ahead to those who wait, or owed by those who [`settle`](crate::Hold::settle).
        /// 0 to 2^40; with 0 nobody waits. By default it is one burst: that of the quota in force, or the larger of those
        /// the bucket was built for if that is less.
        ///
        /// # Errors
        ///
        /// [`InvalidQuota`] if no word holds the burst and the debt.
        ///
        /// # Examples
        ///
        /// ```
        /// use std::time::Duration;
        /// use tollgate::{Clock, Quota, Reason, TokenBucket};
        ///
        /// let (clock, _mock) = Clock::mock();
        /// let bucket = TokenBucket::builder(Quota::per_second(10)).max_debt(3)?.start_empty().clock(clock).build();
        /// assert_eq!(bucket.reserve(3)?.commit().tokens(), 3);
        /// let denied = bucket.reserve(1).unwrap_err();
        /// assert_eq!((denied.reason(), denied.retry_after()), (Reason::Debt, Some(Duration::from_millis(100))));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub fn max_debt(mut self, tokens: u64) -> Result<Self, InvalidQuota> {
            self.settings.with_room(LayoutOptions { max_debt: Some(tokens), ..self.settings.room })?;
            self.tried()
        }

        /// A new bucket starts with no token. Of a limiter, a key that was evicted to make room, after its bucket had been
        /// full for 2 s, is new: who asks so seldom that others push it out each time may never be granted.
        pub fn start_empty(self) -> Self {
            self.initial_tokens(0)
        }

        /// A new bucket starts with so many tokens, at most a full bucket; by default it is full. Of a limiter, a key that
        /// was evicted to make room, after its bucket had been full for 2 s, is new.
        pub fn initial_tokens(mut self, tokens: u64) -> Self {
            self.settings.initial = Some(tokens);
            self
        }

        /// In shadow mode nothing is refused and nobody waits; what would have been denied is shown to the
        /// [hook](Self::on_decision) and counted.
        ///
        /// # Examples
        ///
        /// ```
        /// use tollgate::{Quota, TokenBucket};
        ///
        /// let bucket = TokenBucket::builder(Quota::per_hour(1)).shadow(true).build();
        /// assert!(bucket.try_acquire().is_ok());
        /// assert!(bucket.try_acquire().is_ok());
        /// assert_eq!(bucket.overruled(), 1);
        /// ```
        pub fn shadow(mut self, shadow: bool) -> Self {
            self.settings.shadow = shadow;
            self
        }

        /// Shows every decision to a function, which runs in the call that asked: before shadow mode overrules it. Of
        /// [`all_of`](crate::all_of) it sees what was taken or refused, not what was undone; of an `acquire_up_to` that gets
        /// some, what it got.
        ///
        /// # Examples
        ///
        /// ```
        /// use std::sync::Arc;
        /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
        /// use tollgate::{Quota, TokenBucket};
        ///
        /// let denied = Arc::new(AtomicU64::new(0));
        /// let count = denied.clone();
        /// let bucket = TokenBucket::builder(Quota::per_hour(1))
        ///     .on_decision(move |decision| {
        ///         count.fetch_add(u64::from(decision.is_err()), Relaxed);
        ///     })
        ///     .build();
        /// let _ = (bucket.try_acquire(), bucket.try_acquire());
        /// assert_eq!(denied.load(Relaxed), 1);
        /// ```
        pub fn on_decision(
            mut self,
            hook: impl Fn(&Result<Granted, Denied>) + Send + Sync + 'static,
        ) -> Self {
            self.settings.hook = Some(Arc::new(hook));
            self
        }

        /// A random time that the waiting verbs add to each wait; by default none.
        pub fn jitter(mut self, jitter: Jitter) -> Self {
            self.settings.jitter = jitter;
            self
        }
    };
}
pub(crate) use common_setters;

//! What a limiter is set up with.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::clock::Clock;
use crate::decision::{Denied, Granted};
use crate::entry::Rules;
use crate::frame::{Flaw, Frame, Room};
use crate::jitter::Jitter;
use crate::limiter::RateLimiter;
use crate::observer::{Extras, Hook, Observer};
use crate::plan::Plan;
use crate::quota::{InvalidQuota, Quota};
use crate::regime::Regimes;
use crate::shared::{Choose, Shared};
use crate::terms::Terms;
use crate::token_bucket::TokenBucket;

/// Keys that a limiter holds unless told otherwise.
const DEFAULT_MAX_KEYS: usize = 1 << 20;
/// More are not held: a ticket is known by 32 bits.
const MOST_KEYS: usize = 1 << 32;

/// What becomes of a new key when the limiter holds its maximum and no bucket can be evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// It shares one of 1,024 buckets with other such keys, chosen by hash, under the same quota. The
    /// law holds for each key; keys that share a bucket may refuse each other. A key that enters the map
    /// later brings the level of that bucket with it.
    #[default]
    Share,
    /// It is denied, with [`Reason::Full`](crate::Reason::Full).
    Deny,
    /// It is granted and not counted against anything.
    Allow,
}

/// What one bucket and many are set up with alike.
#[derive(Clone)]
pub(crate) struct Settings {
    quota: Quota,
    clock: Clock,
    room: Room,
    /// Of the quota and the room.
    frame: Frame,
    initial: Option<u64>,
    shadow: bool,
    hook: Option<Hook>,
    jitter: Jitter,
}

impl Settings {
    fn new(quota: Quota) -> Settings {
        Settings {
            quota,
            clock: Clock::new(),
            room: Room::DEFAULT,
            frame: quota.frame(),
            initial: None,
            shadow: false,
            hook: None,
            jitter: Jitter::NONE,
        }
    }

    fn with_room(&mut self, room: Room) -> Result<(), Flaw> {
        self.frame = Frame::of(self.quota.numbers(), room)?;
        self.room = room;
        Ok(())
    }

    pub(crate) fn finish(self) -> (Rules, Extras) {
        let source = Regimes::new(self.quota, self.frame);
        let observer = Observer::new(self.shadow, self.hook);
        (Rules::new(source, self.clock, self.initial), Extras { observer, jitter: self.jitter })
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
            self.settings.with_room(Room { headroom: Some(quota.numbers()), ..self.settings.room })?;
            self.tried()
        }

        /// The most tokens that may be promised ahead to those who wait, or owed by those who [`settle`](crate::Hold::settle).
        /// 0 to 2^40; by default one burst. With 0 nobody waits.
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
            self.settings.with_room(Room { max_debt: Some(tokens), ..self.settings.room })?;
            self.tried()
        }

        /// A new bucket starts with no token. (A key that was forgotten, after its bucket had been full for 2 s, is new.)
        pub fn start_empty(self) -> Self {
            self.initial_tokens(0)
        }

        /// A new bucket starts with so many tokens, at most a full bucket; by default it is full. (A key that was
        /// forgotten, after its bucket had been full for 2 s, is new.)
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

        /// Shows every decision to a function, which runs in the call that asked: before shadow mode overrules it.
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

/// Sets up a [`TokenBucket`].
///
/// # Examples
///
/// ```
/// use tollgate::{Clock, Quota, TokenBucket};
///
/// let (clock, mock) = Clock::mock();
/// let bucket = TokenBucket::builder(Quota::per_second(10)).clock(clock).initial_tokens(3).build();
/// assert_eq!(bucket.peek().remaining(), 3);
/// ```
#[derive(Debug)]
#[must_use]
pub struct BucketBuilder {
    settings: Settings,
}

impl BucketBuilder {
    pub(crate) fn new(quota: Quota) -> BucketBuilder {
        BucketBuilder { settings: Settings::new(quota) }
    }

    common_setters!();

    fn tried(self) -> Result<Self, InvalidQuota> {
        Ok(self)
    }

    /// The bucket.
    #[must_use]
    pub fn build(self) -> TokenBucket {
        let (rules, extras) = self.settings.finish();
        TokenBucket::from_rules(rules, extras)
    }
}

/// Sets up a [`RateLimiter`].
///
/// # Examples
///
/// ```
/// use tollgate::{Clock, Quota, RateLimiter, WhenFull};
///
/// let (clock, mock) = Clock::mock();
/// let limiter = RateLimiter::<u64>::builder(Quota::per_second(10))
///     .clock(clock)
///     .max_keys(100_000)
///     .presize(100_000)
///     .when_full(WhenFull::Deny)
///     .build();
/// assert!(limiter.try_acquire(&7).is_ok());
/// ```
#[must_use]
pub struct Builder<K, S> {
    pub(crate) settings: Settings,
    pub(crate) hasher: S,
    pub(crate) max_keys: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) presize: usize,
    pub(crate) plans: Option<(Vec<Quota>, Choose<K>)>,
    key: PhantomData<fn() -> K>,
}

impl<K, S: Default> Builder<K, S> {
    pub(crate) fn new(quota: Quota) -> Self {
        Builder {
            settings: Settings::new(quota),
            hasher: S::default(),
            max_keys: DEFAULT_MAX_KEYS,
            when_full: WhenFull::default(),
            presize: 0,
            plans: None,
            key: PhantomData,
        }
    }
}

impl<K, S> Builder<K, S> {
    common_setters!();

    /// Puts keys under plans of their own, by a function that is asked in every call: the place of the key's plan in
    /// `plans`, or `None` (as any place beyond them) for the limiter's own quota.
    ///
    /// It costs a call of the function, and a key that is not held is cloned for it. Callers who know the plan say so
    /// with [`try_acquire_as`](RateLimiter::try_acquire_as), which goes before.
    ///
    /// # Errors
    ///
    /// [`InvalidQuota`] if one of the plans does not fit the limiter, as [`RateLimiter::plan`] has it; see
    /// [`headroom`](Builder::headroom).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let gold = Quota::per_second(100);
    /// let limiter = RateLimiter::<String>::builder(Quota::per_second(10))
    ///     .headroom(gold)?
    ///     .plan_for([gold], |key| key.starts_with("gold-").then_some(0))?
    ///     .build();
    /// assert_eq!(limiter.peek("gold-ada").remaining(), 100);
    /// assert_eq!(limiter.peek("bob").remaining(), 10);
    /// # Ok::<(), tollgate::InvalidQuota>(())
    /// ```
    pub fn plan_for(
        mut self,
        plans: impl IntoIterator<Item = Quota>,
        choose: impl Fn(&K) -> Option<usize> + Send + Sync + 'static,
    ) -> Result<Self, InvalidQuota> {
        self.plans = Some((plans.into_iter().collect(), Box::new(choose)));
        self.tried()
    }

    /// Itself, if the plans still fit.
    fn tried(self) -> Result<Self, InvalidQuota> {
        let quota = self.settings.quota;
        let terms = Terms::in_frame(quota.numbers(), self.settings.frame);
        for plan in self.plans.iter().flat_map(|(plans, _)| plans) {
            Plan::compile(0, *plan, quota, &terms, 0)?;
        }
        Ok(self)
    }

    /// The hasher of keys; by default the type's default. A key is hashed once a decision.
    pub fn hasher(mut self, hasher: S) -> Self {
        self.hasher = hasher;
        self
    }

    /// The most keys to hold; by default 1,048,576. More than 2^32 count as 2^32. With 0 no key has a bucket
    /// of its own, and [`when_full`](Builder::when_full) decides on all.
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys.min(MOST_KEYS);
        self
    }

    /// What becomes of new keys when there is no room; by default they [share](WhenFull::Share).
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Allocates the map for this many keys ahead, at most for [`max_keys`](Builder::max_keys). By
    /// default it grows, in steps that other decisions help with.
    pub fn presize(mut self, keys: usize) -> Self {
        self.presize = keys;
        self
    }

    /// The limiter.
    #[must_use]
    pub fn build(self) -> RateLimiter<K, S> {
        RateLimiter::from_shared(Shared::new(self))
    }
}

impl<K, S> fmt::Debug for Builder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("settings", &self.settings)
            .field("max_keys", &self.max_keys)
            .field("when_full", &self.when_full)
            .field("presize", &self.presize)
            .finish_non_exhaustive()
    }
}

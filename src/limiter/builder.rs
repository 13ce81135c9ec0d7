//! What a limiter is set up with.

use std::fmt;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::keyed::keyspace::{Keyspace, KeyspaceOptions};
use crate::keyed::overflow::WhenFull;
use crate::limiter::inner::{Choose, Inner, Plans};
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::settings::{Settings, common_setters};
use crate::limiter::token_bucket::TokenBucket;
use crate::quota::layout::LayoutOptions;
use crate::quota::rate::{InvalidQuota, Quota};
use crate::time::clock::Clock;
use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::Plan;
use crate::word::terms::Terms;

/// Keys that a limiter holds unless told otherwise.
const DEFAULT_MAX_KEYS: usize = 1 << 20;
/// More are not held: a ticket is known by 32 bits.
const MOST_KEYS: usize = 1 << 32;

impl TokenBucket {
    /// A bucket to set up.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let bucket = TokenBucket::builder(Quota::per_second(10)).start_empty().build();
    /// assert!(bucket.try_acquire().is_err());
    /// ```
    pub fn builder(quota: Quota) -> BucketBuilder {
        BucketBuilder::new(quota)
    }
}

impl<K> RateLimiter<K> {
    /// A limiter on the processor's counter, of at most 1,048,576 keys.
    #[must_use]
    pub fn new(quota: Quota) -> RateLimiter<K> {
        RateLimiter::builder(quota).build()
    }
}

impl<K, S: BuildHasher + Default> RateLimiter<K, S> {
    /// A limiter to set up.
    pub fn builder(quota: Quota) -> Builder<K, S> {
        Builder::new(quota)
    }
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
    spread: bool,
}

impl BucketBuilder {
    pub(crate) fn new(quota: Quota) -> BucketBuilder {
        BucketBuilder { settings: Settings::new(quota), spread: false }
    }

    common_setters!();

    fn tried(self) -> Result<Self, InvalidQuota> {
        Ok(self)
    }

    /// Spreads the bucket over the cores, as [`TokenBucket::spread`] does.
    pub fn spread(mut self) -> Self {
        self.spread = true;
        self
    }

    /// The bucket.
    #[must_use]
    pub fn build(self) -> TokenBucket {
        let (engine, extras) = self.settings.finish();
        let bucket = TokenBucket::from_rules(engine, extras);
        if self.spread { bucket.spread() } else { bucket }
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
    /// Keys of a fixed table, if it is to be one.
    pub(crate) inline: Option<usize>,
    pub(crate) when_full: WhenFull,
    pub(crate) presize: usize,
    pub(crate) plans: Vec<Quota>,
    pub(crate) choose: Option<Choose<K>>,
    pub(crate) spread_hot: bool,
    key: PhantomData<fn() -> K>,
}

impl<K, S: Default> Builder<K, S> {
    pub(crate) fn new(quota: Quota) -> Self {
        Builder {
            settings: Settings::new(quota),
            hasher: S::default(),
            max_keys: DEFAULT_MAX_KEYS,
            inline: None,
            when_full: WhenFull::default(),
            presize: 0,
            plans: Vec::new(),
            choose: None,
            spread_hot: false,
            key: PhantomData,
        }
    }
}

impl<K, S> Builder<K, S> {
    common_setters!();

    /// Quotas for [`plan_for`](Builder::plan_for) to choose from.
    ///
    /// # Errors
    ///
    /// [`InvalidQuota`] if one of them does not fit the limiter, as [`RateLimiter::plan`] has it; see
    /// [`headroom`](Builder::headroom).
    pub fn plans(mut self, plans: impl IntoIterator<Item = Quota>) -> Result<Self, InvalidQuota> {
        self.plans = plans.into_iter().collect();
        self.tried()
    }

    /// Puts keys under plans of their own, by a function that is asked in every call: the place of the key's plan among
    /// the [`plans`](Builder::plans), or `None` (as any place beyond them) for the limiter's own quota.
    ///
    /// It costs a call of the function, and a key that is not held is cloned for it. Callers who know the plan say so
    /// with [`try_acquire_as`](RateLimiter::try_acquire_as), which goes before.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let gold = Quota::per_second(100);
    /// let limiter = RateLimiter::<String>::builder(Quota::per_second(10))
    ///     .headroom(gold)?
    ///     .plans([gold])?
    ///     .plan_for(|key| key.starts_with("gold-").then_some(0))
    ///     .build();
    /// assert_eq!(limiter.peek("gold-ada").remaining(), 100);
    /// assert_eq!(limiter.peek("bob").remaining(), 10);
    /// # Ok::<(), tollgate::InvalidQuota>(())
    /// ```
    pub fn plan_for(mut self, choose: impl Fn(&K) -> Option<usize> + Send + Sync + 'static) -> Self {
        self.choose = Some(Box::new(choose));
        self
    }

    /// Itself, if the plans still fit.
    fn tried(self) -> Result<Self, InvalidQuota> {
        let quota = self.settings.quota;
        let terms = Terms::in_layout(quota.numbers(), self.settings.layout);
        for plan in &self.plans {
            Plan::compile(0, *plan, quota, &terms, None)?;
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

    /// Keeps the buckets in a fixed table for this many keys, instead of a map that grows: a key of a million costs one cache miss
    /// instead of three, and 22 bytes. More than 2^32 count as 2^32. [`max_keys`](Builder::max_keys) and [`presize`](Builder::presize) then
    /// say nothing.
    ///
    /// All of it is allocated by [`build`](Builder::build), and nothing ever after. Forgetting a key is giving its place to another, when
    /// its bucket has been full for 2 s, as ever. There are places for a third more keys than it is made for, and each key has 16 where it may be.
    /// Those may all be taken by keys that are limited: of the keys that come until there are as many as the table is made for, all
    /// limited, one in 3,000 finds no room, and one in 120 to 150 of those that come then. Up to four fifths of them it is one in 600,000.
    /// [`when_full`](Builder::when_full) decides on it.
    ///
    /// A key itself is not stored, but 64 bits of its hash: of `n` keys that are held two share a bucket with a probability of about
    /// `n^2 / 2^65` (one in 40 million for a million keys, 3 in a million for ten million), if the hasher is a sound one with a
    /// secret, as the default is. Nobody who does not know the secret can bring that about. With a hasher whose results can be
    /// foretold anybody can, and so use up somebody else's limit.
    ///
    /// A new key excludes others of its set for some ten nanoseconds; decisions on known keys do not wait for that. If a
    /// newcomer is put to sleep in it, others of that set find no room until it wakes. A key that was [removed](RateLimiter::remove) leaves
    /// its place to others after 2 s. [`plan_for`](Builder::plan_for) clones the key in each call.
    ///
    /// With feature `huge-pages` a table of 2 MiB or more, some 98,000 keys, is mapped, and Linux is advised to put it on huge pages. If it has none to
    /// give, nothing else changes. A smaller table, and one on any other system, is allocated as without.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<IpAddr>::builder(Quota::per_second(100)).inline(100_000).build();
    /// let peer: IpAddr = "192.0.2.7".parse()?;
    /// assert_eq!(limiter.try_acquire(&peer).map(|granted| granted.remaining()), Ok(99));
    /// assert_eq!(limiter.len(), 1);
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn inline(mut self, keys: usize) -> Self {
        self.inline = Some(keys.min(MOST_KEYS));
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

    /// Spreads keys over the cores while they are contended, as [`TokenBucket::spread`] does with one bucket: for limiters of which a few
    /// keys are asked for by many threads at once, and nobody knows which.
    ///
    /// A key on which 32 races for its word were lost within 10 ms gets cells, one a core, with tokens at hand that were taken ahead. It
    /// loses them when no core has taken ahead for 100 ms, and somebody takes of a key that is not spread, makes room in the limiter, or calls
    /// [`evict_idle`](RateLimiter::evict_idle); and when it is removed. There are cells for 16 keys, each at one of 16 seats: of two
    /// whose seat is the same one is spread, the first. [`Stats::spread`](crate::Stats::spread) tells how many are.
    ///
    /// * The law is that of any bucket, at every moment. So are refusals, but for what is said at [`TokenBucket::spread`], which goes for
    ///   a key while it is spread: above all, that tokens spent of a lease are earned again from its end on.
    /// * A key that is spread is not evicted.
    /// * A decision on any key looks at its seat as well, and took 1.4 to 1.8 times as long for it. One on a key that is spread still looks the key up: what
    ///   is saved is the wait for its word. With two cores that ask for one key a decision took 0.4 of its time without this; of more cores there is
    ///   more to save.
    /// * Seats and cells are there from the beginning: some 6 KiB, and 2 KiB for each core.
    /// * A decision under a [plan](crate::Plan) ends it for that key. So no key is spread of a limiter with [`plan_for`](Builder::plan_for), nor
    ///   of one with a [hook](Builder::on_decision) or in [shadow mode](Builder::shadow): there it says nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Clock, Quota, RateLimiter};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let limiter = RateLimiter::<String>::builder(Quota::per_second(50_000)).clock(clock).spread_hot().build();
    /// let granted = std::thread::scope(|scope| {
    ///     let take_all = || (0..50_000).filter(|_| limiter.try_acquire("tenant").is_ok()).count();
    ///     let threads = [scope.spawn(take_all), scope.spawn(take_all)];
    ///     threads.map(|thread| thread.join().unwrap()).iter().sum::<usize>()
    /// });
    /// assert_eq!(granted, 50_000);
    /// assert!(limiter.stats().spread <= 1);
    /// ```
    pub fn spread_hot(mut self) -> Self {
        self.spread_hot = true;
        self
    }

    /// The limiter.
    #[must_use]
    pub fn build(self) -> RateLimiter<K, S> {
        let (engine, extras) = self.settings.finish();
        let keyspace = Keyspace::new(KeyspaceOptions {
            engine,
            inline: self.inline,
            presize: self.presize,
            max_keys: self.max_keys,
            when_full: self.when_full,
            // A hook, or a plan for each key, is not for a key that is spread.
            spread_hot: self.spread_hot && self.choose.is_none() && extras.observer.is_none(),
        });
        let plans = self.choose.map(|choose| {
            let compile = |quota| keyspace.plan(quota).expect("the builder has tried it");
            Plans { plans: self.plans.into_iter().map(compile).collect(), choose }
        });
        RateLimiter::from_inner(Inner::new(keyspace, self.hasher, extras, plans))
    }
}

impl<K, S> fmt::Debug for Builder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("settings", &self.settings)
            .field("max_keys", &self.max_keys)
            .field("inline", &self.inline)
            .field("when_full", &self.when_full)
            .field("presize", &self.presize)
            .field("spread_hot", &self.spread_hot)
            .finish_non_exhaustive()
    }
}

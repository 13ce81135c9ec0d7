//! Builders of a bucket and of a limiter.

use std::fmt;
use std::hash::RandomState;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::inflight::invalid_limit::InvalidLimit;
use crate::keyed::overflow::WhenFull;
use crate::limiter::inner::{Choose, Inner, Plans};
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::settings::{KeySettings, Settings, common_setters};
use crate::limiter::token_bucket::TokenBucket;
use crate::quota::error::InvalidQuota;
use crate::quota::gate::Gate;
use crate::quota::layout::LayoutOptions;
use crate::quota::rate::Quota;
use crate::time::clock::Clock;
use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted};

impl TokenBucket {
    /// Returns a builder of a bucket with this quota.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let bucket = TokenBucket::builder(Quota::per_second(10)).initial_tokens(0).build();
    /// assert!(bucket.try_acquire().is_err());
    /// ```
    pub fn builder(quota: Quota) -> BucketBuilder {
        BucketBuilder { settings: Settings::new(quota), spread: false }
    }
}

impl<K> RateLimiter<K> {
    /// Returns a limiter of at most 1,048,576 keys, whose clock is the processor's counter.
    #[must_use]
    pub fn new(quota: Quota) -> RateLimiter<K> {
        RateLimiter::builder(quota).build()
    }

    /// Returns a builder of a limiter with this quota.
    ///
    /// The keys have the default hasher, as those of [`HashMap::new`](std::collections::HashMap)
    /// do. [`hasher`](Builder::hasher) sets another one.
    pub fn builder(quota: Quota) -> Builder<K> {
        Builder {
            settings: Settings::new(quota),
            keys: KeySettings::default(),
            plans: Vec::new(),
            choose: None,
            key: PhantomData,
        }
    }
}

/// A builder of a [`TokenBucket`].
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
    common_setters!();

    fn tried(self) -> Result<Self, InvalidQuota> {
        Ok(self)
    }

    /// Spreads the bucket over the cores: for one limit that many threads take from at once.
    ///
    /// Threads that take from a plain bucket contend for its one word. In a spread bucket each core
    /// has a lease: tokens that it took from the word ahead. A grant from a lease writes no cache
    /// line of another core and reads no clock. The lease size adapts to demand: 0 while takes are
    /// rare (the bucket then behaves like a plain one), and up to 512 tokens per core, a quarter of
    /// the burst in total, under contention. The rest of a lease goes back when its core has not
    /// used it for 1 ms and another thread takes from the bucket.
    ///
    /// * The guarantee is that of any bucket: leased tokens are tokens of the bucket.
    /// * No call is refused a token that another core has on lease. A refusal says the same as that
    ///   of a plain bucket, and writes nothing once no leases are left. (A thread that the
    ///   scheduler stops in the few nanoseconds in which it takes a lease hides that lease for as
    ///   long.)
    /// * The cost is burst depth. Tokens spent from a lease start to refill only when the lease
    ///   ends, so a contended bucket refills to its burst minus the outstanding leases (at most a
    ///   quarter). The rate is never lower.
    /// * [`Granted::remaining`] is the rest of this core's lease and the level of the word when
    ///   that lease was taken.
    /// * The other verbs recall all leases if the word has too few tokens. A bucket that is mostly
    ///   used by them gains nothing, nor does one with a burst below about eight tokens a core.
    ///
    /// A bucket with a [hook](Self::on_decision) or in [shadow mode](Self::shadow) stays plain.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let service = TokenBucket::builder(Quota::per_second(100_000)).clock(clock).spread().build();
    /// let granted = std::thread::scope(|scope| {
    ///     let take_all = || (0..100_000).filter(|_| service.try_acquire().is_ok()).count();
    ///     let threads = [scope.spawn(take_all), scope.spawn(take_all)];
    ///     threads.map(|thread| thread.join().unwrap()).iter().sum::<usize>()
    /// });
    /// assert_eq!(granted, 100_000);
    /// assert_eq!(service.peek().remaining(), 0);
    /// ```
    pub fn spread(self) -> Self {
        BucketBuilder { spread: true, ..self }
    }

    /// Returns the bucket.
    #[must_use]
    pub fn build(self) -> TokenBucket {
        let max_waiting = self.settings.max_waiting;
        let (engine, hook, jitter) = self.settings.finish();
        let bucket = TokenBucket { max_waiting, ..TokenBucket::from_rules(engine, hook, jitter) };
        if self.spread { bucket.spread() } else { bucket }
    }
}

/// A builder of a [`RateLimiter`].
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
///     .presize(100_000)?
///     .when_full(WhenFull::Deny)
///     .build();
/// assert!(limiter.try_acquire(&7).is_ok());
/// # Ok::<(), tollgate::InvalidLimit>(())
/// ```
#[must_use]
pub struct Builder<K, S = RandomState> {
    pub(crate) settings: Settings,
    pub(crate) keys: KeySettings<S>,
    pub(crate) plans: Vec<Quota>,
    pub(crate) choose: Option<Choose<K>>,
    key: PhantomData<fn() -> K>,
}

impl<K, S> Builder<K, S> {
    common_setters!();

    /// Sets the quotas from which [`plan_for`](Builder::plan_for) chooses, and makes room for them.
    ///
    /// Without `plan_for` no key is under them.
    ///
    /// # Errors
    ///
    /// [`InvalidQuota`] if no word holds them beside the limiter's own quota.
    pub fn plans(self, plans: impl IntoIterator<Item = Quota>) -> Result<Self, InvalidQuota> {
        Builder { plans: plans.into_iter().collect(), ..self }.tried()
    }

    /// Sets a function that chooses the plan of each key, in every call.
    ///
    /// The function returns an index in the [`plans`](Builder::plans). `None` and an index past
    /// their end mean the limiter's own quota: without `plans` every key is under that.
    ///
    /// Each call of the limiter also calls the function, and clones a key that has no bucket yet;
    /// with [`inline`](Builder::inline) it clones every key. If the caller knows the plan,
    /// [`try_acquire_as`](RateLimiter::try_acquire_as) names it, and the function is not called.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let gold = Quota::per_second(100);
    /// let limiter = RateLimiter::<String>::builder(Quota::per_second(10))
    ///     .plans([gold])?
    ///     .plan_for(|key| key.starts_with("gold-").then_some(0))
    ///     .build();
    /// assert_eq!(limiter.peek("gold-ada").remaining(), 100);
    /// assert_eq!(limiter.peek("bob").remaining(), 10);
    /// # Ok::<(), tollgate::InvalidQuota>(())
    /// ```
    pub fn plan_for(self, choose: impl Fn(&K) -> Option<usize> + Send + Sync + 'static) -> Self {
        Builder { choose: Some(Box::new(choose)), ..self }
    }

    /// Returns the builder with room for its plans.
    fn tried(mut self) -> Result<Self, InvalidQuota> {
        self.settings.make_room_for(&self.plans)?;
        Ok(self)
    }

    /// Sets the hasher of keys; by default [`RandomState`]. A decision hashes its key once.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::hash::{BuildHasherDefault, DefaultHasher};
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// // Each run has the same hashes: for tests, not for keys of clients.
    /// type Fixed = BuildHasherDefault<DefaultHasher>;
    /// let limiter: RateLimiter<u64, Fixed> =
    ///     RateLimiter::builder(Quota::per_second(10)).hasher(Fixed::default()).build();
    /// assert!(limiter.try_acquire(&1).is_ok());
    /// ```
    pub fn hasher<H>(self, hasher: H) -> Builder<K, H> {
        let Builder { settings, keys, plans, choose, key } = self;
        Builder { settings, keys: keys.hasher(hasher), plans, choose, key }
    }

    /// Sets the largest number of keys with a bucket of their own; by default 1,048,576. It is for
    /// the map: a table has the room of [`inline`](Builder::inline).
    ///
    /// More than 2^32 count as 2^32. With 0 no key has a bucket of its own, and
    /// [`when_full`](Builder::when_full) decides on all of them.
    pub fn max_keys(self, max_keys: usize) -> Self {
        Builder { keys: self.keys.max_keys(max_keys), ..self }
    }

    /// Keeps the buckets in a fixed table for `keys` keys, instead of a map that grows.
    ///
    /// In a table of a million keys, a decision costs one cache miss instead of three, and a key
    /// takes 22 bytes. [`max_keys`](Builder::max_keys) and
    /// [`presize`](Builder::presize) then have no effect.
    ///
    /// [`build`](Builder::build) allocates the whole table. A later decision allocates in three
    /// cases only: the first key makes the counts, the first key without room, under the quota or
    /// under a plan, makes the buckets that such keys [share](WhenFull::Share), and
    /// [`plan_for`](Builder::plan_for) clones the key in each call.
    ///
    /// A new key takes the slot of a key whose bucket has been full for 2 s, as in the map. The
    /// table has a third more slots than `keys`, and each key may be in 16 of them. If limited keys
    /// hold all 16, [`when_full`](Builder::when_full) decides on the new key. If all keys are
    /// limited:
    ///
    /// | new keys that arrive | share without room |
    /// |---|---|
    /// | until the table holds four fifths of `keys` | one in 600,000 |
    /// | until the table holds `keys` | one in 3,000 |
    /// | after that | one in 120 to 150 |
    ///
    /// The table stores 64 bits of a key's hash, and not the key. Of `n` held keys, two share a
    /// bucket with a probability of about `n^2 / 2^65`: one in 40 million for a million keys, 3 in
    /// a million for ten million. This assumes a sound hasher with a secret, as the default is. An
    /// attacker without the secret cannot cause a collision. With a predictable hasher any client
    /// can collide with another client's key, and use up its limit.
    ///
    /// A thread that inserts a key excludes other inserts in the same set for about ten
    /// nanoseconds. Decisions on known keys do not wait for it. If the inserting thread is
    /// descheduled meanwhile, other new keys of the set find no room until it resumes. The slot of
    /// a [removed](RateLimiter::remove) key is free for others after 2 s.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if `keys` is above 2^28, or above 2^24 where a `usize` has 32 bits: such a
    /// table would not fit into the memory of most machines.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<IpAddr>::builder(Quota::per_second(100)).inline(100_000)?.build();
    /// let peer: IpAddr = "192.0.2.7".parse()?;
    /// assert_eq!(limiter.try_acquire(&peer).map(|granted| granted.remaining()), Ok(99));
    /// assert_eq!(limiter.len(), 1);
    ///
    /// let error = RateLimiter::<IpAddr>::builder(Quota::per_second(100)).inline(usize::MAX).unwrap_err();
    /// assert!(error.to_string().starts_with("a number of keys to allocate of 1844"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inline(self, keys: usize) -> Result<Self, InvalidLimit> {
        Ok(Builder { keys: self.keys.inline(keys)?, ..self })
    }

    /// Sets the policy for new keys that find no room; by default they [share](WhenFull::Share).
    pub fn when_full(self, when_full: WhenFull) -> Self {
        Builder { keys: KeySettings { when_full, ..self.keys }, ..self }
    }

    /// Allocates the map in advance for `keys` keys, at most for [`max_keys`](Builder::max_keys).
    /// With [`inline`](Builder::inline) there is no map.
    ///
    /// By default the map grows in steps, and decisions on other keys help with each step.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if `keys` is above 2^28, or above 2^24 where a `usize` has 32 bits.
    pub fn presize(self, keys: usize) -> Result<Self, InvalidLimit> {
        Ok(Builder { keys: self.keys.presize(keys)?, ..self })
    }

    /// Returns the limiter.
    #[must_use]
    pub fn build(self) -> RateLimiter<K, S> {
        let max_waiting = self.settings.max_waiting;
        let (engine, hook, jitter) = self.settings.finish();
        let (keyspace, hasher) = self.keys.keyspace(engine);
        let plans = self.choose.map(|choose| {
            let compile = |quota| keyspace.plan(quota).expect("the builder has tried it");
            Plans { plans: self.plans.into_iter().map(compile).collect(), choose }
        });
        RateLimiter {
            inner: Arc::new(Inner { max_waiting, ..Inner::new(keyspace, hasher, hook, jitter, plans) }),
        }
    }
}

impl<K, S> fmt::Debug for Builder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("settings", &self.settings)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

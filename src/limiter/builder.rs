//! Builders of a bucket and of a limiter.

use std::fmt;
use std::hash::RandomState;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::keyed::overflow::WhenFull;
#[cfg(doc)]
use crate::limiter::ask::Ask;
use crate::limiter::inner::{Choose, Inner, Plans};
use crate::limiter::limit::Limit;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::rule::Rule;
use crate::limiter::settings::{KeySettings, Settings, common_setters, quota_setters};
use crate::rule::any_rule::AnyRule;
use crate::rule::error::InvalidRule;
use crate::rule::rate::Quota;
use crate::time::clock::Clock;
use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted};

impl<R: Rule> Limit<R> {
    /// Returns a builder of a bucket under this rule.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let bucket = TokenBucket::builder(Quota::per_second(10)).initial_tokens(0).build();
    /// assert!(bucket.try_acquire().is_err());
    /// ```
    pub fn builder(rule: R) -> LimitBuilder<R> {
        LimitBuilder { settings: Settings::new(rule), spread: false }
    }
}

impl<K, R: Rule> RateLimiter<K, R> {
    /// Returns a limiter of at most 1,048,576 keys, with the default hasher.
    ///
    /// Its clock is the processor's counter, or for a window with edges by the calendar the
    /// [wall clock](Clock#the-wall-clock). [`Places`](crate::Places) have no clock.
    #[must_use]
    pub fn new(rule: R) -> RateLimiter<K, R> {
        RateLimiter::builder(rule).build()
    }

    /// Returns a builder of a limiter under this rule.
    ///
    /// The keys have the default hasher, as those of [`HashMap::new`](std::collections::HashMap)
    /// do. [`hasher`](Builder::hasher) sets another one.
    pub fn builder(rule: R) -> Builder<K, R> {
        Builder {
            settings: Settings::new(rule),
            keys: KeySettings { when_full: R::WHEN_FULL, ..KeySettings::default() },
            plans: Vec::new(),
            choose: None,
            key: PhantomData,
        }
    }
}

/// A builder of a [`Limit`].
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
pub struct LimitBuilder<R: Rule = Quota> {
    settings: Settings<R>,
    spread: bool,
}

impl<R: Rule> LimitBuilder<R> {
    common_setters!();

    fn tried(self) -> Result<Self, InvalidRule> {
        Ok(self)
    }

    /// Returns the bucket.
    #[must_use]
    pub fn build(self) -> Limit<R> {
        let (max_waiting, jitter) = (self.settings.max_waiting, self.settings.jitter);
        let (built, engine, hook) = self.settings.finish();
        let initial = engine.initial();
        let limit = Limit { max_waiting, jitter, ..Limit::of(built, engine, hook) };
        limit.bucket.set(initial);
        if self.spread { limit.spread() } else { limit }
    }
}

impl LimitBuilder<Quota> {
    quota_setters!();

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
        LimitBuilder { spread: true, ..self }
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
/// # Ok::<(), tollgate::InvalidRule>(())
/// ```
#[must_use]
pub struct Builder<K, R: Rule = Quota, S = RandomState> {
    pub(crate) settings: Settings<R>,
    pub(crate) keys: KeySettings<S>,
    pub(crate) plans: Vec<R>,
    pub(crate) choose: Option<Choose<K>>,
    key: PhantomData<fn() -> K>,
}

impl<K, S> Builder<K, Quota, S> {
    quota_setters!();
}

impl<K, R: Rule, S> Builder<K, R, S> {
    common_setters!();

    /// Sets the rules from which [`plan_for`](Builder::plan_for) chooses, and makes room for them.
    ///
    /// Without `plan_for` no key is under them.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] if no word holds them beside the limiter's own rule.
    pub fn plans(self, plans: impl IntoIterator<Item = R>) -> Result<Self, InvalidRule> {
        Builder { plans: plans.into_iter().collect(), ..self }.tried()
    }

    /// Sets a function that chooses the plan of each key, in every call.
    ///
    /// The function returns an index in the [`plans`](Builder::plans). `None` and an index past
    /// their end mean the limiter's own rule: without `plans` every key is under that.
    ///
    /// Each call of the limiter also calls the function, and clones a key that has no bucket yet;
    /// with [`inline`](Builder::inline) it clones every key. If the caller knows the plan,
    /// [`Ask::under`] names it, and the function is not called.
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
    /// # Ok::<(), tollgate::InvalidRule>(())
    /// ```
    pub fn plan_for(self, choose: impl Fn(&K) -> Option<usize> + Send + Sync + 'static) -> Self {
        Builder { choose: Some(Box::new(choose)), ..self }
    }

    /// Returns the builder with room for its plans.
    fn tried(mut self) -> Result<Self, InvalidRule> {
        let Settings { rule, room, .. } = &mut self.settings;
        rule.make_room_for(room, &self.plans)?;
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
    /// let limiter: RateLimiter<u64, Quota, Fixed> =
    ///     RateLimiter::builder(Quota::per_second(10)).hasher(Fixed::default()).build();
    /// assert!(limiter.try_acquire(&1).is_ok());
    /// ```
    pub fn hasher<H>(self, hasher: H) -> Builder<K, R, H> {
        let Builder { settings, keys, plans, choose, key } = self;
        Builder { settings, keys: keys.hasher(hasher), plans, choose, key }
    }

    /// Sets the largest number of keys with a bucket of their own; by default 1,048,576.
    ///
    /// A table of [`inline`](Builder::inline) has a third more slots. More than 2^32 count as 2^32,
    /// or as the bound of a table. With 0 no key has a bucket of its own, and
    /// [`when_full`](Builder::when_full) decides on all of them.
    pub fn max_keys(self, max_keys: usize) -> Self {
        Builder { keys: self.keys.max_keys(max_keys), ..self }
    }

    /// Keeps the buckets in a fixed table for [`max_keys`](Builder::max_keys) keys, instead of a
    /// map that grows.
    ///
    /// In a table of a million keys, a decision costs one cache miss instead of three, and a key
    /// takes 21 bytes. [`presize`](Builder::presize) then has no effect.
    ///
    /// [`build`](Builder::build) reserves the whole table: zeroed memory, in microseconds. The
    /// system provides a page of it, mostly 4 KB, when a key is in it. So a table for a million
    /// keys has 0.4 MB in memory with 100 keys, and 22 MB from some 16,000 keys on. (A build with
    /// less optimisation than `opt-level = 2`, with `lto = "off"`, or for x86 of 32 bits, writes
    /// all of it at once.)
    ///
    /// A later decision allocates in three cases only: the first key makes the counts, the first
    /// key without room, under the quota or under a plan, makes the buckets that such keys
    /// [share](WhenFull::Share), and [`plan_for`](Builder::plan_for) clones the key in each call.
    ///
    /// A new key takes the slot of a key whose bucket has been full for 2 s, as in the map. The
    /// table has a third more slots than `max_keys`, and each key may be in 16 of them. If limited
    /// keys hold all 16, [`when_full`](Builder::when_full) decides on the new key. If all keys are
    /// limited:
    ///
    /// | new keys that arrive | share without room |
    /// |---|---|
    /// | until the table holds four fifths of `max_keys` | one in 600,000 |
    /// | until the table holds `max_keys` | one in 3,000 |
    /// | after that | one in 120 to 150 |
    ///
    /// The table stores 63 bits of a key's hash, and not the key. Of `n` held keys, two share a
    /// bucket with a probability of about `n^2 / 2^64`: one in 18 million for a million keys, 5 in
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
    /// [`InvalidRule`] if `max_keys` is above 2^28, or above 2^24 where a `usize` has 32 bits, or
    /// if the system has no memory for the table now. The error names a number of keys that fit. If
    /// there is none left for a later `max_keys`, or at [`build`](Builder::build), the buckets are
    /// in a map.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<IpAddr>::builder(Quota::per_second(100)).max_keys(100_000).inline()?.build();
    /// let peer: IpAddr = "192.0.2.7".parse()?;
    /// assert_eq!(limiter.try_acquire(&peer).map(|granted| granted.remaining()), Ok(99));
    /// assert_eq!(limiter.len(), 1);
    ///
    /// let error = RateLimiter::<IpAddr>::builder(Quota::per_second(100)).max_keys(usize::MAX).inline().unwrap_err();
    /// assert!(error.to_string().starts_with("a number of keys to allocate of 1844"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inline(self) -> Result<Self, InvalidRule> {
        Ok(Builder { keys: self.keys.inline()?, ..self })
    }

    /// Sets the policy for new keys that find no room; by default they [share](WhenFull::Share).
    ///
    /// It is for quotas and windows. New keys of [`Places`](crate::Places) are always
    /// [denied](WhenFull::Deny):
    ///
    /// ```compile_fail,E0277
    /// use tollgate::{Places, RateLimiter, WhenFull};
    ///
    /// let _ = RateLimiter::<u64, _>::builder(Places::new(8)).when_full(WhenFull::Allow);
    /// ```
    pub fn when_full(self, when_full: WhenFull) -> Self
    where
        R: Into<AnyRule>,
    {
        Builder { keys: KeySettings { when_full, ..self.keys }, ..self }
    }

    /// Allocates the map in advance for `keys` keys, at most for [`max_keys`](Builder::max_keys).
    /// With [`inline`](Builder::inline) there is no map.
    ///
    /// By default the map grows in steps, and decisions on other keys help with each step. It is
    /// worth it for keys that come at once after the start, because a step takes some 100 us to a
    /// millisecond of one decision. Later decisions are no faster. Room for more keys than there
    /// will be makes them slower, because their places are in more pages: with four times the room
    /// by a third.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] if `keys` is above 2^28, or above 2^24 where a `usize` has 32 bits.
    pub fn presize(self, keys: usize) -> Result<Self, InvalidRule> {
        Ok(Builder { keys: self.keys.presize(keys)?, ..self })
    }

    /// Returns the limiter.
    #[must_use]
    pub fn build(self) -> RateLimiter<K, R, S> {
        let (max_waiting, jitter) = (self.settings.max_waiting, self.settings.jitter);
        let (built, engine, hook) = self.settings.finish();
        let (keyspace, hasher) = self.keys.keyspace(engine);
        let plans = self.choose.map(|choose| {
            let compile = |rule: R| rule.compile(built, &keyspace).expect("the builder has tried it");
            Plans { plans: self.plans.into_iter().map(compile).collect(), choose }
        });
        let inner = Inner { max_waiting, jitter, ..Inner::new(keyspace, hasher, hook, plans) };
        RateLimiter { inner: Arc::new(inner), built }
    }
}

impl<K, R: Rule, S> fmt::Debug for Builder<K, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("settings", &self.settings)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

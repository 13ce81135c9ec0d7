//! One bucket a key.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

use crate::bucket::reservation::{Hold, Reservation};
use crate::keyed::key::ToKey;
use crate::keyed::keyspace::Stats;
use crate::limiter::inner::Inner;
use crate::limiter::key_call::CallOptions;
use crate::limiter::verbs::UpTo;
use crate::quota::error::InvalidQuota;
use crate::quota::rate::Quota;
use crate::time::clock::{Moment, nanos_of};
use crate::word::by_refill::BUCKETS;
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::Plan;

/// A token bucket for each key, in a lock-free map, all under one quota.
///
/// A key's bucket starts full when the key is first seen. At most
/// [`max_keys`](crate::Builder::max_keys) buckets are held, 1,048,576 by default. Each takes about
/// 43 bytes and the key.
///
/// At that bound, a new key takes the room of a bucket that has been full for 2 s; a call looks at
/// 64 entries at most for one. Where keys [start full](crate::Builder::initial_tokens), a full
/// bucket grants the same as none. Eviction then changes no decision, and no client can reset a
/// limit by pushing keys out.
///
/// If no bucket can be evicted, [`WhenFull`](crate::WhenFull) decides, as it does on a ninth key
/// that agrees with eight others in 32 bits of its hash. (A sound hasher does not cause that.)
///
/// No thread is needed for any of this, and a decision on a known key in the map allocates nothing.
/// A clone is another handle to the same limiter. The default hasher `S` resists flooding.
///
/// # Examples
///
/// ```
/// use std::net::IpAddr;
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::<IpAddr>::new(Quota::per_second(100).burst(200));
/// let peer: IpAddr = "192.0.2.7".parse()?;
/// match limiter.try_acquire(&peer) {
///     Ok(granted) => println!("go on, {} left", granted.remaining()),
///     Err(denied) => println!("429, retry after {:?}", denied.retry_after()),
/// }
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
///
/// Keys are looked up by their borrowed form; see [`ToKey`]:
///
/// ```
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::<String>::new(Quota::per_minute(1));
/// assert!(limiter.try_acquire("ada").is_ok());
/// assert!(limiter.try_acquire("ada").is_err());
/// assert!(limiter.try_acquire("bob").is_ok());
/// ```
pub struct RateLimiter<K, S = RandomState> {
    pub(crate) inner: Arc<Inner<K, S>>,
}

impl<K: Hash + Eq, S: BuildHasher> RateLimiter<K, S> {
    /// Takes `n` tokens of the key's bucket under a plan, all or none.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back. That is never, if `n` is over the plan's burst, or the
    /// plan is of another limiter.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::builder(Quota::per_second(100)).headroom(Quota::per_second(2_000))?.build();
    /// let gold = limiter.plan(Quota::per_second(1_000).burst(2_000))?;
    /// assert!(limiter.try_acquire_as(&7, 1_500, &gold).is_ok());
    /// assert!(limiter.try_acquire_as(&7, 1_500, &gold).is_err());
    /// # Ok::<(), tollgate::InvalidQuota>(())
    /// ```
    #[inline]
    pub fn try_acquire_as<Q>(&self, key: &Q, n: u64, plan: &Plan) -> Result<Granted, Denied>
    where
        Q: ToKey<K> + ?Sized,
    {
        self.key(key).n(n).under(plan).try_acquire()
    }

    /// Takes the tokens that are there in the key's bucket, from none to `n`, in one step.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_hour(5));
    /// assert_eq!(limiter.acquire_up_to(&1, 3).tokens(), 3);
    /// assert_eq!(limiter.acquire_up_to(&1, 3).tokens(), 2);
    /// ```
    #[inline]
    #[must_use = "it may be fewer than were asked for"]
    pub fn acquire_up_to<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Granted {
        self.inner.decide::<BUCKETS, _, _>(key, UpTo(n), CallOptions::NOW)
    }

    /// Gives `n` tokens back to the key's bucket; those above its burst are lost.
    ///
    /// All are lost if the key has no entry, because its bucket was full, and if the key
    /// [shares](crate::WhenFull::Share) its bucket. Over any time `T`, a key is granted at most
    /// `burst + rate * T` tokens and those refunded to it in `T`. A refund has no receipt: tokens
    /// that were taken long ago come back although the bucket has been full since. A
    /// [hold](Self::hold) that is settled gives back only the tokens that the bucket would still
    /// have. Callers in line for the key's tokens move up.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_hour(1));
    /// assert!(limiter.try_acquire(&1).is_ok());
    /// limiter.refund(&1, 1);
    /// assert!(limiter.try_acquire(&1).is_ok());
    /// ```
    pub fn refund<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) {
        self.key(key).n(n).refund();
    }

    /// Returns the tokens that are there in the key's bucket, and takes none.
    ///
    /// A new key gets no entry.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(5));
    /// assert_eq!(limiter.peek(&1).remaining(), 5);
    /// assert!(limiter.is_empty());
    /// ```
    pub fn peek<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Snapshot {
        self.key(key).peek()
    }

    /// Forgets the key, and returns whether it had an entry.
    ///
    /// The key starts anew: full, or with the bucket that it [shares](crate::WhenFull::Share).
    /// An earlier reservation or hold neither gives back to its next bucket nor charges it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_hour(1));
    /// assert!(limiter.try_acquire(&1).is_ok());
    /// assert!(limiter.remove(&1));
    /// assert!(limiter.try_acquire(&1).is_ok());
    /// ```
    pub fn remove<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> bool {
        self.inner.remove(&self.inner.keyspace.store.pin(), key)
    }

    /// Forgets all keys, as [`remove`](Self::remove) does. It looks at every entry.
    pub fn clear(&self) {
        self.inner.keyspace.clear();
    }

    /// Evicts every bucket that has been full for 2 s, and returns their number.
    ///
    /// It looks at every entry. The bound on keys does not need it: it gives the memory of idle
    /// keys back earlier. It evicts none if keys do
    /// [not start full](crate::Builder::initial_tokens): they would start anew with less.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, RateLimiter};
    ///
    /// let (clock, mock) = Clock::mock();
    /// let limiter = RateLimiter::<u64>::builder(Quota::per_second(1)).clock(clock).build();
    /// assert!(limiter.try_acquire(&1).is_ok());
    /// assert_eq!(limiter.evict_idle(), 0);
    /// mock.advance(Duration::from_secs(4));
    /// assert_eq!(limiter.evict_idle(), 1);
    /// ```
    pub fn evict_idle(&self) -> usize {
        self.inner.keyspace.evict_idle()
    }
}

impl<K: Eq, S> RateLimiter<K, S> {
    /// Returns the number of keys held. It may be off by concurrent changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.keyspace.store.len()
    }

    /// Returns whether no key is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the quota in force, for every key that is under no plan.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.inner.keyspace.engine.source.quota()
    }

    /// Returns the quota in force for the keys under a plan of this limiter.
    ///
    /// That is the plan's quota, with its rate changed in proportion by each
    /// [`set_quota`](Self::set_quota) since, and rounded down by at most a millionth. For a plan of
    /// another limiter, and beyond the [bounds](Quota#bounds) of a quota, it is [`Plan::quota`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(100));
    /// let trial = limiter.plan(Quota::per_second(10))?;
    /// limiter.set_quota(Quota::per_second(50))?;
    /// assert_eq!(limiter.quota_as(&trial), Quota::per_second(5).burst(10));
    /// # Ok::<(), tollgate::InvalidQuota>(())
    /// ```
    #[must_use]
    pub fn quota_as(&self, plan: &Plan) -> Quota {
        let is_own = plan.limiter == self.inner.keyspace.id;
        if !is_own {
            return plan.quota();
        }
        match self.quota() {
            Quota::BLOCKED => Quota::BLOCKED,
            _ => plan.in_force(self.inner.keyspace.engine.source.counted_by()),
        }
    }

    /// Changes rate and burst of every key, together and at once, in constant time.
    ///
    /// [`TokenBucket::set_quota`](crate::TokenBucket::set_quota) says which tokens are kept, and
    /// how a raised burst fills. [Plans](Plan) change their rates in proportion. A key that was
    /// evicted, full, under a smaller burst starts full under the larger one.
    ///
    /// [`Quota::BLOCKED`] pauses every key, and [`Quota::UNLIMITED`] ends the limit of the keys
    /// that are under no plan.
    ///
    /// # Errors
    ///
    /// [`InvalidQuota`] if the words as built have no room for it; see
    /// [`headroom`](crate::Builder::headroom).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(10));
    /// limiter.set_quota(Quota::per_second(5))?;
    /// assert_eq!(limiter.peek(&1).remaining(), 5);
    /// # Ok::<(), tollgate::InvalidQuota>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) -> Result<(), InvalidQuota> {
        self.inner.keyspace.set_quota(quota)
    }

    /// Compiles a quota for some of the keys, for [`try_acquire_as`](Self::try_acquire_as).
    ///
    /// # Errors
    ///
    /// [`InvalidQuota`] if the burst does not fit into the words, a tick of the limiter is worth
    /// more than 1/128 of the burst, or the burst fills in more than 1/64 of the words' time range.
    /// [`headroom`](crate::Builder::headroom) makes room.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(100));
    /// let trial = limiter.plan(Quota::per_minute(10))?;
    /// assert_eq!(trial.quota(), Quota::per_minute(10));
    ///
    /// let error = limiter.plan(Quota::per_second(1_000)).unwrap_err();
    /// assert!(error.to_string().starts_with("a burst of 1000 is over the bound of 155 tokens"));
    /// # Ok::<(), tollgate::InvalidQuota>(())
    /// ```
    pub fn plan(&self, quota: Quota) -> Result<Plan, InvalidQuota> {
        self.inner.keyspace.plan(quota)
    }

    /// Returns a reading of the limiter's clock, for [`try_acquire_at`](Self::try_acquire_at).
    #[inline]
    #[must_use]
    pub fn now(&self) -> Moment {
        self.inner.keyspace.engine.clock.now()
    }

    /// Returns the numbers of keys held, and of events so far.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::builder(Quota::per_second(5)).max_keys(1).build();
    /// for key in 0..3 {
    ///     assert!(limiter.try_acquire(&key).is_ok());
    /// }
    /// let stats = limiter.stats();
    /// assert_eq!((stats.keys, stats.shared), (1, 2));
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl<K: Hash + Eq + Send + Sync, S: BuildHasher + Send + Sync> RateLimiter<K, S> {
    /// Takes `n` tokens of the key's bucket that are there or will be.
    ///
    /// The bucket goes into debt, and later callers wait longer. See
    /// [`TokenBucket::reserve`](crate::TokenBucket::reserve).
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the reservation can be made; with `n` over the burst, that is never.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, RateLimiter};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let limiter = RateLimiter::<u64>::builder(Quota::per_second(10).burst(1)).clock(clock).build();
    /// assert_eq!(limiter.reserve(&1, 1)?.commit().tokens(), 1);
    /// assert_eq!(limiter.reserve(&1, 1)?.delay(), Duration::from_millis(100));
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn reserve<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Reservation<'_>, Denied> {
        self.inner.reserve(key, CallOptions::NOW, n, u64::MAX)
    }

    /// Takes `n` tokens of the key's bucket, if they are due within `max_wait`.
    ///
    /// A longer wait is refused at once and takes nothing. See
    /// [`TokenBucket::reserve_within`](crate::TokenBucket::reserve_within).
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_hour(1));
    /// assert!(limiter.try_acquire(&1).is_ok());
    /// assert!(limiter.reserve_within(&1, 1, Duration::from_secs(1)).is_err());
    /// ```
    pub fn reserve_within<Q>(&self, key: &Q, n: u64, max_wait: Duration) -> Result<Reservation<'_>, Denied>
    where
        Q: ToKey<K> + ?Sized,
    {
        self.inner.reserve(key, CallOptions::NOW, n, nanos_of(max_wait))
    }

    /// Takes `estimate` tokens for a cost that is not yet known, all or none.
    ///
    /// [`Hold::settle`] corrects the estimate once the cost is known.
    ///
    /// # Errors
    ///
    /// As [`try_acquire_n`](Self::try_acquire_n).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_hour(1_000));
    /// let hold = limiter.hold(&1, 400)?;
    /// assert_eq!(hold.settle(150), 0);
    /// assert_eq!(limiter.peek(&1).remaining(), 850);
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn hold<Q: ToKey<K> + ?Sized>(&self, key: &Q, estimate: u64) -> Result<Hold<'_>, Denied> {
        self.inner.hold(key, CallOptions::NOW, estimate)
    }
}

impl<K, S> Clone for RateLimiter<K, S> {
    fn clone(&self) -> Self {
        RateLimiter { inner: Arc::clone(&self.inner) }
    }
}

/// Prints no key.
impl<K: Eq, S> fmt::Debug for RateLimiter<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("quota", &format_args!("{}", self.inner.keyspace.engine.source.quota()))
            .field("when_full", &self.inner.keyspace.when_full)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

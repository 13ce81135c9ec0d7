//! One bucket a key: the public faces of it.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

use papaya::LocalGuard;

use crate::background::Background;
use crate::builder::Builder;
use crate::decision::{Denied, Granted, Snapshot};
use crate::key::ToKey;
use crate::quota::Quota;
use crate::shared::{Shared, Stats};

/// A token bucket for each key, in a lock-free map, all under one quota.
///
/// A key's bucket starts full when the key is first seen. Its memory is bounded: at most
/// [`max_keys`](Builder::max_keys) buckets (1,048,576 by default) are held, of about 45 bytes and the key each.
/// Room for new keys is made by evicting buckets that have been full for 2 s. A full bucket says the
/// same as none, so that changes no decision, and nobody can reset a limit by pushing keys out. If no bucket
/// can be evicted, [`WhenFull`](crate::WhenFull) decides. (It does for a ninth key that agrees with eight others in 32 bits of its hash,
/// too: with a sound hasher that does not happen.) No thread is needed for any of this.
///
/// A clone is another handle to the same limiter. The hasher `S` resists flooding unless you choose another.
/// A call looks at 64 entries at the most to make room, and a decision on a known key allocates nothing.
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
/// Keys are looked up by what is borrowed of them, see [`ToKey`]:
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
    shared: Arc<Shared<K, S>>,
}

impl<K, S> RateLimiter<K, S> {
    pub(crate) fn from_shared(shared: Shared<K, S>) -> Self {
        RateLimiter { shared: Arc::new(shared) }
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

impl<K: Hash + Eq, S: BuildHasher> RateLimiter<K, S> {
    /// Takes one token of the key's bucket, if there is one.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back.
    #[inline]
    pub fn try_acquire<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<Granted, Denied> {
        self.try_acquire_n(key, 1)
    }

    /// Takes `n` tokens of the key's bucket, all or none. Taking 0 always succeeds and takes nothing.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back, or that `n` is over the burst and never passes.
    #[inline]
    pub fn try_acquire_n<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        self.shared.try_acquire_n(&self.shared.map.guard(), key, n)
    }

    /// Looks into the key's bucket and takes nothing. A key that was never seen is not remembered by it.
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
        self.shared.peek(&self.shared.map.guard(), key)
    }

    /// Forgets the key, so that it starts anew: full, or as the bucket it would [share](crate::WhenFull::Share).
    /// False if it was not held.
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
        self.shared.remove(&self.shared.map.guard(), key)
    }

    /// Forgets all keys, as [`remove`](RateLimiter::remove) does. Looks at every entry.
    pub fn clear(&self) {
        self.shared.clear();
    }

    /// Evicts every bucket that has been full for 2 s, and tells how many. Looks at every entry.
    ///
    /// Not needed for the bound on keys; it gives memory of idle keys back earlier.
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
        self.shared.evict_idle()
    }

    /// A handle with the same verbs that pays the map's guard once (about 11 ns a call).
    ///
    /// While it lives, the memory of evicted keys is not given back: keep it for a batch of decisions, not
    /// for the life of a thread. It is neither `Send` nor `Sync`, so no future can hold it across an await.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(5));
    /// let pinned = limiter.pin();
    /// for key in 0..10 {
    ///     assert!(pinned.try_acquire(&key).is_ok());
    /// }
    /// ```
    ///
    /// ```compile_fail
    /// fn send<T: Send>(_: T) {}
    /// let limiter = tollgate::RateLimiter::<u64>::new(tollgate::Quota::per_second(5));
    /// send(limiter.pin());
    /// ```
    pub fn pin(&self) -> Pinned<'_, K, S> {
        Pinned { shared: &self.shared, guard: self.shared.map.guard() }
    }
}

impl<K: Eq, S> RateLimiter<K, S> {
    /// Keys held. Under concurrent changes it may be off by those.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.map.len()
    }

    /// Whether no key is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The quota of every key.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.shared.quota
    }

    /// What the limiter holds and did so far.
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
        self.shared.stats()
    }
}

impl<K: Hash + Eq + Send + Sync + 'static, S: BuildHasher + Send + Sync + 'static> RateLimiter<K, S> {
    /// A thread that calls [`evict_idle`](RateLimiter::evict_idle) every `interval`, until it is dropped or
    /// the last handle to the limiter is.
    ///
    /// Nothing depends on it but how early idle keys give their memory back. An interval of at least the
    /// quota's fill time makes the most of each round.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(5));
    /// let janitor = limiter.janitor(Duration::from_secs(10));
    /// assert!(janitor.is_running());
    /// drop(janitor);
    /// ```
    #[must_use = "the thread stops when the janitor is dropped"]
    pub fn janitor(&self, interval: Duration) -> Janitor {
        let shared = Arc::downgrade(&self.shared);
        let round = move || {
            shared.upgrade().is_some_and(|shared| {
                shared.evict_idle();
                true
            })
        };
        Janitor(Background::every("tollgate-janitor", interval, round).ok())
    }
}

/// A thread that evicts idle keys; see [`RateLimiter::janitor`]. Dropping it stops the thread and waits for the
/// end of a round that is under way.
#[derive(Debug)]
pub struct Janitor(Option<Background>);

impl Janitor {
    /// Whether the thread runs: it could be started, and the limiter is still there.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.0.as_ref().is_some_and(Background::is_running)
    }
}

/// A [`RateLimiter`] with the map's guard paid for; see [`RateLimiter::pin`].
pub struct Pinned<'a, K, S = RandomState> {
    shared: &'a Shared<K, S>,
    guard: LocalGuard<'a>,
}

impl<K: Hash + Eq, S: BuildHasher> Pinned<'_, K, S> {
    /// As [`RateLimiter::try_acquire`].
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back.
    #[inline]
    pub fn try_acquire<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<Granted, Denied> {
        self.try_acquire_n(key, 1)
    }

    /// As [`RateLimiter::try_acquire_n`].
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back, or that `n` is over the burst and never passes.
    #[inline]
    pub fn try_acquire_n<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        self.shared.try_acquire_n(&self.guard, key, n)
    }

    /// As [`RateLimiter::peek`].
    pub fn peek<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Snapshot {
        self.shared.peek(&self.guard, key)
    }

    /// As [`RateLimiter::remove`].
    pub fn remove<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> bool {
        self.shared.remove(&self.guard, key)
    }
}

impl<K, S> Clone for RateLimiter<K, S> {
    fn clone(&self) -> Self {
        RateLimiter { shared: Arc::clone(&self.shared) }
    }
}

/// Never prints a key.
impl<K: Eq, S> fmt::Debug for RateLimiter<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("quota", &format_args!("{}", self.shared.quota))
            .field("when_full", &self.shared.when_full)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<K, S> fmt::Debug for Pinned<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned")
            .field("quota", &format_args!("{}", self.shared.quota))
            .finish_non_exhaustive()
    }
}

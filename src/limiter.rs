//! One bucket a key: the map, its bound, and what happens at the bound.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use papaya::LocalGuard;

use crate::background::Background;
use crate::bucket::Bucket;
use crate::clock::Clock;
use crate::decision::{Denied, Granted, Snapshot};
use crate::entry::{Place, Rules};
use crate::eviction::{Look, Ring};
use crate::key::{Alike, ByKey, Carried, Map, Stored, Tag, ToKey};
use crate::quota::Quota;
use crate::state::{Outcome, State};

/// Keys that a limiter holds unless told otherwise.
const DEFAULT_MAX_KEYS: usize = 1 << 20;
/// More are not held: a ticket is known by 32 bits.
const MOST_KEYS: usize = 1 << 32;
/// Buckets that keys without room share.
const OVERFLOW: usize = 1024;
/// Keys of one hash that are held. papaya probes some 30 places at least and then moves to a larger table, for ever
/// if that does not spread the keys.
const MOST_ALIKE: usize = 8;

/// A token bucket for each key, in a lock-free map, all under one quota.
///
/// A key's bucket starts full when the key is first seen. Its memory is bounded: at most
/// [`max_keys`](Builder::max_keys) buckets (1,048,576 by default) are held, of about 50 bytes and the key each.
/// Room for new keys is made by evicting buckets that have been full for 2 s. A full bucket says the
/// same as none, so that changes no decision, and nobody can reset a limit by pushing keys out. If no bucket
/// can be evicted, [`WhenFull`] decides. (It does for a ninth key that agrees with eight others in 32 bits of its hash,
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

struct Shared<K, S> {
    map: Map<K>,
    hasher: S,
    rules: Rules,
    quota: Quota,
    when_full: WhenFull,
    overflow: Box<[Bucket]>,
    ring: Ring,
    counters: CachePadded<Counters>,
}

#[derive(Default)]
struct Counters {
    evicted: AtomicU64,
    shared: AtomicU64,
    refused_full: AtomicU64,
    allowed_full: AtomicU64,
}

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

/// What a limiter holds and did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys held now.
    pub keys: usize,
    /// Buckets evicted, full, to make room or by [`evict_idle`](RateLimiter::evict_idle).
    pub evicted: u64,
    /// Decisions on shared buckets, by [`WhenFull::Share`].
    pub shared: u64,
    /// Decisions denied for want of room, by [`WhenFull::Deny`].
    pub refused_full: u64,
    /// Decisions granted for want of room, by [`WhenFull::Allow`].
    pub allowed_full: u64,
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
    quota: Quota,
    clock: Clock,
    hasher: S,
    max_keys: usize,
    when_full: WhenFull,
    presize: usize,
    key: PhantomData<fn() -> K>,
}

impl<K, S> Builder<K, S> {
    /// The clock to decide on; by default the [processor's counter](Clock::new).
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
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
        let presize = self.presize.min(self.max_keys);
        RateLimiter {
            shared: Arc::new(Shared {
                map: Map::with_capacity_and_hasher(presize, Carried::default()),
                hasher: self.hasher,
                rules: Rules { terms: self.quota.compile(), clock: self.clock },
                quota: self.quota,
                when_full: self.when_full,
                overflow: (0..OVERFLOW).map(|_| Bucket::new()).collect(),
                ring: Ring::new(self.max_keys),
                counters: CachePadded::default(),
            }),
        }
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
        Builder {
            quota,
            clock: Clock::new(),
            hasher: S::default(),
            max_keys: DEFAULT_MAX_KEYS,
            when_full: WhenFull::default(),
            presize: 0,
            key: PhantomData,
        }
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

    /// Forgets the key, so that it starts anew: full, or as the bucket it would [share](WhenFull::Share).
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
        let shared = &*self.shared;
        let seal = |_: &Stored<K>, bucket: &Bucket| {
            shared.rules.seal(bucket);
            false
        };
        shared.map.retain(seal, &shared.map.guard());
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
        let Counters { evicted, shared, refused_full, allowed_full } = &*self.shared.counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            keys: self.len(),
            evicted: count(evicted),
            shared: count(shared),
            refused_full: count(refused_full),
            allowed_full: count(allowed_full),
        }
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

/// A key's place in papaya's map.
struct Slot<'a, K, Q: ?Sized> {
    map: &'a Map<K>,
    guard: &'a LocalGuard<'a>,
    key: ByKey<'a, Q>,
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized> Place for Slot<'_, K, Q> {
    #[inline]
    fn find(&self) -> Option<&Bucket> {
        self.map.get(&self.key, self.guard)
    }

    #[cold]
    fn bury(&self) {
        let _ = self.map.remove_if(&self.key, |_, bucket| bucket.state() == State::SEALED, self.guard);
    }
}

impl<K: Hash + Eq, S: BuildHasher> Shared<K, S> {
    #[inline]
    fn place<'a, Q: ToKey<K> + ?Sized>(&'a self, guard: &'a LocalGuard<'a>, key: &'a Q) -> Slot<'a, K, Q> {
        Slot { map: &self.map, guard, key: ByKey::new(&self.hasher, key) }
    }

    /// The bucket a key shares when there is no room for it.
    #[inline]
    fn overflow(&self, hash: u32) -> &Bucket {
        &self.overflow[(hash >> (u32::BITS - OVERFLOW.ilog2())) as usize]
    }

    #[inline]
    fn try_acquire_n<Q: ToKey<K> + ?Sized>(
        &self,
        guard: &LocalGuard<'_>,
        key: &Q,
        n: u64,
    ) -> Result<Granted, Denied> {
        let terms = &self.rules.terms;
        let need = match terms.need(n) {
            None => return Err(Denied::too_many(self.peek(guard, key))),
            Some(0) => return Ok(self.peek(guard, key).granted()),
            Some(need) => need,
        };
        let place = self.place(guard, key);
        self.rules.acquire(
            &place,
            need,
            self.overflow(place.key.hash),
            |outcome, now| outcome.decision(terms, need, now),
            || self.admit(&place, need),
        )
    }

    /// Makes an entry for a key that has none; if there is no room, decides without.
    #[cold]
    fn admit<Q: ToKey<K> + ?Sized>(
        &self,
        place: &Slot<'_, K, Q>,
        need: u64,
    ) -> Option<Result<Granted, Denied>> {
        let now = self.rules.clock.nanos();
        let ByKey { hash, key } = place.key;
        if Alike::count(place.map, hash, place.guard) >= MOST_ALIKE {
            return self.without_room(place, need, now, Some(now));
        }
        let mut ticket = match self.ring.admit(now, |tag| self.look(place.guard, tag)) {
            Ok(ticket) => ticket,
            // Whoever claimed the last slot may have done so for this very key.
            Err(_) if place.find().is_some() => return None,
            Err(due) => return self.without_room(place, need, now, due),
        };
        let key = key.to_key();
        let stored = Stored { tag: ticket.admits(hash), key };
        let Ok(bucket) = self.map.try_insert(stored, Bucket::new(), place.guard) else {
            ticket.free();
            return None;
        };
        // While the ticket is held, the hand passes by.
        let (outcome, now) = self.rules.first_charge(bucket, need, self.overflow(hash))?;
        Some(outcome.decision(&self.rules.terms, need, now))
    }

    fn without_room<Q: ToKey<K> + ?Sized>(
        &self,
        place: &Slot<'_, K, Q>,
        need: u64,
        now: u64,
        due: Option<u64>,
    ) -> Option<Result<Granted, Denied>> {
        let Rules { terms, .. } = &self.rules;
        match self.when_full {
            WhenFull::Share => {
                let overflow = self.overflow(place.key.hash);
                let (outcome, now) = self.rules.acquire_overflow(place, need, overflow)?;
                self.counters.shared.fetch_add(1, Ordering::Relaxed);
                Some(outcome.decision(terms, need, now))
            }
            WhenFull::Deny => {
                self.counters.refused_full.fetch_add(1, Ordering::Relaxed);
                Some(Err(Denied::full(now, due)))
            }
            WhenFull::Allow => {
                self.counters.allowed_full.fetch_add(1, Ordering::Relaxed);
                let outcome = Outcome { granted: true, level: terms.capacity - need, lag: 0 };
                Some(outcome.decision(terms, need, now))
            }
        }
    }

    /// Evicts the entry of this tag, if it is still there and may be evicted.
    fn look(&self, guard: &LocalGuard<'_>, tag: Tag) -> Look {
        let Some(bucket) = self.map.get(&tag, guard) else { return Look::Gone };
        match self.rules.seal_if_idle(bucket) {
            Ok(sealed) => {
                self.counters.evicted.fetch_add(u64::from(sealed), Ordering::Relaxed);
                let _ = self.map.remove_if(&tag, |_, bucket| bucket.state() == State::SEALED, guard);
                Look::Gone
            }
            Err(due) => Look::Stays { due },
        }
    }

    fn peek<Q: ToKey<K> + ?Sized>(&self, guard: &LocalGuard<'_>, key: &Q) -> Snapshot {
        let Rules { terms, .. } = &self.rules;
        let place = self.place(guard, key);
        self.rules.peek(place.find(), self.overflow(place.key.hash), |state, now| {
            Snapshot::new(terms, state.at(terms, terms.ticks.tick(now)), now)
        })
    }

    fn remove<Q: ToKey<K> + ?Sized>(&self, guard: &LocalGuard<'_>, key: &Q) -> bool {
        let place = self.place(guard, key);
        let Some(bucket) = place.find() else { return false };
        let live = self.rules.seal(bucket);
        place.bury();
        live
    }

    fn evict_idle(&self) -> usize {
        let mut evicted = 0;
        let stays = |_: &Stored<K>, bucket: &Bucket| match self.rules.seal_if_idle(bucket) {
            Ok(sealed) => {
                evicted += usize::from(sealed);
                false
            }
            Err(_) => true,
        };
        self.map.retain(stays, &self.map.guard());
        self.counters.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
        evicted
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

impl<K, S> fmt::Debug for Builder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("quota", &format_args!("{}", self.quota))
            .field("clock", &self.clock)
            .field("max_keys", &self.max_keys)
            .field("when_full", &self.when_full)
            .field("presize", &self.presize)
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

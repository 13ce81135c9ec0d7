//! The limiter of keys: a bucket for each.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;

use crate::keyed::key::ToKey;
use crate::keyed::keyspace::Stats;
use crate::limiter::ask::Ask;
use crate::limiter::asked::{CallOptions, Target};
use crate::limiter::inner::Inner;
use crate::limiter::keyed::{Keyed, Shared};
use crate::limiter::rule::{Plan, Rule};
use crate::limiter::verbs::InFull;
use crate::rule::error::InvalidRule;
use crate::rule::rate::Quota;
use crate::time::clock::{Clock, Moment};
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted};

/// A bucket for each key, in a lock-free map, all under one rule: a [`Quota`], or a
/// [`Window`](crate::Window).
///
/// [`key`](RateLimiter::key) is a request with all options and verbs. The verbs of the limiter are
/// its short forms.
///
/// A key's bucket starts full when the key is first seen. At most
/// [`max_keys`](crate::Builder::max_keys) buckets are held, 1,048,576 by default. Each takes about
/// 39 bytes and the key, and up to 58 once keys were evicted: the map then has twice the slots.
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
/// A window for each key, by the calendar of UTC. Keys are looked up by their borrowed form; see
/// [`ToKey`]:
///
/// ```
/// use tollgate::{RateLimiter, Window};
///
/// let daily = RateLimiter::<String, _>::new(Window::per_day(1_000).utc());
/// assert_eq!(daily.try_acquire("ada")?.remaining(), 999);
/// # Ok::<(), tollgate::Denied>(())
/// ```
///
/// The rule is part of the type. Time to come is of quotas only, and a plan has the same rule:
///
/// ```compile_fail,E0599
/// let daily = tollgate::RateLimiter::<String, _>::new(tollgate::Window::per_day(1_000));
/// let _ = daily.key("ada").reserve();
/// ```
///
/// ```compile_fail,E0308
/// # use tollgate::{RateLimiter, Window};
/// let _ = RateLimiter::<String>::new(Window::per_day(1_000)); // write `RateLimiter::<String, _>`
/// ```
///
/// ```compile_fail,E0308
/// # use tollgate::{Quota, RateLimiter, Window};
/// let calls = RateLimiter::<String>::new(Quota::per_second(10));
/// let gold = calls.plan(Quota::per_second(5)).unwrap();
/// let daily = RateLimiter::<String, _>::new(Window::per_day(1_000));
/// let _ = daily.key("ada").under(&gold).try_acquire();
/// ```
pub struct RateLimiter<K, R: Rule = Quota, S = RandomState> {
    pub(crate) inner: Arc<Inner<K, S>>,
    pub(crate) built: R::Built,
}

impl<K, R: Rule, S> RateLimiter<K, R, S> {
    #[inline(always)]
    fn bucket<'a, 'k, Q: ?Sized>(&'a self, key: &'k Q) -> Keyed<'a, 'k, K, Q, R, S> {
        Keyed { inner: &self.inner, owner: &self.inner, key, rule: PhantomData }
    }

    /// Returns a request for one token of the key's bucket, with all verbs; see [`Ask`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<String>::new(Quota::per_hour(5));
    /// let ask = limiter.key("ada").n(3);
    /// assert_eq!(ask.acquire_up_to().tokens(), 3);
    /// assert_eq!(ask.acquire_up_to().tokens(), 2);
    /// ```
    #[inline]
    pub fn key<'a, 'k, Q>(&'a self, key: &'k Q) -> Ask<'k, Keyed<'a, 'k, K, Q, R, S>>
    where
        K: Hash + Eq + Send + Sync,
        Q: ToKey<K> + ?Sized,
        S: BuildHasher + Send + Sync,
    {
        Ask::new(self.bucket(key))
    }

    /// Returns a request for one token of the bucket that all requests without a key share.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<String>::new(Quota::per_hour(2));
    /// assert!(limiter.shared().n(2).try_acquire().is_ok());
    /// assert!(limiter.shared().try_acquire().is_err());
    /// assert!(limiter.try_acquire("ada").is_ok());
    /// ```
    #[inline]
    pub fn shared(&self) -> Ask<'_, Shared<'_, K, R, S>>
    where
        K: Hash + Eq + Send + Sync,
        S: Send + Sync,
    {
        Ask::new(Shared { inner: &self.inner, rule: PhantomData })
    }
}

impl<K: Hash + Eq, R: Rule, S: BuildHasher> RateLimiter<K, R, S> {
    /// Takes one token of the key's bucket, if there is one. It is short for
    /// `key(key).try_acquire()`.
    ///
    /// # Errors
    ///
    /// As [`try_acquire_n`](Self::try_acquire_n).
    #[inline]
    pub fn try_acquire<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<Granted, Denied> {
        self.try_acquire_n(key, 1)
    }

    /// Takes `n` tokens of the key's bucket, all or none. A take of 0 is always granted.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back; with `n` over the burst, that is never. A new key may be
    /// refused for want of room, with [`Reason::Full`](crate::Reason::Full).
    #[inline]
    pub fn try_acquire_n<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        self.inner.decide::<R, _, Q>(key, InFull(n), CallOptions::NOW)
    }

    /// Returns the tokens that are there in the key's bucket, and takes none; see [`Ask::peek`].
    pub fn peek<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Snapshot {
        Ask::new(self.bucket(key)).content()
    }

    /// Gives `n` tokens back to the key's bucket; see [`Ask::refund`].
    pub fn refund<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) {
        Ask { n, ..Ask::new(self.bucket(key)) }.give_back();
    }

    /// Forgets the key, and returns whether it had an entry.
    ///
    /// A key with a [place](crate::Places) in use stays, and the call returns false. Any other one
    /// starts anew: full, or with the bucket that it [shares](crate::WhenFull::Share).
    /// An earlier reservation or hold neither gives back to its next bucket nor charges it. Callers
    /// in line keep their order in the next one.
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

    /// Returns whether the key has an entry: a bucket of its own. It reads no clock.
    ///
    /// * A request for tokens makes the entry, also if it is refused. A request for 0 tokens or for
    ///   more than the burst makes none, but for a [hold](Ask::hold) of 0. Neither does a look, a
    ///   refund or a paused limiter. A key [without room](crate::WhenFull) has none.
    /// * The entry goes by [`remove`](Self::remove), [`clear`](Self::clear), or an eviction: by
    ///   [`evict_idle`](Self::evict_idle), a [`Janitor`](crate::Janitor), or a new key. An evicted
    ///   bucket was full for 2 s, a window has forgotten its tokens, or no place is in use.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tollgate::{Quota, RateLimiter};
    /// let limiter = RateLimiter::<u64>::new(Quota::per_hour(1));
    /// assert!(limiter.try_acquire(&1).is_ok());
    /// assert!(limiter.contains(&1) && !limiter.contains(&2));
    /// ```
    #[must_use]
    pub fn contains<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> bool {
        self.bucket(key).site().is_held()
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

impl<K, R: Rule, S> RateLimiter<K, R, S> {
    /// Returns the rule in force, for every key that is under no plan.
    #[must_use]
    pub fn rule(&self) -> R {
        R::in_force(self.built, &self.inner.keyspace.engine.source)
    }

    /// Returns the rule in force for the keys under a plan of this limiter.
    ///
    /// A quota is that of the plan, with its rate changed in proportion by each
    /// [`set_rule`](Self::set_rule) since, and rounded down by at most a millionth. For a window,
    /// for a plan of another limiter, and beyond the [bounds](Quota#bounds) of a quota, it is
    /// [`Plan::rule`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tollgate::{Quota, RateLimiter};
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(100));
    /// let trial = limiter.plan(Quota::per_second(10))?;
    /// limiter.set_rule(Quota::per_second(50))?;
    /// assert_eq!(limiter.rule_under(&trial), Quota::per_second(5).burst(10));
    /// # Ok::<(), tollgate::InvalidRule>(())
    /// ```
    #[must_use]
    pub fn rule_under(&self, plan: &Plan<R>) -> R {
        match plan.terms.limiter == self.inner.keyspace.id {
            true => R::under(self.built, &plan.terms, &self.inner.keyspace.engine.source),
            false => plan.rule(),
        }
    }

    /// Compiles another rule for some of the keys, for [`Ask::under`].
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] names the bound that does not hold. Of a quota: its burst fits into the
    /// words, a tick of the limiter is worth at most 1/128 of the burst, and the burst fills in at
    /// most 1/64 of the words' time range. Of a window: it is the limiter's window with another
    /// limit, and the words hold the limit. [`headroom`](crate::Builder::headroom) makes room.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::builder(Quota::per_second(100)).headroom(Quota::per_second(2_000))?.build();
    /// let gold = limiter.plan(Quota::per_second(1_000).burst(2_000))?;
    /// assert!(limiter.key(&7).n(1_500).under(&gold).try_acquire().is_ok());
    /// assert!(limiter.key(&7).n(1_500).under(&gold).try_acquire().is_err());
    ///
    /// let error = limiter.plan(Quota::per_second(10_000)).unwrap_err();
    /// assert!(error.to_string().starts_with("a burst of 10000 is over the bound of"));
    /// # Ok::<(), tollgate::InvalidRule>(())
    /// ```
    pub fn plan(&self, rule: R) -> Result<Plan<R>, InvalidRule> {
        let terms = rule.compile(self.built, &self.inner.keyspace)?;
        Ok(Plan { terms, rule })
    }

    /// Returns a handle of the limiter's clock.
    ///
    /// Under a window with edges by the calendar, its readings are Unix time plus a constant. Under
    /// [`Places`](crate::Places) it always reads 0.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tollgate::{Quota, RateLimiter};
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(5));
    /// let before = limiter.now();
    /// assert!(limiter.clock().now() >= before);
    /// ```
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.inner.keyspace.engine.clock.clone()
    }

    /// Returns the address of the state that this handle and its clones share.
    ///
    /// Two live handles have the same id if and only if they are of one limiter. A later limiter
    /// may get the id of one whose handles are all dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tollgate::{Quota, RateLimiter};
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(5));
    /// assert_eq!(limiter.clone().id(), limiter.id());
    /// assert_ne!(RateLimiter::<u64>::new(Quota::per_second(5)).id(), limiter.id());
    /// ```
    #[must_use]
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    /// Returns a reading of the limiter's clock, for [`Ask::at`].
    #[inline]
    #[must_use]
    pub fn now(&self) -> Moment {
        self.inner.keyspace.engine.clock.now()
    }
}

impl<K: Eq, R: Rule, S> RateLimiter<K, R, S> {
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

    /// Changes the rule of every key, together and at once.
    ///
    /// It takes constant time for the keys, and a step for each caller that waits in a line.
    /// [`Limit::set_rule`](crate::Limit::set_rule) says which tokens are kept, how a raised burst
    /// fills, how callers in line go on, and which windows are accepted. [Plans](Plan) of quotas
    /// change their rates in proportion. A key that was evicted, full, under a smaller burst starts
    /// full under the larger one.
    ///
    /// [`Quota::BLOCKED`] and [`Window::blocked`](crate::Window::blocked) pause every key, and
    /// [`Quota::UNLIMITED`] ends the limit of the keys that are under no plan.
    ///
    /// # Errors
    ///
    /// [`InvalidRule`] if the words as built have no room for it; see
    /// [`headroom`](crate::Builder::headroom).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tollgate::{Quota, RateLimiter};
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(10));
    /// limiter.set_rule(Quota::per_second(5))?;
    /// assert_eq!(limiter.peek(&1).remaining(), 5);
    /// # Ok::<(), tollgate::InvalidRule>(())
    /// ```
    pub fn set_rule(&self, rule: R) -> Result<(), InvalidRule> {
        rule.set(self.built, &self.inner.keyspace.engine)?;
        self.inner.keyspace.rule_was_set();
        Ok(())
    }

    /// Checks that the words have room for a rule, as [`set_rule`](Self::set_rule) does.
    ///
    /// # Errors
    ///
    /// As [`set_rule`](Self::set_rule).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tollgate::{Quota, RateLimiter};
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(10));
    /// assert!(limiter.check_rule(Quota::per_second(5)).is_ok());
    /// assert!(limiter.check_rule(Quota::per_second(1_000)).is_err());
    /// assert_eq!(limiter.rule(), Quota::per_second(10));
    /// ```
    pub fn check_rule(&self, rule: R) -> Result<(), InvalidRule> {
        rule.check(self.built, &self.inner.keyspace.engine.source)
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

impl<K, R: Rule, S> Clone for RateLimiter<K, R, S> {
    fn clone(&self) -> Self {
        RateLimiter { inner: Arc::clone(&self.inner), built: self.built }
    }
}

/// Prints no key.
impl<K: Eq, R: Rule, S> fmt::Debug for RateLimiter<K, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("rule", &format_args!("{}", self.rule()))
            .field("when_full", &self.inner.keyspace.when_full)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

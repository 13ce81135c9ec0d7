//! One window a key.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

use crate::bucket::engine::Engine;
use crate::bucket::reservation::Hold;
use crate::keyed::key::ToKey;
use crate::keyed::keyspace::Stats;
use crate::limiter::janitor::Janitor;
use crate::limiter::key_call::CallOptions;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::verbs::{InFull, UpTo};
use crate::limiter::window_key::{Cap, PinnedWindows, WindowKey};
use crate::quota::window::Window;
use crate::quota::window_error::InvalidWindow;
use crate::time::clock::Moment;
use crate::word::by_refill::WINDOWS;
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted};

/// A [`Window`] for each key, in a lock-free map or a fixed table: at most a limit in a period.
///
/// The store is that of a [`RateLimiter`](crate::RateLimiter): the same bound on keys, the same
/// memory a key, the same choice [when it is full](crate::WhenFull). A key may be evicted 2 s after
/// its tokens are forgotten, and is then decided as an unknown key.
///
/// One step of a window does not wait, and nothing in it is in the future. So a limiter of windows
/// has no `reserve`, no waiting verb and no plan. In place of a plan it has a
/// [cap](WindowLimiter::cap), another limit for some of the keys.
///
/// ```compile_fail,E0599
/// # use tollgate::{Window, WindowLimiter};
/// let _ = WindowLimiter::<u64>::new(Window::per_hour(10)).reserve(&1, 1);
/// ```
///
/// ```compile_fail,E0599
/// # use tollgate::{Window, WindowLimiter};
/// let _ = WindowLimiter::<u64>::new(Window::per_hour(10)).acquire(&1);
/// ```
///
/// ```compile_fail,E0599
/// # use tollgate::{Window, WindowLimiter};
/// let _ = WindowLimiter::<u64>::new(Window::per_hour(10)).blocking_acquire(&1);
/// ```
///
/// ```compile_fail,E0599
/// # use tollgate::{Quota, Window, WindowLimiter};
/// let _ = WindowLimiter::<u64>::new(Window::per_hour(10)).plan(Quota::per_hour(5));
/// ```
///
/// A wall clock that is set back over an edge of a [calendar window](Window::utc) finds a key that
/// was evicted in between unused.
///
/// # Examples
///
/// ```
/// use std::net::IpAddr;
/// use std::time::Duration;
/// use tollgate::{Window, WindowLimiter};
///
/// let logins = WindowLimiter::<IpAddr>::new(Window::per(5, Duration::from_secs(900)).sliding());
/// let peer: IpAddr = "192.0.2.7".parse()?;
/// for _ in 0..5 {
///     assert!(logins.try_acquire(&peer).is_ok());
/// }
/// let denied = logins.try_acquire(&peer).unwrap_err();
/// assert!(denied.retry_after().unwrap() > Duration::from_secs(899));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub struct WindowLimiter<K, S = RandomState> {
    /// The keys and the hook. The words count windows.
    pub(crate) limiter: RateLimiter<K, S>,
    pub(super) window: Window,
}

impl<K: Hash + Eq, S: BuildHasher> WindowLimiter<K, S> {
    /// Takes one token, if the key's window has one left.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to try again.
    #[inline]
    pub fn try_acquire<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<Granted, Denied> {
        self.try_acquire_n(key, 1)
    }

    /// Takes `n` tokens of the key's window, all or none. A take of 0 always succeeds.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to try again, or that `n` is over the limit and never passes. A new key
    /// may be refused for want of room, with [`Reason::Full`](crate::Reason::Full).
    #[inline]
    pub fn try_acquire_n<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        self.limiter.inner.decide::<WINDOWS, _, _>(key, InFull(n), CallOptions::NOW)
    }

    /// Takes `n` tokens of the key's window, all or none, at an earlier reading of the clock. See
    /// [`RateLimiter::try_acquire_at`].
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to try again, counted from the reading.
    #[inline]
    pub fn try_acquire_at<Q>(&self, now: Moment, key: &Q, n: u64) -> Result<Granted, Denied>
    where
        Q: ToKey<K> + ?Sized,
    {
        self.limiter.inner.decide::<WINDOWS, _, _>(key, InFull(n), CallOptions::at(now))
    }

    /// Takes tokens of many keys' windows, each by itself and in order. See
    /// [`RateLimiter::try_acquire_batch`].
    pub fn try_acquire_batch<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        asks: &'a [(&'a Q, u64)],
    ) -> impl ExactSizeIterator<Item = Result<Granted, Denied>> + use<'a, K, S, Q> {
        self.limiter.batch::<WINDOWS, Q>(asks)
    }

    /// Takes up to `n` tokens: those that are left, from none to all of them, in one step.
    #[inline]
    #[must_use = "it may be fewer than were asked for"]
    pub fn acquire_up_to<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Granted {
        self.limiter.inner.decide::<WINDOWS, _, _>(key, UpTo(n), CallOptions::NOW)
    }

    /// Gives back up to `n` tokens of the key that are still counted, the newest first.
    ///
    /// They are lost if the key [shares](crate::WhenFull::Share) its window. A refund has no
    /// receipt: tokens that were taken in an earlier window come back to the present one, which
    /// then grants more by that number. A [hold](Self::hold) of an earlier window gives nothing
    /// back.
    pub fn refund<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) {
        self.limiter.refund(key, n);
    }

    /// Returns the tokens that are left to the key, and takes none. A new key gets no entry.
    pub fn peek<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Snapshot {
        self.limiter.peek(key)
    }

    /// Forgets the tokens that the key has used, and returns whether it had an entry.
    ///
    /// An earlier hold neither gives back to the key's next window nor counts in it. In an [inline
    /// table] the entry stays, with nothing used, until its window is over.
    ///
    /// [inline table]: crate::WindowLimiterBuilder::inline
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Window, WindowLimiter};
    ///
    /// let limiter = WindowLimiter::<u64>::new(Window::per_day(1));
    /// assert!(limiter.try_acquire(&1).is_ok());
    /// assert!(limiter.remove(&1));
    /// assert!(limiter.try_acquire(&1).is_ok());
    /// ```
    pub fn remove<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> bool {
        self.limiter.remove(key)
    }

    /// Forgets all keys, as [`remove`](Self::remove) does. It looks at every entry.
    pub fn clear(&self) {
        self.limiter.clear();
    }

    /// Evicts every key whose tokens were forgotten 2 s ago, and returns their number.
    ///
    /// It looks at every entry. The bound on keys does not need it: it gives the memory of idle
    /// keys back earlier.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Window, WindowLimiter};
    ///
    /// let (clock, mock) = Clock::mock();
    /// let limiter = WindowLimiter::<u64>::builder(Window::per_day(5).utc()).clock(clock).build();
    /// assert!(limiter.try_acquire(&1).is_ok());
    /// mock.advance(Duration::from_secs(86_400 + 1));
    /// assert_eq!(limiter.evict_idle(), 0);
    /// mock.advance(Duration::from_secs(1));
    /// assert_eq!(limiter.evict_idle(), 1);
    /// ```
    pub fn evict_idle(&self) -> usize {
        self.limiter.evict_idle()
    }

    /// Returns a handle that takes the map's guard once. See [`RateLimiter::pin`].
    pub fn pin(&self) -> PinnedWindows<'_, K, S> {
        PinnedWindows(self.limiter.pin())
    }
}

impl<K, S> WindowLimiter<K, S> {
    /// Returns a request for one token of the key's window; see [`WindowKey`].
    #[must_use]
    pub fn key<'a, Q: ToKey<K> + ?Sized>(&'a self, key: &'a Q) -> WindowKey<'a, K, Q, S> {
        WindowKey(self.limiter.key(key))
    }

    /// Returns the window of each key, as it was built.
    #[must_use]
    pub fn window(&self) -> Window {
        self.window
    }

    /// Returns the limit in force, for every key that is under no cap.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limiter.inner.keyspace.engine.source.limit()
    }

    /// Compiles another limit for some of the keys, for [`WindowKey::under`].
    ///
    /// A key keeps its used tokens from cap to cap: an upgraded customer has the difference at
    /// once. A later [`set_limit`](Self::set_limit) does not change a cap.
    ///
    /// # Errors
    ///
    /// [`InvalidWindow`] names the bound if the words, as they were built, cannot hold the limit.
    /// See [`headroom`](crate::WindowLimiterBuilder::headroom).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Window, WindowLimiter};
    ///
    /// let limiter = WindowLimiter::<String>::builder(Window::per_day(10)).headroom(1_000)?.build();
    /// assert!(limiter.key("ada").n(10).try_acquire().is_ok());
    /// let gold = limiter.cap(1_000)?;
    /// assert_eq!(limiter.key("ada").under(&gold).peek().remaining(), 990);
    /// # Ok::<(), tollgate::InvalidWindow>(())
    /// ```
    pub fn cap(&self, limit: u64) -> Result<Cap, InvalidWindow> {
        self.limiter.inner.keyspace.cap(limit).map(Cap)
    }
}

impl<K: Eq, S> WindowLimiter<K, S> {
    /// Changes the limit of every key, at once and in constant time. See
    /// [`WindowCounter::set_limit`](crate::WindowCounter::set_limit).
    ///
    /// # Errors
    ///
    /// [`InvalidWindow`] names the bound if the words, as they were built, cannot hold the limit.
    pub fn set_limit(&self, limit: u64) -> Result<(), InvalidWindow> {
        self.limiter.inner.keyspace.set_limit(limit)
    }

    /// Blocks every key, also under a cap, until another limit is set. See
    /// [`WindowCounter::block`](crate::WindowCounter::block).
    pub fn block(&self) {
        let Engine { source, clock, .. } = &self.limiter.inner.keyspace.engine;
        source.block(clock);
    }

    /// Returns a reading of the limiter's clock, for [`try_acquire_at`](Self::try_acquire_at).
    #[inline]
    #[must_use]
    pub fn now(&self) -> Moment {
        self.limiter.now()
    }

    /// Returns the number of keys held. It may be off by concurrent changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.limiter.len()
    }

    /// Returns whether no key is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.limiter.is_empty()
    }

    /// Returns the numbers of keys held, and of events so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.limiter.stats()
    }
}

impl<K: Hash + Eq + Send + Sync, S: BuildHasher + Send + Sync> WindowLimiter<K, S> {
    /// Takes `estimate` tokens for a cost that is not yet known, [settled](Hold::settle) when it
    /// is. See [`WindowCounter::hold`](crate::WindowCounter::hold).
    ///
    /// # Errors
    ///
    /// As [`try_acquire_n`](Self::try_acquire_n).
    pub fn hold<Q: ToKey<K> + ?Sized>(&self, key: &Q, estimate: u64) -> Result<Hold<'_>, Denied> {
        self.limiter.hold(key, estimate)
    }
}

impl<K: Hash + Eq + Send + Sync + 'static, S: BuildHasher + Send + Sync + 'static> WindowLimiter<K, S> {
    /// Starts a thread that calls [`evict_idle`](Self::evict_idle) every `interval`. See
    /// [`RateLimiter::janitor`].
    #[must_use = "the thread stops when the janitor is dropped"]
    pub fn janitor(&self, interval: Duration) -> Janitor {
        self.limiter.janitor(interval)
    }
}

impl<K, S> Clone for WindowLimiter<K, S> {
    fn clone(&self) -> Self {
        WindowLimiter { limiter: self.limiter.clone(), window: self.window }
    }
}

/// Prints no key.
impl<K: Eq, S> fmt::Debug for WindowLimiter<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowLimiter")
            .field("window", &format_args!("{}", self.window))
            .field("limit", &self.limit())
            .field("when_full", &self.limiter.inner.keyspace.when_full)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

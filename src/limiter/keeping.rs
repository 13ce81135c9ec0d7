//! Takes that leave a part of a bucket to others: priorities in a bucket.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use crate::bucket::atomic::ReadClock;
use crate::bucket::engine::{At, Now};
use crate::bucket::receipt::Receipt;
use crate::keyed::key::ToKey;
use crate::limiter::all_of::{BucketLimit, Internal, Limit};
use crate::limiter::key_call::CallOptions;
use crate::limiter::key_limit::KeyLimit;
use crate::limiter::pinned::Pinned;
use crate::limiter::verbs::Keep;
use crate::limiter::window_key::{PinnedWindows, WindowKey};
use crate::time::clock::{Clock, Moment};
use crate::word::by_refill::{BUCKETS, WINDOWS};
use crate::word::decision::{Denied, Granted};
use crate::word::plan::Plan;
use crate::word::verb::Take;

/// A request for tokens above the lower part of a bucket: [`KeyLimit::keep`],
/// [`BucketLimit::keep`], [`Pinned::keep`] and [`WindowKey::keep`].
///
/// The tokens are granted if the kept part of the burst is left after the take. So requests of a
/// low priority leave that part to those of a high priority.
///
/// * The part is a percentage of the burst in force, or of the plan's burst. For a window it is a
///   percentage of the limit, or of the cap. It is rounded up to whole tokens: 50 % of a burst of 5
///   are 3 tokens. 0 % keeps nothing. From 100 % on only a take of 0 tokens is granted.
/// * [`retry_after`](Denied::retry_after) is exact: the time until the tokens and the kept ones are
///   there, if no more are taken. It is `None` if both together are more than the burst.
/// * A take of 0 tokens is always granted.
/// * [`remaining`](Granted::remaining) counts all tokens, those that are kept too.
///
/// [`all_of`](crate::all_of) takes it like any other limit.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, Quota, RateLimiter};
///
/// let (clock, mock) = Clock::mock();
/// let limiter = RateLimiter::<String>::builder(Quota::per_second(10)).clock(clock).build();
/// // Batches leave half of the burst to the other requests of the account.
/// let batch = limiter.key("ada").keep(50);
/// assert_eq!((0..10).filter(|_| batch.try_acquire().is_ok()).count(), 5);
/// let denied = batch.try_acquire().unwrap_err();
/// assert_eq!((denied.remaining(), denied.retry_after()), (5, Some(Duration::from_millis(100))));
/// assert_eq!((0..10).filter(|_| limiter.try_acquire("ada").is_ok()).count(), 5);
/// ```
#[derive(Clone, Copy)]
#[must_use = "it takes nothing before `try_acquire`"]
pub struct Keeping<L> {
    limit: L,
    percent: u8,
}

impl<K, Q: ?Sized, S> KeyLimit<'_, K, Q, S> {
    /// Leaves `percent` of the burst to other takes; see [`Keeping`].
    #[inline]
    pub fn keep(self, percent: u8) -> Keeping<Self> {
        Keeping { limit: self, percent }
    }
}

impl BucketLimit<'_> {
    /// Leaves `percent` of the burst to other takes; see [`Keeping`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Clock, Quota, TokenBucket};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let bucket = TokenBucket::builder(Quota::per_second(10)).clock(clock).build();
    /// assert!(bucket.n(3).keep(70).try_acquire().is_ok());
    /// assert!(bucket.n(1).keep(70).try_acquire().is_err());
    /// assert!(bucket.try_acquire_n(7).is_ok());
    /// ```
    #[inline]
    pub fn keep(self, percent: u8) -> Keeping<Self> {
        Keeping { limit: self, percent }
    }
}

impl<K, S> Pinned<'_, K, S> {
    /// Leaves `percent` of each key's burst to other takes; see [`Keeping`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Clock, Quota, RateLimiter};
    ///
    /// let (clock, _mock) = Clock::mock();
    /// let limiter = RateLimiter::<u64>::builder(Quota::per_second(10)).clock(clock).build();
    /// let pinned = limiter.pin();
    /// let batch = pinned.keep(50);
    /// for key in 0..3 {
    ///     assert!(batch.try_acquire_n(&key, 5).is_ok());
    ///     assert!(batch.try_acquire(&key).is_err());
    ///     assert!(pinned.try_acquire_n(&key, 5).is_ok());
    /// }
    /// ```
    #[inline]
    pub fn keep(&self, percent: u8) -> Keeping<&Self> {
        Keeping { limit: self, percent }
    }
}

impl<K, Q: ?Sized, S> WindowKey<'_, K, Q, S> {
    /// Leaves `percent` of the limit to other takes; see [`Keeping`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Window, WindowLimiter};
    ///
    /// let daily = WindowLimiter::<String>::new(Window::per_day(10));
    /// let batch = daily.key("ada").n(4).keep(50);
    /// assert!(batch.try_acquire().is_ok() && batch.try_acquire().is_err());
    /// assert!(daily.try_acquire_n("ada", 6).is_ok());
    /// ```
    #[inline]
    pub fn keep(self, percent: u8) -> Keeping<Self> {
        Keeping { limit: self, percent }
    }
}

impl<K, S> PinnedWindows<'_, K, S> {
    /// Leaves `percent` of the limit to other takes; see [`Keeping`].
    #[inline]
    pub fn keep(&self, percent: u8) -> Keeping<&Self> {
        Keeping { limit: self, percent }
    }
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> Keeping<KeyLimit<'_, K, Q, S>> {
    /// Takes the tokens, all or none.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the tokens and the kept ones are there.
    #[inline]
    pub fn try_acquire(&self) -> Result<Granted, Denied> {
        self.decide::<BUCKETS>()
    }

    #[inline(always)]
    fn decide<const WORDS: u8>(&self) -> Result<Granted, Denied> {
        self.limit.decide::<WORDS, _>(Keep { n: self.limit.n, keep: self.percent })
    }

    /// Returns the same request at an earlier reading.
    #[inline(always)]
    fn at(&self, now: Moment) -> Self {
        Keeping { limit: self.limit.at(now), ..*self }
    }

    /// Takes the tokens, all or none, at an earlier reading; see
    /// [`RateLimiter::try_acquire_at`](crate::RateLimiter::try_acquire_at).
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), counted from the reading.
    #[inline]
    pub fn try_acquire_at(&self, now: Moment) -> Result<Granted, Denied> {
        self.at(now).decide::<BUCKETS>()
    }
}

impl<K: Hash + Eq, S: BuildHasher> Keeping<&Pinned<'_, K, S>> {
    /// Takes one token of the key's bucket.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the token and the kept ones are there.
    #[inline]
    pub fn try_acquire<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<Granted, Denied> {
        self.try_acquire_n(key, 1)
    }

    /// Takes `n` tokens of the key's bucket, all or none.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_acquire_n<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        self.limit.decide::<BUCKETS, _, _>(key, Keep { n, keep: self.percent }, CallOptions::NOW)
    }

    /// Takes `n` tokens, all or none, at an earlier reading; see
    /// [`RateLimiter::try_acquire_at`](crate::RateLimiter::try_acquire_at).
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), counted from the reading.
    #[inline]
    pub fn try_acquire_at<Q>(&self, now: Moment, key: &Q, n: u64) -> Result<Granted, Denied>
    where
        Q: ToKey<K> + ?Sized,
    {
        self.limit.decide::<BUCKETS, _, _>(key, Keep { n, keep: self.percent }, CallOptions::at(now))
    }

    /// Takes `n` tokens, all or none, under a plan; see
    /// [`RateLimiter::try_acquire_as`](crate::RateLimiter::try_acquire_as).
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_acquire_as<Q>(&self, key: &Q, n: u64, plan: &Plan) -> Result<Granted, Denied>
    where
        Q: ToKey<K> + ?Sized,
    {
        let options = CallOptions { plan: Some(plan), ..CallOptions::NOW };
        self.limit.decide::<BUCKETS, _, _>(key, Keep { n, keep: self.percent }, options)
    }
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> Keeping<WindowKey<'_, K, Q, S>> {
    /// Takes the tokens, all or none.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the tokens and the kept ones are left.
    #[inline]
    pub fn try_acquire(&self) -> Result<Granted, Denied> {
        self.of_key().decide::<WINDOWS>()
    }

    /// Takes the tokens, all or none, at an earlier reading; see
    /// [`WindowLimiter::try_acquire_at`](crate::WindowLimiter::try_acquire_at).
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), counted from the reading.
    #[inline]
    pub fn try_acquire_at(&self, now: Moment) -> Result<Granted, Denied> {
        self.of_key().at(now).decide::<WINDOWS>()
    }
}

impl<'a, K, Q: ?Sized, S> Keeping<WindowKey<'a, K, Q, S>> {
    fn of_key(&self) -> Keeping<KeyLimit<'a, K, Q, S>> {
        Keeping { limit: self.limit.0, percent: self.percent }
    }
}

impl<K: Hash + Eq, S: BuildHasher> Keeping<&PinnedWindows<'_, K, S>> {
    /// Takes one token of the key's window.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the token and the kept ones are left.
    #[inline]
    pub fn try_acquire<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<Granted, Denied> {
        self.try_acquire_n(key, 1)
    }

    /// Takes `n` tokens of the key's window, all or none.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn try_acquire_n<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        self.limit.0.decide::<WINDOWS, _, _>(key, Keep { n, keep: self.percent }, CallOptions::NOW)
    }

    /// Takes `n` tokens, all or none, at an earlier reading.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), counted from the reading.
    #[inline]
    pub fn try_acquire_at<Q>(&self, now: Moment, key: &Q, n: u64) -> Result<Granted, Denied>
    where
        Q: ToKey<K> + ?Sized,
    {
        self.limit.0.decide::<WINDOWS, _, _>(key, Keep { n, keep: self.percent }, CallOptions::at(now))
    }
}

impl Keeping<BucketLimit<'_>> {
    /// Takes the tokens, all or none.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the tokens and the kept ones are there.
    #[inline]
    pub fn try_acquire(&self) -> Result<Granted, Denied> {
        self.acquire(Now(self.limit.bucket.engine()))
    }

    /// Takes the tokens, all or none, at an earlier reading; see
    /// [`TokenBucket::try_acquire_at`](crate::TokenBucket::try_acquire_at).
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), counted from the reading.
    #[inline]
    pub fn try_acquire_at(&self, now: Moment) -> Result<Granted, Denied> {
        self.acquire(At(self.limit.bucket.engine(), now))
    }

    #[inline(always)]
    fn acquire(&self, read: impl ReadClock) -> Result<Granted, Denied> {
        let BucketLimit { bucket, n } = self.limit;
        bucket.decide::<{ BUCKETS | WINDOWS }, _>(bucket.counting(), Keep { n, keep: self.percent }, read)
    }
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> Limit for Keeping<KeyLimit<'_, K, Q, S>> {
    fn clock(&self) -> &Clock {
        Limit::clock(&self.limit)
    }

    fn look(&self, now: Moment) -> Result<(), Denied> {
        self.limit.look_at(now, Take::Above { n: self.limit.n, keep: self.percent })
    }

    fn take(&self, _: Internal) -> Result<(Granted, Receipt), Denied> {
        let KeyLimit { inner, n, .. } = self.limit;
        self.limit.call(&inner.keyspace.store.pin()).receive(Take::Above { n, keep: self.percent })
    }

    fn undo(&self, receipt: &Receipt) {
        Limit::undo(&self.limit, receipt);
    }
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> Limit for Keeping<WindowKey<'_, K, Q, S>> {
    fn clock(&self) -> &Clock {
        Limit::clock(&self.limit)
    }

    fn look(&self, now: Moment) -> Result<(), Denied> {
        self.of_key().look(now)
    }

    fn take(&self, _: Internal) -> Result<(Granted, Receipt), Denied> {
        self.of_key().take(Internal)
    }

    fn undo(&self, receipt: &Receipt) {
        Limit::undo(&self.limit, receipt);
    }
}

impl Limit for Keeping<BucketLimit<'_>> {
    fn clock(&self) -> &Clock {
        Limit::clock(&self.limit)
    }

    fn look(&self, now: Moment) -> Result<(), Denied> {
        self.limit.look_at(now, Take::Above { n: self.limit.n, keep: self.percent })
    }

    fn take(&self, _: Internal) -> Result<(Granted, Receipt), Denied> {
        let BucketLimit { bucket, n } = self.limit;
        bucket.receive(n, Take::Above { n, keep: self.percent })
    }

    fn undo(&self, receipt: &Receipt) {
        Limit::undo(&self.limit, receipt);
    }
}

/// Never prints the key.
impl<L: fmt::Debug> fmt::Debug for Keeping<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeping").field("limit", &self.limit).field("percent", &self.percent).finish()
    }
}

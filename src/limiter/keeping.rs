//! Takes that leave a part of a bucket to others: priorities in a bucket.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use crate::bucket::atomic::ReadClock;
use crate::bucket::engine::{At, Done, Now};
use crate::bucket::receipt::Receipt;
use crate::keyed::key::ToKey;
use crate::limiter::all_of::{BucketLimit, sealed};
use crate::limiter::key_call::CallOptions;
use crate::limiter::key_limit::KeyLimit;
use crate::time::clock::{Clock, Moment};
use crate::word::decision::{Denied, Granted};
use crate::word::verb::{Call, Keep, Take};

/// A request for tokens above the lower part of a bucket: [`KeyLimit::keep`] and
/// [`BucketLimit::keep`].
///
/// The tokens are granted if the kept part of the burst stays after the take. So requests of a low
/// priority take nothing of the lower part, and those of a high priority find it.
///
/// * The part is in percent of the burst in force, or of the plan's. It is rounded up to whole
///   tokens: 50 % of a burst of 5 are 3 tokens. 0 % keeps nothing.
/// * [`retry_after`](Denied::retry_after) is exact: the time until the tokens and the kept ones are
///   there, if no more are taken. If both are more than the burst, that is never.
/// * A take of 0 tokens is always granted.
/// * [`remaining`](Granted::remaining) counts all tokens, those that are kept too.
///
/// [`all_of`](crate::all_of) takes it as any other limit.
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
    /// let bucket = TokenBucket::with_clock(Quota::per_second(10), clock);
    /// assert!(bucket.n(3).keep(70).try_acquire().is_ok());
    /// assert!(bucket.n(1).keep(70).try_acquire().is_err());
    /// assert!(bucket.try_acquire_n(7).is_ok());
    /// ```
    pub fn keep(self, percent: u8) -> Keeping<Self> {
        Keeping { limit: self, percent }
    }
}

impl<L> Keeping<L> {
    fn keep(&self) -> Keep {
        Keep::Percent(self.percent)
    }
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> Keeping<KeyLimit<'_, K, Q, S>> {
    /// Takes the tokens, all or none.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the tokens and the kept ones are there.
    pub fn try_acquire(&self) -> Result<Granted, Denied> {
        let KeyLimit { inner, n, .. } = self.limit;
        self.limit.call(&inner.keyspace.store.pin()).acquire_above(n, self.keep())
    }

    /// Takes the tokens, all or none, at an earlier reading; see
    /// [`RateLimiter::try_acquire_at`](crate::RateLimiter::try_acquire_at).
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), counted from the reading.
    pub fn try_acquire_at(&self, now: Moment) -> Result<Granted, Denied> {
        let options = CallOptions { now: Some(now), ..self.limit.options };
        Keeping { limit: KeyLimit { options, ..self.limit }, ..*self }.try_acquire()
    }
}

impl Keeping<BucketLimit<'_>> {
    /// Takes the tokens, all or none.
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the tokens and the kept ones are there.
    pub fn try_acquire(&self) -> Result<Granted, Denied> {
        self.acquire(Now(self.limit.bucket.engine()))
    }

    /// Takes the tokens, all or none, at an earlier reading; see
    /// [`TokenBucket::try_acquire_at`](crate::TokenBucket::try_acquire_at).
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), counted from the reading.
    pub fn try_acquire_at(&self, now: Moment) -> Result<Granted, Denied> {
        self.acquire(At(self.limit.bucket.engine(), now))
    }

    fn acquire(&self, read: impl ReadClock) -> Result<Granted, Denied> {
        let BucketLimit { bucket, n } = self.limit;
        let call = Call::from(Take::Above { n, keep: self.keep() });
        let Done { outcome, reading, .. } = bucket.run(read, call.take);
        bucket.hook.observe(n, call.decision(outcome, reading))
    }
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> sealed::Limit for Keeping<KeyLimit<'_, K, Q, S>> {
    fn clock(&self) -> &Clock {
        sealed::Limit::clock(&self.limit)
    }

    fn look(&self, now: Moment) -> Result<(), Denied> {
        self.limit.look_at(now, Take::Above { n: self.limit.n, keep: self.keep() })
    }

    fn take(&self) -> Result<(Granted, Receipt), Denied> {
        let KeyLimit { inner, n, .. } = self.limit;
        self.limit.call(&inner.keyspace.store.pin()).receive(Take::Above { n, keep: self.keep() })
    }

    fn undo(&self, receipt: &Receipt) {
        sealed::Limit::undo(&self.limit, receipt);
    }
}

impl sealed::Limit for Keeping<BucketLimit<'_>> {
    fn clock(&self) -> &Clock {
        sealed::Limit::clock(&self.limit)
    }

    fn look(&self, now: Moment) -> Result<(), Denied> {
        self.limit.look_at(now, Take::Above { n: self.limit.n, keep: self.keep() })
    }

    fn take(&self) -> Result<(Granted, Receipt), Denied> {
        let BucketLimit { bucket, n } = self.limit;
        bucket.receive(n, Take::Above { n, keep: self.keep() })
    }

    fn undo(&self, receipt: &Receipt) {
        sealed::Limit::undo(&self.limit, receipt);
    }
}

/// Never prints the key.
impl<L: fmt::Debug> fmt::Debug for Keeping<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeping").field("limit", &self.limit).field("percent", &self.percent).finish()
    }
}

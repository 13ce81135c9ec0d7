//! The verb `try_acquire` of a key.

use std::hash::{BuildHasher, Hash};

use crate::keyed::key::ToKey;
use crate::limiter::key_call::CallOptions;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::verbs::InFull;
use crate::time::clock::Moment;
use crate::word::by_refill::BUCKETS;
use crate::word::decision::{Denied, Granted};

impl<K: Hash + Eq, S: BuildHasher> RateLimiter<K, S> {
    /// Takes one token, if there is one; see [`try_acquire_n`](Self::try_acquire_n).
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
        self.inner.decide::<BUCKETS, _, _>(key, InFull(n), CallOptions::NOW)
    }

    /// Takes `n` tokens of the key's bucket, all or none, at an earlier reading of the clock.
    ///
    /// One [`now`](Self::now) serves many decisions. See
    /// [`TokenBucket::try_acquire_at`](crate::TokenBucket::try_acquire_at).
    ///
    /// # Errors
    ///
    /// As [`try_acquire_n`](Self::try_acquire_n), counted from the reading.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(5));
    /// let now = limiter.now();
    /// for key in 0..10 {
    ///     assert!(limiter.try_acquire_at(now, &key, 1).is_ok());
    /// }
    /// ```
    #[inline]
    pub fn try_acquire_at<Q>(&self, now: Moment, key: &Q, n: u64) -> Result<Granted, Denied>
    where
        Q: ToKey<K> + ?Sized,
    {
        self.inner.decide::<BUCKETS, _, _>(key, InFull(n), CallOptions::at(now))
    }
}

//! Waiting for tokens in threads.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use crate::keyed::key::ToKey;
use crate::limiter::key_limit::KeyLimit;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::token_bucket::TokenBucket;
use crate::limiter::waiting::{NO_LIMIT, block};
use crate::time::clock::nanos_of;
use crate::word::decision::{Denied, Granted};

impl TokenBucket {
    /// Waits for a token, and takes it.
    ///
    /// The length of the sleep is computed on the bucket's clock. The sleep itself is on the
    /// system's clock.
    ///
    /// Threads are served first come, first served, beside tasks that [wait](crate::_guide#wait).
    /// Any number may wait, unless [`max_waiting`](crate::BucketBuilder::max_waiting) is set. A
    /// change of quota moves the times of waiting threads.
    ///
    /// # Errors
    ///
    /// [`Denied`] at once, without a sleep, if the line is full. A verb with `n` also refuses more
    /// tokens than the burst: see [`hold`](TokenBucket::hold) for a cost that is larger. A verb
    /// with `max_wait` also refuses a longer wait, at once or, after a lower quota was set, late.
    /// A limiter may also refuse a new key, with [`Reason::Full`](crate::Reason::Full).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, TokenBucket};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(1_000).burst(1));
    /// for _ in 0..3 {
    ///     bucket.blocking_acquire()?; // the second and third a millisecond later each
    /// }
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn blocking_acquire(&self) -> Result<Granted, Denied> {
        self.blocking_acquire_n(1)
    }

    /// Waits for `n` tokens, and takes them; see [`blocking_acquire`](Self::blocking_acquire).
    pub fn blocking_acquire_n(&self, n: u64) -> Result<Granted, Denied> {
        block(self.n(n), NO_LIMIT)
    }

    /// Waits for a token, and takes it, if it comes within `max_wait`.
    ///
    /// A longer wait is refused at once, without a sleep. See
    /// [`blocking_acquire`](Self::blocking_acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, Reason, TokenBucket};
    ///
    /// let bucket = TokenBucket::new(Quota::per_hour(1));
    /// assert!(bucket.blocking_acquire().is_ok());
    /// let denied = bucket.blocking_acquire_within(Duration::from_millis(5)).unwrap_err();
    /// assert_eq!(denied.reason(), Reason::Deadline);
    /// ```
    pub fn blocking_acquire_within(&self, max_wait: Duration) -> Result<Granted, Denied> {
        self.blocking_acquire_n_within(1, max_wait)
    }

    /// Waits for `n` tokens, and takes them, if they come within `max_wait`.
    ///
    /// A longer wait is refused at once, without a sleep. See
    /// [`blocking_acquire`](Self::blocking_acquire).
    pub fn blocking_acquire_n_within(&self, n: u64, max_wait: Duration) -> Result<Granted, Denied> {
        block(self.n(n), nanos_of(max_wait))
    }
}

impl<K: Hash + Eq + Send + Sync, S: BuildHasher + Send + Sync> RateLimiter<K, S> {
    /// Waits for a token of the key's bucket; see [`TokenBucket::blocking_acquire`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<String>::new(Quota::per_second(1_000).burst(1));
    /// limiter.blocking_acquire("example.org")?;
    /// limiter.blocking_acquire("example.org")?; // a millisecond later
    /// # Ok::<(), tollgate::Denied>(())
    /// ```
    pub fn blocking_acquire<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<Granted, Denied> {
        self.key(key).blocking_acquire()
    }

    /// Waits for `n` tokens; see [`TokenBucket::blocking_acquire`].
    pub fn blocking_acquire_n<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        self.key(key).n(n).blocking_acquire()
    }

    /// Waits for a token, and takes it, if it comes within `max_wait`.
    ///
    /// A longer wait is refused at once, without a sleep. See [`TokenBucket::blocking_acquire`].
    pub fn blocking_acquire_within<Q>(&self, key: &Q, max_wait: Duration) -> Result<Granted, Denied>
    where
        Q: ToKey<K> + ?Sized,
    {
        self.key(key).blocking_acquire_within(max_wait)
    }

    /// Waits for `n` tokens, and takes them, if they come within `max_wait`.
    ///
    /// A longer wait is refused at once, without a sleep. See [`TokenBucket::blocking_acquire`].
    pub fn blocking_acquire_n_within<Q>(&self, key: &Q, n: u64, max_wait: Duration) -> Result<Granted, Denied>
    where
        Q: ToKey<K> + ?Sized,
    {
        self.key(key).n(n).blocking_acquire_within(max_wait)
    }
}

impl<K, Q, S> KeyLimit<'_, K, Q, S>
where
    K: Hash + Eq + Send + Sync,
    Q: ToKey<K> + ?Sized,
    S: BuildHasher + Send + Sync,
{
    /// Waits for the tokens; see [`TokenBucket::blocking_acquire`].
    pub fn blocking_acquire(&self) -> Result<Granted, Denied> {
        block(self, NO_LIMIT)
    }

    /// Waits for the tokens, and takes them, if they come within `max_wait`.
    ///
    /// A longer wait is refused at once, without a sleep. See [`TokenBucket::blocking_acquire`].
    pub fn blocking_acquire_within(&self, max_wait: Duration) -> Result<Granted, Denied> {
        block(self, nanos_of(max_wait))
    }
}

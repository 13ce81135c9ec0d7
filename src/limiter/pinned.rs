//! A limiter with the map's guard paid for.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

use crate::keyed::key::ToKey;
use crate::keyed::store::StoreGuard;
use crate::limiter::inner::CallOptions;
use crate::limiter::inner::Inner;
use crate::limiter::rate_limiter::RateLimiter;
use crate::time::clock::Moment;
use crate::word::decision::{Denied, Granted, Snapshot};
use crate::word::plan::Plan;

/// A [`RateLimiter`] with the map's guard paid for; see [`RateLimiter::pin`].
pub struct Pinned<'a, K, S = RandomState> {
    inner: &'a Inner<K, S>,
    pin: StoreGuard<'a, K>,
}

impl<K: Hash + Eq, S: BuildHasher> RateLimiter<K, S> {
    /// A handle that pays the map's guard once (about 11 ns a call).
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
        Pinned { inner: &self.inner, pin: self.inner.keyspace.store.pin() }
    }
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
        self.inner.try_acquire_n(&self.pin, key, n)
    }

    /// As [`RateLimiter::try_acquire_at`].
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back, counted from the reading.
    #[inline]
    pub fn try_acquire_at<Q: ToKey<K> + ?Sized>(
        &self,
        now: Moment,
        key: &Q,
        n: u64,
    ) -> Result<Granted, Denied> {
        self.inner.try_acquire_as(&self.pin, key, n, CallOptions { now: Some(now), ..CallOptions::NOW })
    }

    /// As [`RateLimiter::try_acquire_as`].
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back, that `n` is over the plan's burst, or that the plan is of another limiter.
    #[inline]
    pub fn try_acquire_as<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        n: u64,
        plan: &Plan,
    ) -> Result<Granted, Denied> {
        self.inner.try_acquire_as(&self.pin, key, n, CallOptions { plan: Some(plan), ..CallOptions::NOW })
    }

    /// As [`RateLimiter::acquire_up_to`].
    #[must_use = "it may be fewer than were asked for"]
    pub fn acquire_up_to<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Granted {
        self.inner.acquire_up_to(&self.pin, key, n, CallOptions::NOW)
    }

    /// As [`RateLimiter::refund`].
    pub fn refund<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) {
        self.inner.refund(&self.pin, key, n, None);
    }

    /// As [`RateLimiter::peek`].
    pub fn peek<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Snapshot {
        self.inner.peek(&self.pin, key, CallOptions::NOW)
    }

    /// As [`RateLimiter::remove`].
    pub fn remove<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> bool {
        self.inner.remove(&self.pin, key)
    }
}

impl<K, S> fmt::Debug for Pinned<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned")
            .field("quota", &format_args!("{}", self.inner.keyspace.engine.source.quota()))
            .finish_non_exhaustive()
    }
}

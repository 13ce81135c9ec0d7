//! All that can be said of a request: a key, its tokens, its plan. And every verb on it.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use crate::bucket::reservation::{Hold, Reservation};
use crate::keyed::key::ToKey;
use crate::limiter::inner::CallOptions;
use crate::limiter::inner::Inner;
use crate::limiter::rate_limiter::RateLimiter;
use crate::time::clock::{Moment, nanos_of};
use crate::word::decision::{Denied, Granted, Snapshot};
use crate::word::plan::Plan;

/// Some tokens of a key, from [`RateLimiter::key`]: one, or [`n`](KeyLimit::n); under the limiter's own quota, or
/// [`under`](KeyLimit::under) a plan.
///
/// It has the verbs of the limiter that take or give, and is what [`all_of`](crate::all_of) takes.
///
/// # Examples
///
/// ```
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::<String>::builder(Quota::per_hour(10)).headroom(Quota::per_hour(100))?.build();
/// let gold = limiter.plan(Quota::per_hour(100))?;
///
/// let upload = limiter.key("ada").n(30).under(&gold);
/// assert_eq!(upload.try_acquire()?.remaining(), 70);
/// upload.refund();
/// assert_eq!(upload.peek().remaining(), 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KeyLimit<'a, K, Q: ?Sized, S> {
    limiter: &'a RateLimiter<K, S>,
    pub(crate) key: &'a Q,
    pub(crate) n: u64,
    plan: Option<&'a Plan>,
}

impl<K, S> RateLimiter<K, S> {
    /// One token of the key's bucket; see [`KeyLimit`].
    #[must_use]
    pub fn key<'a, Q: ToKey<K> + ?Sized>(&'a self, key: &'a Q) -> KeyLimit<'a, K, Q, S> {
        KeyLimit { limiter: self, key, n: 1, plan: None }
    }
}

impl<'a, K, Q: ?Sized, S> KeyLimit<'a, K, Q, S> {
    /// `n` tokens instead.
    #[must_use]
    pub fn n(self, n: u64) -> Self {
        KeyLimit { n, ..self }
    }

    /// Under a plan.
    #[must_use]
    pub fn under(self, plan: &'a Plan) -> Self {
        KeyLimit { plan: Some(plan), ..self }
    }

    pub(crate) fn inner(&self) -> &'a Inner<K, S> {
        &self.limiter.inner
    }

    pub(crate) fn ask(&self) -> CallOptions<'a> {
        CallOptions { plan: self.plan, now: None }
    }
}

impl<'a, K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> KeyLimit<'a, K, Q, S> {
    /// Takes the tokens, all or none; see [`RateLimiter::try_acquire_n`].
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back, if ever.
    pub fn try_acquire(&self) -> Result<Granted, Denied> {
        let inner = self.inner();
        inner.try_acquire_as(&inner.keyspace.store.pin(), self.key, self.n, self.ask())
    }

    /// Takes the tokens at a reading that was taken before; see [`RateLimiter::try_acquire_at`].
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back, if ever, counted from the reading.
    pub fn try_acquire_at(&self, now: Moment) -> Result<Granted, Denied> {
        let inner = self.inner();
        let ask = CallOptions { now: Some(now), ..self.ask() };
        inner.try_acquire_as(&inner.keyspace.store.pin(), self.key, self.n, ask)
    }

    /// Takes what is there of the tokens; see [`RateLimiter::acquire_up_to`].
    #[must_use = "it may be fewer than were asked for"]
    pub fn acquire_up_to(&self) -> Granted {
        let inner = self.inner();
        inner.acquire_up_to(&inner.keyspace.store.pin(), self.key, self.n, self.ask())
    }

    /// Gives the tokens back; see [`RateLimiter::refund`]. Under a plan of another limiter it gives nothing back.
    pub fn refund(&self) {
        let inner = self.inner();
        inner.refund(&inner.keyspace.store.pin(), self.key, self.n, self.plan);
    }

    /// Looks into the bucket; see [`RateLimiter::peek`].
    pub fn peek(&self) -> Snapshot {
        let inner = self.inner();
        inner.peek(&inner.keyspace.store.pin(), self.key, self.ask())
    }
}

impl<'a, K: Hash + Eq + Send + Sync, Q: ToKey<K> + ?Sized, S: BuildHasher + Send + Sync>
    KeyLimit<'a, K, Q, S>
{
    /// Takes the tokens now or in time to come; see [`RateLimiter::reserve`].
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the reservation can be made, if ever.
    pub fn reserve(&self) -> Result<Reservation<'a>, Denied> {
        self.inner().reserve(self.key, self.ask(), self.n, u64::MAX)
    }

    /// Takes the tokens if they are due within `max_wait`; see [`RateLimiter::reserve_within`].
    ///
    /// # Errors
    ///
    /// [`Denied`] says when the reservation can be made, if ever.
    pub fn reserve_within(&self, max_wait: Duration) -> Result<Reservation<'a>, Denied> {
        self.inner().reserve(self.key, self.ask(), self.n, nanos_of(max_wait))
    }

    /// Takes the tokens as an estimate; see [`RateLimiter::hold`].
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to come back, if ever.
    pub fn hold(&self) -> Result<Hold<'a>, Denied> {
        self.inner().hold(self.key, self.ask(), self.n)
    }
}

impl<K, Q: ?Sized, S> Clone for KeyLimit<'_, K, Q, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, Q: ?Sized, S> Copy for KeyLimit<'_, K, Q, S> {}

/// Never prints the key.
impl<K, Q: ?Sized, S> fmt::Debug for KeyLimit<'_, K, Q, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLimit").field("n", &self.n).field("plan", &self.plan).finish_non_exhaustive()
    }
}

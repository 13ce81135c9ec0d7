//! A request as a value: key, tokens and plan, with every verb of the limiter.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use crate::bucket::reservation::{Hold, Reservation, Reserved};
use crate::keyed::key::ToKey;
use crate::keyed::store::StoreGuard;
use crate::limiter::inner::Inner;
use crate::limiter::key_call::{CallOptions, KeyCall};
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::verbs::{InFull, UpTo, Verb};
use crate::time::clock::{Moment, nanos_of};
use crate::word::by_refill::BUCKETS;
use crate::word::decision::snapshot::Snapshot;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::Plan;

/// Some tokens of a key's bucket, from [`RateLimiter::key`].
///
/// One token, or [`n`](KeyLimit::n); under the limiter's own quota, or [`under`](KeyLimit::under) a
/// plan. It has the verbs of the limiter that take or give, and [`all_of`](crate::all_of) takes it.
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
    pub(crate) inner: &'a Inner<K, S>,
    pub(crate) key: &'a Q,
    pub(crate) n: u64,
    pub(crate) options: CallOptions<'a>,
}

impl<K, S> RateLimiter<K, S> {
    /// Returns a request for one token of the key's bucket; see [`KeyLimit`].
    #[inline]
    #[must_use]
    pub fn key<'a, Q: ToKey<K> + ?Sized>(&'a self, key: &'a Q) -> KeyLimit<'a, K, Q, S> {
        KeyLimit { inner: &self.inner, key, n: 1, options: CallOptions::NOW }
    }
}

impl<'a, K, Q: ?Sized, S> KeyLimit<'a, K, Q, S> {
    /// Sets the number of tokens.
    #[inline]
    #[must_use]
    pub fn n(self, n: u64) -> Self {
        KeyLimit { n, ..self }
    }

    /// Sets the plan. Under a plan of another limiter every take is refused.
    #[inline]
    #[must_use]
    pub fn under(self, plan: &'a Plan) -> Self {
        KeyLimit { options: CallOptions { plan: Some(plan), ..self.options }, ..self }
    }
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> KeyLimit<'_, K, Q, S> {
    pub(crate) fn call<'p>(&'p self, pin: &'p StoreGuard<'p, K>) -> KeyCall<'p, K, Q, S> {
        self.inner.call(pin, self.key, self.options)
    }

    /// Decides by a verb.
    #[inline(always)]
    pub(super) fn decide<const WORDS: u8, V: Verb>(&self, verb: V) -> V::Answer {
        self.inner.decide::<WORDS, V, Q>(self.key, verb, self.options)
    }

    /// Takes the tokens, all or none; see [`RateLimiter::try_acquire_n`].
    #[inline]
    pub fn try_acquire(&self) -> Result<Granted, Denied> {
        self.decide::<BUCKETS, _>(InFull(self.n))
    }

    /// Takes the tokens, all or none, at an earlier reading of the limiter's clock.
    ///
    /// `now` must be a reading, not a future time. See
    /// [`TokenBucket::try_acquire_at`](crate::TokenBucket::try_acquire_at).
    ///
    /// # Errors
    ///
    /// [`Denied`] says when to try again, counted from the reading. A plan of another limiter is
    /// refused, with [`Reason::ForeignPlan`](crate::Reason::ForeignPlan).
    #[inline]
    pub fn try_acquire_at(&self, now: Moment) -> Result<Granted, Denied> {
        self.at(now).try_acquire()
    }

    /// Returns the same request at an earlier reading.
    #[inline(always)]
    pub(super) fn at(&self, now: Moment) -> Self {
        KeyLimit { options: CallOptions { now: Some(now), ..self.options }, ..*self }
    }

    /// Takes the tokens that are there, up to `n`; see [`RateLimiter::acquire_up_to`].
    #[inline]
    #[must_use = "it may be fewer than were asked for"]
    pub fn acquire_up_to(&self) -> Granted {
        self.decide::<BUCKETS, _>(UpTo(self.n))
    }

    /// Gives the tokens back; see [`RateLimiter::refund`].
    ///
    /// Under a plan of another limiter it gives nothing back.
    pub fn refund(&self) {
        self.call(&self.inner.keyspace.store.pin()).refund(self.n);
    }

    /// Returns the tokens that are there, and takes none; see [`RateLimiter::peek`].
    pub fn peek(&self) -> Snapshot {
        self.call(&self.inner.keyspace.store.pin()).peek()
    }
}

impl<'a, K, Q, S> KeyLimit<'a, K, Q, S>
where
    K: Hash + Eq + Send + Sync,
    Q: ToKey<K> + ?Sized,
    S: BuildHasher + Send + Sync,
{
    /// Takes the tokens now or in time to come; see [`RateLimiter::reserve`].
    pub fn reserve(&self) -> Result<Reservation<'a>, Denied> {
        self.reserve_for(u64::MAX)
    }

    /// Takes the tokens if they are due within `max_wait`; see [`RateLimiter::reserve_within`].
    pub fn reserve_within(&self, max_wait: Duration) -> Result<Reservation<'a>, Denied> {
        self.reserve_for(nanos_of(max_wait))
    }

    pub(crate) fn reserve_for(&self, max_wait: u64) -> Reserved<'a> {
        self.inner.reserve(self.key, self.options, self.n, max_wait)
    }

    /// Takes the tokens as an estimate; see [`RateLimiter::hold`].
    pub fn hold(&self) -> Result<Hold<'a>, Denied> {
        self.inner.hold(self.key, self.options, self.n)
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
        f.debug_struct("KeyLimit")
            .field("n", &self.n)
            .field("plan", &self.options.plan)
            .finish_non_exhaustive()
    }
}

//! A limiter with a guard that serves many calls, and decisions on many keys that are looked up
//! ahead so that cache misses overlap.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;

use crate::keyed::key::{KeyQuery, ToKey};
use crate::keyed::store::StoreGuard;
use crate::limiter::ask::Ask;
use crate::limiter::asked::CallOptions;
use crate::limiter::inner::Inner;
use crate::limiter::keyed::{Keyed, PinnedKey};
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::rule::Rule;
use crate::limiter::verbs::InFull;
use crate::rule::rate::Quota;
use crate::time::clock::Moment;
use crate::word::decision::{Denied, Granted};

/// A [`RateLimiter`] with a guard that serves many calls; see [`RateLimiter::pin`].
pub struct Pinned<'a, K, R = Quota, S = RandomState> {
    /// Not by its handle, which would cost a load in each call.
    inner: &'a Inner<K, S>,
    owner: &'a Arc<Inner<K, S>>,
    pin: StoreGuard<'a, K>,
    rule: PhantomData<R>,
}

impl<K: Hash + Eq, R: Rule, S: BuildHasher> RateLimiter<K, R, S> {
    /// Returns a handle that takes the map's guard once, which saves about 11 ns a call.
    ///
    /// While the handle lives, the memory of evicted keys is not given back: keep it for a batch of
    /// decisions, not for the life of a thread. The handle is neither `Send` nor `Sync`, so no
    /// future that moves between threads can hold it across an await.
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
    pub fn pin(&self) -> Pinned<'_, K, R, S> {
        let (inner, owner) = (&*self.inner, &self.inner);
        Pinned { inner, owner, pin: inner.keyspace.store.pin(), rule: PhantomData }
    }
}

impl<K: Hash + Eq, R: Rule, S: BuildHasher> Pinned<'_, K, R, S> {
    /// Returns a request for one token of the key's bucket; see [`RateLimiter::key`].
    #[inline]
    pub fn key<'a, 'k, Q>(&'a self, key: &'k Q) -> Ask<'k, PinnedKey<'a, 'k, K, Q, R, S>>
    where
        K: Send + Sync,
        Q: ToKey<K> + ?Sized,
        S: Send + Sync,
    {
        let bucket = Keyed { inner: self.inner, owner: self.owner, key, rule: PhantomData };
        Ask::new(PinnedKey { pin: &self.pin, bucket })
    }

    /// Takes one token of the key's bucket, if there is one; see [`RateLimiter::try_acquire`].
    #[inline]
    pub fn try_acquire<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<Granted, Denied> {
        self.try_acquire_n(key, 1)
    }

    /// Takes `n` tokens of the key's bucket, all or none; see [`RateLimiter::try_acquire_n`].
    #[inline]
    pub fn try_acquire_n<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        let key = KeyQuery::new(&self.inner.hasher, key);
        self.inner.decide_pinned::<R, _, Q>(&self.pin, key, InFull(n), CallOptions::NOW)
    }
}

impl<K, R, S> fmt::Debug for Pinned<'_, K, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").finish_non_exhaustive()
    }
}

/// Number of keys looked up ahead: at least the number of cache misses that a core overlaps.
const AHEAD: usize = 16;

impl<K: Hash + Eq, R: Rule, S: BuildHasher> RateLimiter<K, R, S> {
    /// Takes tokens of many keys' buckets, each by itself and in order.
    ///
    /// Each `next` of the iterator makes a decision. A reading of the clock serves 16 keys, as in
    /// [`Ask::at`](crate::Ask::at). With [inline](crate::Builder::inline) buckets the
    /// slots of 16 keys are brought into the cache at once, so a decision waits for little of that.
    /// A map only saves the readings and the guard.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<String>::builder(Quota::per_hour(2)).max_keys(1_000).inline()?.build();
    /// let batch = [("ada", 2), ("bob", 1), ("ada", 1)];
    /// let granted: Vec<bool> = limiter.try_acquire_batch(&batch).map(|decision| decision.is_ok()).collect();
    /// assert_eq!(granted, [true, true, false]);
    /// # Ok::<(), tollgate::InvalidRule>(())
    /// ```
    pub fn try_acquire_batch<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        asks: &'a [(&'a Q, u64)],
    ) -> impl ExactSizeIterator<Item = Result<Granted, Denied>> + use<'a, K, R, S, Q> {
        let inner = &*self.inner;
        let (pin, rule) = (inner.keyspace.store.pin(), PhantomData::<R>);
        Batch { inner, pin, asks, decided: 0, now: Moment(0), hashes: [0; AHEAD], rule }
    }
}

struct Batch<'a, K, R, S, Q: ?Sized> {
    inner: &'a Inner<K, S>,
    pin: StoreGuard<'a, K>,
    asks: &'a [(&'a Q, u64)],
    decided: usize,
    /// Reading for the keys that were looked up last.
    now: Moment,
    hashes: [u64; AHEAD],
    rule: PhantomData<R>,
}

impl<K: Hash + Eq, R: Rule, S: BuildHasher, Q: ToKey<K> + ?Sized> Batch<'_, K, R, S, Q> {
    fn look_up(&mut self) {
        let asks = self.asks[self.decided..].iter().zip(&mut self.hashes);
        let asked = asks.map(|((key, _), hash)| *hash = self.inner.hasher.hash_one(*key)).count();
        self.pin.prefetch(&self.hashes[..asked]);
        self.now = self.inner.keyspace.engine.clock.now();
    }
}

impl<K: Hash + Eq, R: Rule, S: BuildHasher, Q: ToKey<K> + ?Sized> Iterator for Batch<'_, K, R, S, Q> {
    type Item = Result<Granted, Denied>;

    #[inline]
    fn next(&mut self) -> Option<Result<Granted, Denied>> {
        let &(key, n) = self.asks.get(self.decided)?;
        if self.decided.is_multiple_of(AHEAD) {
            self.look_up();
        }
        let key = KeyQuery::of(self.hashes[self.decided % AHEAD], key);
        self.decided += 1;
        let options = CallOptions { plan: None, now: Some(self.now) };
        Some(self.inner.decide_pinned::<R, _, Q>(&self.pin, key, InFull(n), options))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.asks.len() - self.decided;
        (left, Some(left))
    }
}

impl<K: Hash + Eq, R: Rule, S: BuildHasher, Q: ToKey<K> + ?Sized> ExactSizeIterator
    for Batch<'_, K, R, S, Q>
{
}

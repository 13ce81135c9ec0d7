//! Decisions on many keys, looked up ahead so that cache misses overlap.

use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use crate::keyed::key::{KeyQuery, ToKey};
use crate::keyed::store::StoreGuard;
use crate::limiter::inner::Inner;
use crate::limiter::options::CallOptions;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::rule::Rule;
use crate::limiter::verbs::InFull;
use crate::time::clock::Moment;
use crate::word::decision::{Denied, Granted};

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

//! The verb `try_acquire` of a key: one attempt on the bucket of a known key, inlined into the
//! caller, and the long way after an attempt that missed.

use std::convert::identity;
use std::hash::{BuildHasher, Hash};

use crate::bucket::atomic::{BucketRef, Miss, Order, ReadClock};
use crate::bucket::engine::{At, Now};
use crate::keyed::key::{KeyQuery, ToKey};
use crate::keyed::protocol::Entry;
use crate::keyed::store::{MapStore, Store, StoreGuard};
use crate::keyed::table::Table;
use crate::limiter::inner::Inner;
use crate::limiter::key_call::{CallOptions, KeyCall};
use crate::limiter::rate_limiter::RateLimiter;
use crate::quota::counts::Counting;
use crate::time::clock::Moment;
use crate::word::decision::{Denied, Granted, exactly};
use crate::word::state::{Reading, Refill, TakeOutcome};
use crate::word::window::{FIRST_USE, SUB_WINDOWS, WEIGHTED, WindowTerms};

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
        self.inner.try_acquire_once(key, n)
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
        self.key(key).n(n).try_acquire_at(now)
    }
}

/// Attempts once to take `n` tokens from a known key's bucket.
#[inline(always)]
fn attempt(
    found: Option<impl BucketRef>,
    read: impl ReadClock,
    n: u64,
) -> Result<(TakeOutcome, Reading), Miss> {
    attempt_by(found, read, n, identity)
}

/// Attempts like [`attempt`] on a word of another refill, `by` readings of it.
#[inline(always)]
fn attempt_by<P: Refill>(
    found: Option<impl BucketRef>,
    read: impl ReadClock,
    n: u64,
    by: impl Fn(Reading) -> Reading<P>,
) -> Result<(TakeOutcome, Reading), Miss> {
    // Not a closure, which has no `inline` attribute: out of line, a decision took a quarter
    // longer.
    match found {
        Some(bucket) => bucket.attempt_by(Order::WordFirst, read, n, by),
        None => Err(Miss::StaleReading),
    }
}

impl<K: Hash + Eq, S: BuildHasher> Inner<K, S> {
    /// Like [`try_acquire_n`](Inner::try_acquire_n), but takes the guard itself.
    ///
    /// Inlined into the caller, which saves 26 of the table's 230 instructions.
    #[inline(always)]
    pub(crate) fn try_acquire_once<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        if self.fast_path != Some(Counting::Bucket) {
            return self.try_acquire_watched(key, n);
        }
        let table = match &self.keyspace.store {
            Store::Map(buckets) => return self.try_acquire_in_map(buckets, key, n),
            Store::Table(table) => table,
        };
        let key = KeyQuery::new(&self.hasher, key);
        match attempt(table.find(key.full), Now(&self.keyspace.engine), n) {
            Ok(done) => exactly(n, done),
            Err(missed) => self.try_acquire_anyhow(&StoreGuard::Table(table), key, missed, n),
        }
    }

    #[inline(always)]
    fn try_acquire_in_map<Q: ToKey<K> + ?Sized>(
        &self,
        buckets: &MapStore<K>,
        key: &Q,
        n: u64,
    ) -> Result<Granted, Denied> {
        // Only the guard is live on the hot path. It is not moved: that would copy it in each call.
        let (key, map) = (KeyQuery::new(&self.hasher, key), buckets.map());
        let guard = map.guard();
        match attempt(map.get(&key.in_map(), &guard), Now(&self.keyspace.engine), n) {
            Ok(done) => exactly(n, done),
            Err(missed) => self.try_acquire_pinned(key, missed, n),
        }
    }

    #[cold]
    #[inline(never)]
    fn try_acquire_pinned<Q: ToKey<K> + ?Sized>(
        &self,
        key: KeyQuery<'_, Q>,
        missed: Miss,
        n: u64,
    ) -> Result<Granted, Denied> {
        self.try_acquire_anyhow(&self.keyspace.store.pin(), key, missed, n)
    }

    /// Takes `n` tokens where there is a function of plans or a hook.
    #[inline(never)]
    fn try_acquire_watched<Q: ToKey<K> + ?Sized>(&self, key: &Q, n: u64) -> Result<Granted, Denied> {
        let key = KeyQuery::new(&self.hasher, key);
        if self.attempts == Some(Counting::Bucket) {
            return self.try_acquire_observed(key, n);
        }
        self.try_acquire_anyhow(&self.keyspace.store.pin(), key, Miss::StaleReading, n)
    }

    /// Takes `n` tokens of a bucket by the same attempt, and shows the decision to the hook.
    #[inline(always)]
    fn try_acquire_observed<Q: ToKey<K> + ?Sized>(
        &self,
        key: KeyQuery<'_, Q>,
        n: u64,
    ) -> Result<Granted, Denied> {
        let now = Now(&self.keyspace.engine);
        let (pin, missed) = match &self.keyspace.store {
            Store::Map(buckets) => {
                let map = buckets.map();
                let guard = map.guard();
                match attempt(map.get(&key.in_map(), &guard), now, n) {
                    Ok(done) => return self.hook.observe(n, exactly(n, done)),
                    Err(missed) => (StoreGuard::Map(map, guard), missed),
                }
            }
            Store::Table(table) => match attempt(table.find(key.full), now, n) {
                Ok(done) => return self.hook.observe(n, exactly(n, done)),
                Err(missed) => (StoreGuard::Table(table), missed),
            },
        };
        self.try_acquire_anyhow(&pin, key, missed, n)
    }

    #[inline]
    pub(crate) fn try_acquire_n<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: &Q,
        n: u64,
    ) -> Result<Granted, Denied> {
        let key = KeyQuery::new(&self.hasher, key);
        match self.attempt_at(pin, key, Now(&self.keyspace.engine), n) {
            Ok(done) => exactly(n, done),
            Err(missed) => self.try_acquire_anyhow(pin, key, missed, n),
        }
    }

    #[inline(always)]
    fn attempt_at<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: KeyQuery<'_, Q>,
        read: impl ReadClock,
        n: u64,
    ) -> Result<(TakeOutcome, Reading), Miss> {
        if self.fast_path != Some(Counting::Bucket) {
            return Err(Miss::StaleReading);
        }
        match pin {
            StoreGuard::Map(map, guard) => attempt(map.get(&key.in_map(), guard), read, n),
            StoreGuard::Table(table) => attempt(table.find(key.full), read, n),
        }
    }

    /// Takes `n` tokens of a key's window, all or none.
    #[inline(always)]
    pub(crate) fn try_acquire_in_window<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        n: u64,
    ) -> Result<Granted, Denied> {
        match self.fast_path {
            Some(Counting::SubWindows) => self.try_acquire_by_counts::<SUB_WINDOWS, Q>(key, n),
            Some(Counting::FirstUse) => self.try_acquire_by_counts::<FIRST_USE, Q>(key, n),
            Some(Counting::Weighted) => self.try_acquire_by_counts::<WEIGHTED, Q>(key, n),
            _ => self.try_acquire_watched(key, n),
        }
    }

    #[inline(always)]
    fn try_acquire_by_counts<const COUNTING: u8, Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        n: u64,
    ) -> Result<Granted, Denied> {
        match &self.keyspace.store {
            Store::Map(buckets) => self.try_acquire_by_counts_in_map::<COUNTING, Q>(buckets, key, n),
            Store::Table(table) => self.try_acquire_by_counts_in_table::<COUNTING, Q>(table, key, n),
        }
    }

    #[inline(always)]
    fn try_acquire_by_counts_in_map<const COUNTING: u8, Q: ToKey<K> + ?Sized>(
        &self,
        buckets: &MapStore<K>,
        key: &Q,
        n: u64,
    ) -> Result<Granted, Denied> {
        let by = |reading| WindowTerms::<COUNTING>::at(reading, self.keyspace.engine.source.counts());
        let (key, map) = (KeyQuery::new(&self.hasher, key), buckets.map());
        let guard = map.guard();
        let found = map.get(&key.in_map(), &guard);
        match attempt_by(found, Now(&self.keyspace.engine), n, by) {
            Ok((outcome, reading)) => {
                // First, so that the compiler drops a wait that the caller does not ask for.
                drop(guard);
                exactly(n, (outcome, by(reading)))
            }
            Err(missed) => self.try_acquire_pinned(key, missed, n),
        }
    }

    #[inline(always)]
    fn try_acquire_by_counts_in_table<const COUNTING: u8, Q: ToKey<K> + ?Sized>(
        &self,
        table: &Table,
        key: &Q,
        n: u64,
    ) -> Result<Granted, Denied> {
        let by = |reading| WindowTerms::<COUNTING>::at(reading, self.keyspace.engine.source.counts());
        let key = KeyQuery::new(&self.hasher, key);
        match attempt_by(table.find(key.full), Now(&self.keyspace.engine), n, by) {
            Ok((outcome, reading)) => exactly(n, (outcome, by(reading))),
            Err(missed) => self.try_acquire_anyhow(&StoreGuard::Table(table), key, missed, n),
        }
    }

    /// Attempts once to take `n` tokens of a known key's window.
    #[inline(never)]
    fn attempt_in_window<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: KeyQuery<'_, Q>,
        read: impl ReadClock,
        n: u64,
    ) -> Result<Result<Granted, Denied>, Miss> {
        match self.attempts {
            Some(Counting::SubWindows) => self.attempt_by_counts::<SUB_WINDOWS, Q>(pin, key, read, n),
            Some(Counting::FirstUse) => self.attempt_by_counts::<FIRST_USE, Q>(pin, key, read, n),
            Some(Counting::Weighted) => self.attempt_by_counts::<WEIGHTED, Q>(pin, key, read, n),
            _ => Err(Miss::StaleReading),
        }
    }

    #[inline(always)]
    fn attempt_by_counts<const COUNTING: u8, Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: KeyQuery<'_, Q>,
        read: impl ReadClock,
        n: u64,
    ) -> Result<Result<Granted, Denied>, Miss> {
        let by = |reading| WindowTerms::<COUNTING>::at(reading, self.keyspace.engine.source.counts());
        let (outcome, reading) = match pin {
            StoreGuard::Map(map, guard) => attempt_by(map.get(&key.in_map(), guard), read, n, by)?,
            StoreGuard::Table(table) => attempt_by(table.find(key.full), read, n, by)?,
        };
        Ok(exactly(n, (outcome, by(reading))))
    }

    /// Attempts once to take `n` tokens of a known key where the fast path does not: of a window
    /// again, and of a bucket if a hook is to see the decision.
    #[inline(never)]
    fn attempt_observed<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: KeyQuery<'_, Q>,
        read: impl ReadClock,
        n: u64,
    ) -> Option<Result<Granted, Denied>> {
        let decision = match self.attempts {
            Some(Counting::Bucket) if !self.hook.is_none() => {
                exactly(n, attempt(self.keyspace.entry(pin, key).get(), read, n).ok()?)
            }
            Some(Counting::Bucket) | None => return None,
            Some(_) => self.attempt_in_window(pin, key, read, n).ok()?,
        };
        Some(self.hook.observe(n, decision))
    }

    /// Takes `n` tokens after an attempt that `missed`.
    #[cold]
    #[inline(never)]
    fn try_acquire_anyhow<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: KeyQuery<'_, Q>,
        missed: Miss,
        n: u64,
    ) -> Result<Granted, Denied> {
        let (entry, engine) = (self.keyspace.entry(pin, key), &self.keyspace.engine);
        if let Some(decision) = self.attempt_observed(pin, key, Now(engine), n) {
            return decision;
        }
        if missed == Miss::LostRace
            && self.fast_path == Some(Counting::Bucket)
            && let Some(bucket) = entry.get()
            && let Some(done) = engine.attempt_again(bucket, Now(engine), n)
        {
            return exactly(n, done);
        }
        KeyCall { inner: self, entry, options: CallOptions::NOW }.decide(n)
    }

    /// Like [`try_acquire_n`](Inner::try_acquire_n), at a reading taken before.
    #[inline]
    pub(crate) fn try_acquire_at<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: KeyQuery<'_, Q>,
        now: Moment,
        n: u64,
    ) -> Result<Granted, Denied> {
        match self.attempt_at(pin, key, At(&self.keyspace.engine, now), n) {
            Ok(done) => exactly(n, done),
            Err(_) => self.try_acquire_anyhow_at(pin, key, now, n),
        }
    }

    #[cold]
    #[inline(never)]
    fn try_acquire_anyhow_at<Q: ToKey<K> + ?Sized>(
        &self,
        pin: &StoreGuard<'_, K>,
        key: KeyQuery<'_, Q>,
        now: Moment,
        n: u64,
    ) -> Result<Granted, Denied> {
        if let Some(decision) = self.attempt_observed(pin, key, At(&self.keyspace.engine, now), n) {
            return decision;
        }
        let options = CallOptions { now: Some(now), ..CallOptions::NOW };
        KeyCall { inner: self, entry: self.keyspace.entry(pin, key), options }.decide(n)
    }
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized, S: BuildHasher> KeyCall<'_, K, Q, S> {
    /// Takes `n` tokens, all or none.
    pub(crate) fn try_acquire(self, n: u64) -> Result<Granted, Denied> {
        match self.options {
            CallOptions { plan: None, now: Some(now) } => {
                self.inner.try_acquire_at(self.entry.pin, self.entry.key, now, n)
            }
            _ => self.decide(n),
        }
    }
}

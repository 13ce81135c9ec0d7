//! The mutex design in a map of shards, with the locks and the clock of crates.

use std::hash::BuildHasher;

use dashmap::DashMap;
use parking_lot::Mutex;
use quanta::{Clock, Instant};

use super::key::Key;
use super::mutex::{Level, Terms};
use crate::{Limiter, Setup};

/// Buckets behind `parking_lot`'s mutex, in shards behind read-write locks. A bucket is charged
/// under the read lock of its shard.
pub(crate) struct DashMapOfMutexes<K: Key, S> {
    buckets: DashMap<K, Mutex<Level<Instant>>, S>,
    clock: Clock,
    terms: Terms,
}

impl<K: Key, S: BuildHasher + Default + Clone + Send + Sync> Limiter<K> for DashMapOfMutexes<K, S> {
    fn new(setup: Setup) -> Self {
        let buckets = DashMap::with_capacity_and_hasher(setup.keys, S::default());
        DashMapOfMutexes { buckets, clock: Clock::new(), terms: Terms::new(setup.quota) }
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        let now = self.clock.now();
        if let Some(bucket) = self.buckets.get(key) {
            return self.terms.take(&mut bucket.lock(), now);
        }
        let mut bucket = self.buckets.entry(key.clone()).or_insert_with(|| Mutex::new(self.terms.full(now)));
        self.terms.take(bucket.get_mut(), now)
    }

    fn evict_idle(&self) -> bool {
        let now = self.clock.now();
        self.buckets.retain(|_, bucket| !self.terms.is_full(bucket.get_mut(), now));
        true
    }

    fn keys_held(&self) -> usize {
        self.buckets.len()
    }
}

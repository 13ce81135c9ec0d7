//! The two-level mutex design: a lock around the map, and a lock in each bucket.
//!
//! A bucket is charged after the map's lock is released. So a thread that waits for a bucket keeps
//! no other from inserting a key. A charge under the read lock would save the count of references:
//! 1.1 to 1.2 times as fast.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

use super::key::Key;
use super::mutex::{Level, Terms};
use crate::{Limiter, Setup};

/// Buckets behind `std`'s mutex in a map behind `std`'s read-write lock.
#[derive(Debug)]
pub(crate) struct RwLockMap<K, S> {
    buckets: RwLock<HashMap<K, Arc<Mutex<Level>>, S>>,
    terms: Terms,
}

impl<K: Key, S: BuildHasher + Default + Send + Sync> Limiter<K> for RwLockMap<K, S> {
    fn new(setup: Setup) -> Self {
        let buckets = HashMap::with_capacity_and_hasher(setup.keys, S::default());
        RwLockMap { buckets: RwLock::new(buckets), terms: Terms::new(setup.quota) }
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        let bucket = self.get(key).unwrap_or_else(|| self.get_or_insert(key));
        self.terms.lock_and_take(&bucket)
    }

    fn evict_idle(&self) -> bool {
        let now = Instant::now();
        let in_use = |bucket: &mut Arc<Mutex<Level>>| match Arc::get_mut(bucket) {
            Some(bucket) => !self.terms.is_full(bucket.get_mut().expect("no holder of the lock panics"), now),
            // A thread is about to charge it.
            None => true,
        };
        let mut buckets = self.buckets.write().expect("no holder of the lock panics");
        buckets.retain(|_, bucket| in_use(bucket));
        true
    }

    fn keys_held(&self) -> usize {
        self.buckets.read().expect("no holder of the lock panics").len()
    }
}

impl<K: Key, S: BuildHasher> RwLockMap<K, S> {
    fn get(&self, key: &K) -> Option<Arc<Mutex<Level>>> {
        self.buckets.read().expect("no holder of the lock panics").get(key).cloned()
    }

    /// Returns the bucket of the key, which another thread may have inserted since
    /// [`get`](Self::get).
    fn get_or_insert(&self, key: &K) -> Arc<Mutex<Level>> {
        let full = || Arc::new(Mutex::new(self.terms.full(Instant::now())));
        let mut buckets = self.buckets.write().expect("no holder of the lock panics");
        Arc::clone(buckets.entry(key.clone()).or_insert_with(full))
    }
}

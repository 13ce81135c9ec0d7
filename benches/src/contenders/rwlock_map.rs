//! The two-level mutex design: a lock around the map, and a lock in each bucket.
//!
//! The bucket is charged after the map's lock is released, so that a thread that waits for a bucket keeps nobody
//! from inserting a key. To charge it under the read lock saves the count of references: 1.1 to 1.2 times as fast.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

use tollgate::Quota;

use super::mutex::Terms;
use crate::KeyedLimiter;

type Bucket = Mutex<(f64, Instant)>;

/// Buckets behind `std`'s mutex in a map behind `std`'s read-write lock.
#[derive(Debug)]
pub struct RwLockMap<S> {
    buckets: RwLock<HashMap<u64, Arc<Bucket>, S>>,
    terms: Terms,
}

impl<S: BuildHasher + Default + Send + Sync> KeyedLimiter for RwLockMap<S> {
    const NAME: &'static str = "rwlock map";

    fn new(quota: Quota, keys: usize) -> Self {
        let buckets = HashMap::with_capacity_and_hasher(keys, S::default());
        RwLockMap { buckets: RwLock::new(buckets), terms: Terms::new(quota) }
    }

    fn try_acquire(&self, key: u64) -> bool {
        let bucket = self.get(key).unwrap_or_else(|| self.get_or_insert(key));
        self.terms.try_acquire(&bucket)
    }
}

impl<S: BuildHasher> RwLockMap<S> {
    fn get(&self, key: u64) -> Option<Arc<Bucket>> {
        self.buckets.read().expect("no holder of the lock panics").get(&key).cloned()
    }

    /// Looks again under the write lock: another thread may have inserted the key since [`get`](Self::get).
    fn get_or_insert(&self, key: u64) -> Arc<Bucket> {
        let mut buckets = self.buckets.write().expect("no holder of the lock panics");
        Arc::clone(buckets.entry(key).or_insert_with(|| Arc::new(self.terms.full())))
    }
}

//! The simplest keyed design: one lock for all keys.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Mutex;
use std::time::Instant;

use super::key::Key;
use super::mutex::{Level, Terms};
use crate::{Limiter, Setup};

/// All buckets in a map behind `std`'s mutex.
#[derive(Debug)]
pub(crate) struct OneMutex<K, S> {
    buckets: Mutex<HashMap<K, Level, S>>,
    terms: Terms,
}

impl<K: Key, S: BuildHasher + Default + Send> Limiter<K> for OneMutex<K, S> {
    fn new(setup: Setup) -> Self {
        let buckets = HashMap::with_capacity_and_hasher(setup.keys, S::default());
        OneMutex { buckets: Mutex::new(buckets), terms: Terms::new(setup.quota) }
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        let now = Instant::now();
        let mut buckets = self.buckets.lock().expect("no holder of the lock panics");
        // Not by entry: that would clone the key each time.
        if let Some(level) = buckets.get_mut(key) {
            return self.terms.take(level, now);
        }
        self.terms.take(buckets.entry(key.clone()).or_insert(self.terms.full(now)), now)
    }

    fn evict_idle(&self) -> bool {
        let now = Instant::now();
        let mut buckets = self.buckets.lock().expect("no holder of the lock panics");
        buckets.retain(|_, level| !self.terms.is_full(level, now));
        true
    }

    fn keys_held(&self) -> usize {
        self.buckets.lock().expect("no holder of the lock panics").len()
    }
}

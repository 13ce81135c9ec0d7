//! A store in this process, for tests and simulations.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::error::StoreError;
use super::op::{Op, Store};
use crate::credits::bucket::Bucket;

/// A store in memory, with a clock of the caller.
///
/// It is for tests: the buckets of one process need no store. It is not bounded, and forgets no
/// key.
pub struct MemoryStore<C> {
    now_us: C,
    buckets: Mutex<HashMap<Vec<u8>, Bucket>>,
}

impl<C: Fn() -> u64 + Send + Sync + 'static> MemoryStore<C> {
    /// Returns an empty store. `now_us` returns the time in microseconds.
    pub fn new(now_us: C) -> MemoryStore<C> {
        MemoryStore { now_us, buckets: Mutex::default() }
    }
}

impl<C: Fn() -> u64 + Send + Sync + 'static> Store for MemoryStore<C> {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        for op in ops {
            let stored = buckets.get(op.key).copied();
            let (bucket, answer) = Bucket::step(stored, &op.spec, (self.now_us)(), op.amount);
            if let Some(bucket) = bucket {
                buckets.insert(op.key.to_vec(), bucket);
            }
            op.answer = answer;
        }
        Ok(())
    }
}

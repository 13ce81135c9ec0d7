//! A store in this process, for tests and simulations.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::StoreError;
use super::op::{Op, Store};
use crate::credits::bucket::Bucket;

/// A store in memory, with a clock of the caller.
///
/// It is for tests: the buckets of one process need no store. It is not bounded, and forgets no
/// key. A clone is another handle to the same store.
#[derive(Clone)]
pub struct MemoryStore<C> {
    now_us: C,
    buckets: Arc<Mutex<HashMap<Vec<u8>, Bucket>>>,
}

impl<C: Fn() -> u64 + Send + Sync + 'static> MemoryStore<C> {
    /// Returns an empty store. `now_us` returns the time in microseconds.
    pub fn new(now_us: C) -> MemoryStore<C> {
        MemoryStore { now_us, buckets: Arc::default() }
    }
}

impl<C> fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
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

//! A store in this process, for tests and simulations.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{StoreError, StoreErrorKind};
use super::lanes::Lanes;
use super::op::{Op, Store, settle};
use crate::law::amount::StoreAnswer;
use crate::law::any_law::Law;
use crate::law::bucket::Bucket;
use crate::law::count::Count;

/// A store in memory, with a clock of the caller.
///
/// It is for tests: the limits of one process need no store. It is not bounded, and forgets no
/// key. A clone is another handle to the same store.
#[derive(Clone)]
pub struct MemoryStore<C> {
    now_us: C,
    kept: Arc<Mutex<Kept>>,
    lanes: Lanes,
}

/// The buckets and the counts, by their keys.
#[derive(Default)]
struct Kept {
    buckets: HashMap<Vec<u8>, Bucket>,
    counts: HashMap<Vec<u8>, Count>,
}

impl Kept {
    /// Decides a call, and returns its answer.
    fn decide(&mut self, op: &Op<'_>, now_us: u64) -> Result<StoreAnswer, StoreError> {
        match &op.law {
            Law::Bucket(spec) => {
                let stored = self.buckets.get(op.key).copied();
                let (bucket, answer) = Bucket::step(stored, spec, now_us, op.amount);
                bucket.map(|bucket| self.buckets.insert(op.key.to_vec(), bucket));
                Ok(answer)
            }
            Law::Count(spec) => {
                let (count, answer) = Count::step(self.counts.get(op.key), spec, now_us, op.amount)
                    .map_err(|error| StoreError::new(StoreErrorKind::Permanent, error))?;
                count.map(|count| self.counts.insert(op.key.to_vec(), count));
                Ok(answer)
            }
        }
    }
}

impl<C: Fn() -> u64 + Send + Sync + 'static> MemoryStore<C> {
    /// Returns an empty store. `now_us` returns the time in microseconds.
    pub fn new(now_us: C) -> MemoryStore<C> {
        MemoryStore { now_us, kept: Arc::default(), lanes: Lanes::default() }
    }
}

impl<C> fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl<C: Fn() -> u64 + Send + Sync + 'static> Store for MemoryStore<C> {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failed = None;
        for op in ops {
            match kept.decide(op, (self.now_us)()) {
                Ok(answer) => op.answer = answer,
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn acquire_all(&self, ops: &mut [Op<'_>]) -> Result<Option<usize>, StoreError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // The values of these keys alone.
        let mut tried = Kept::default();
        for op in &*ops {
            kept.buckets.get(op.key).map(|bucket| tried.buckets.insert(op.key.to_vec(), *bucket));
            kept.counts.get(op.key).map(|count| tried.counts.insert(op.key.to_vec(), count.clone()));
        }
        for op in &mut *ops {
            op.answer = tried.decide(op, (self.now_us)())?;
        }
        let refused = settle(ops);
        if refused.is_none() {
            kept.buckets.extend(tried.buckets);
            kept.counts.extend(tried.counts);
        }
        Ok(refused)
    }

    fn lanes(&self) -> Lanes {
        self.lanes.clone()
    }
}

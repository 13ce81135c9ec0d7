//! A store in memory for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tollgate::Clock;
use tollgate_distributed::{Lanes, MemoryStore, Op, Store, StoreError, StoreErrorKind};

type StoreClock = &'static (dyn Fn() -> u64 + Send + Sync);

/// A store that may fail, and counts its calls.
#[derive(Clone)]
pub(in crate::serve) struct TestStore {
    memory: MemoryStore<StoreClock>,
    pub(in crate::serve) calls: Arc<AtomicU64>,
    pub(in crate::serve) fails: Arc<AtomicBool>,
    /// The milliseconds from the effect of a call to its answer.
    pub(in crate::serve) delay_ms: Arc<AtomicU64>,
    lanes: Lanes,
}

impl std::fmt::Debug for TestStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestStore")
    }
}

impl TestStore {
    /// Returns a store whose clock is that of a mock.
    pub(in crate::serve) fn new(clock: &Clock) -> TestStore {
        let clock = clock.clone();
        // The tests of a process are few.
        let now: StoreClock = Box::leak(Box::new(move || clock.unix_time().as_micros() as u64));
        TestStore {
            memory: MemoryStore::new(now),
            calls: Arc::default(),
            fails: Arc::default(),
            delay_ms: Arc::default(),
            lanes: Lanes::default(),
        }
    }

    /// Returns another handle, as that of another process.
    pub(super) fn of_other(&self) -> TestStore {
        TestStore { lanes: Lanes::default(), ..self.clone() }
    }
}

impl Store for TestStore {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        self.calls.fetch_add(1, SeqCst);
        if self.fails.load(SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Refused, "it fails"));
        }
        let acquired = self.memory.acquire(ops).await;
        if let delay @ 1.. = self.delay_ms.load(SeqCst) {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        acquired
    }

    fn lanes(&self) -> Lanes {
        self.lanes.clone()
    }
}

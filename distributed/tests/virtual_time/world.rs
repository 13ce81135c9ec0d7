//! A fleet in virtual time: the limiter itself, a store in memory, and a network that takes time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::{Clock, Quota};
use tollgate_distributed::{
    DistributedBuilder, DistributedLimiter, MemoryStore, Op, Store, StoreError, StoreErrorKind,
};

type Central = MemoryStore<Box<dyn Fn() -> u64 + Send + Sync>>;

/// The server of all processes, and the time.
#[derive(Clone)]
pub struct World {
    central: Arc<Central>,
    begun: Instant,
    pub calls: Arc<AtomicU64>,
    pub ops: Arc<AtomicU64>,
    pub rtt: Duration,
    /// Whether calls are refused, and whether they hang.
    pub down: Arc<AtomicBool>,
    pub hangs: Arc<AtomicBool>,
}

/// A process's way to the store.
#[derive(Clone)]
pub struct Network(World);

impl World {
    pub fn new(rtt: Duration) -> World {
        let begun = Instant::now();
        let now: Box<dyn Fn() -> u64 + Send + Sync> = Box::new(move || 1 << 50 | micros(begun));
        World {
            central: Arc::new(MemoryStore::new(now)),
            begun,
            calls: Arc::default(),
            ops: Arc::default(),
            rtt,
            down: Arc::default(),
            hangs: Arc::default(),
        }
    }

    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns a clock that stands with tokio's.
    pub fn clock(&self) -> Clock {
        let begun = self.begun;
        Clock::from_fn(move || begun.elapsed())
    }

    pub fn process(&self, quota: Quota) -> DistributedBuilder<u64, Network> {
        DistributedLimiter::builder(quota, Network(self.clone())).clock(self.clock())
    }
}

fn micros(begun: Instant) -> u64 {
    begun.elapsed().as_micros() as u64
}

impl Store for Network {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        let World { rtt, down, hangs, calls, ops: keys, .. } = &self.0;
        sleep(*rtt / 2).await;
        while hangs.load(Relaxed) {
            sleep(Duration::from_millis(1)).await;
        }
        if down.load(Relaxed) {
            return Err(StoreError::new(StoreErrorKind::Refused, "it is down"));
        }
        calls.fetch_add(1, Relaxed);
        keys.fetch_add(ops.len() as u64, Relaxed);
        self.0.central.acquire(ops).await?;
        sleep(*rtt / 2).await;
        Ok(())
    }
}

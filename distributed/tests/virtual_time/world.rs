//! A fleet in virtual time: real limiters, a store in memory, and a network with a latency.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tollgate::{Clock, Quota};
use tollgate_distributed::{
    Amount, DistributedBuilder, DistributedLimiter, MemoryStore, Op, Store, StoreError, StoreErrorKind,
};

type Central = MemoryStore<Box<dyn Fn() -> u64 + Send + Sync>>;

/// The server of all processes, and the time.
#[derive(Clone)]
pub(crate) struct World {
    central: Arc<Central>,
    begun: Instant,
    pub(crate) calls: Arc<AtomicU64>,
    pub(crate) ops: Arc<AtomicU64>,
    pub(crate) rtt: Duration,
    /// Whether calls are refused, whether those that write are, and whether calls hang.
    pub(crate) down: Arc<AtomicBool>,
    pub(crate) read_only: Arc<AtomicBool>,
    pub(crate) hangs: Arc<AtomicBool>,
    pub(crate) panics: Arc<AtomicBool>,
    /// Calls for the bucket of probes.
    pub(crate) probes: Arc<AtomicU64>,
}

pub(crate) type Limiter = DistributedLimiter<u64, Network>;

/// A process's way to the store.
#[derive(Clone)]
pub(crate) struct Network(World);

impl World {
    pub(crate) fn new(rtt: Duration) -> World {
        let begun = Instant::now();
        let now: Box<dyn Fn() -> u64 + Send + Sync> = Box::new(move || 1 << 50 | micros(begun));
        World {
            central: Arc::new(MemoryStore::new(now)),
            begun,
            calls: Arc::default(),
            ops: Arc::default(),
            rtt,
            down: Arc::default(),
            read_only: Arc::default(),
            hangs: Arc::default(),
            panics: Arc::default(),
            probes: Arc::default(),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Waits until a second of the world.
    pub(crate) async fn sleep_until(&self, second: f64) {
        sleep_until(self.begun + Duration::from_secs_f64(second)).await;
    }

    /// Returns a clock that follows tokio's paused clock.
    pub(crate) fn clock(&self) -> Clock {
        let begun = self.begun;
        Clock::from_fn(move || begun.elapsed())
    }

    pub(crate) fn process(&self, quota: Quota) -> DistributedBuilder<u64, Network> {
        DistributedLimiter::builder(quota, self.network()).name("fleet").clock(self.clock())
    }

    pub(crate) fn network(&self) -> Network {
        Network(self.clone())
    }
}

fn micros(begun: Instant) -> u64 {
    begun.elapsed().as_micros() as u64
}

impl Store for Network {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        let World { rtt, down, hangs, calls, ops: keys, probes, .. } = &self.0;
        if matches!(ops, [op] if op.key == b":probe") {
            probes.fetch_add(1, Relaxed);
        }
        assert!(!self.0.panics.load(Relaxed), "the store panics");
        let mut known: Vec<&[u8]> = ops.iter().map(|op| op.key).collect();
        known.sort_unstable();
        assert!(known.windows(2).all(|pair| pair[0] != pair[1]), "a call has a key twice");
        sleep(*rtt / 2).await;
        while hangs.load(Relaxed) {
            sleep(Duration::from_millis(1)).await;
        }
        let writes = || ops.iter().any(|op| op.amount != Amount::default());
        if down.load(Relaxed) || self.0.read_only.load(Relaxed) && writes() {
            return Err(StoreError::new(StoreErrorKind::Refused, "it is down"));
        }
        calls.fetch_add(1, Relaxed);
        keys.fetch_add(ops.len() as u64, Relaxed);
        (*self.0.central).acquire(ops).await?;
        sleep(*rtt / 2).await;
        Ok(())
    }
}

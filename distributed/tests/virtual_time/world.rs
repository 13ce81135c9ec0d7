//! A fleet in virtual time: real limiters, a store in memory, and a network with a latency.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tollgate::Clock;
use tollgate_distributed::{
    Amount, DistributedBuilder, DistributedLimiter, Lanes, MemoryStore, Op, SharedRule, Store, StoreAnswer,
    StoreError, StoreErrorKind,
};

use super::granted::{Granted, note, number};

type Central = MemoryStore<Box<dyn Fn() -> u64 + Send + Sync>>;

/// The server of all processes, and the time.
#[derive(Clone)]
pub(crate) struct World {
    central: Arc<Mutex<Arc<Central>>>,
    begun: Instant,
    /// The time at the begin, in microseconds since 1970.
    pub(crate) unix_us: u64,
    /// The calls that were sent, those that were decided, and the keys in them.
    sent: Arc<AtomicU64>,
    pub(crate) calls: Arc<AtomicU64>,
    pub(crate) ops: Arc<AtomicU64>,
    pub(crate) rtt: Duration,
    /// Whether calls are refused, whether those that write are, and whether calls hang.
    pub(crate) down: Arc<AtomicBool>,
    pub(crate) read_only: Arc<AtomicBool>,
    pub(crate) hangs: Arc<AtomicBool>,
    pub(crate) panics: Arc<AtomicBool>,
    /// Whether each third answer is late, and each of a large call, and whether each third is lost.
    pub(crate) late: Arc<AtomicBool>,
    pub(crate) loses: Arc<AtomicBool>,
    /// Whether the calls with [`BAD`] fail, and whether they have no answer.
    pub(crate) bad_fails: Arc<AtomicBool>,
    pub(crate) bad_hangs: Arc<AtomicBool>,
    /// The keys, the seconds and the tokens of late answers.
    pub(crate) were_late: Arc<Mutex<Vec<(u64, f64, u64)>>>,
    pub(crate) windows: Arc<Mutex<Granted>>,
    /// Calls for the bucket of probes.
    pub(crate) probes: Arc<AtomicU64>,
}

/// The key that may be at fault.
pub(crate) const BAD: u64 = 7;

/// The time after which an answer is late: the deadline of a limiter.
const DEADLINE: Duration = Duration::from_millis(50);

pub(crate) type Limiter = DistributedLimiter<u64, Network>;

/// A process's way to the store.
#[derive(Clone)]
pub(crate) struct Network(World, Lanes);

impl World {
    pub(crate) fn new(rtt: Duration) -> World {
        World::at(1 << 50, rtt)
    }

    /// Returns a world that begins at a time, in microseconds since 1970.
    pub(crate) fn at(unix_us: u64, rtt: Duration) -> World {
        let begun = Instant::now();
        World {
            central: Arc::new(Mutex::new(empty(unix_us, begun))),
            begun,
            unix_us,
            sent: Arc::default(),
            calls: Arc::default(),
            ops: Arc::default(),
            rtt,
            down: Arc::default(),
            read_only: Arc::default(),
            hangs: Arc::default(),
            panics: Arc::default(),
            late: Arc::default(),
            loses: Arc::default(),
            bad_fails: Arc::default(),
            bad_hangs: Arc::default(),
            were_late: Arc::default(),
            windows: Arc::default(),
            probes: Arc::default(),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// Restarts the server without its data.
    pub(crate) fn forget(&self) {
        *self.central.lock().unwrap() = empty(self.unix_us, self.begun);
    }

    /// Waits until a second of the world.
    pub(crate) async fn sleep_until(&self, second: f64) {
        sleep_until(self.begun + Duration::from_secs_f64(second)).await;
    }

    /// Returns a clock that follows tokio's paused clock.
    pub(crate) fn clock(&self) -> Clock {
        let (begun, unix) = (self.begun, Duration::from_micros(self.unix_us));
        Clock::from_fn(move || unix + begun.elapsed())
    }

    pub(crate) fn process<R: SharedRule>(&self, rule: R) -> DistributedBuilder<u64, Network, R> {
        DistributedLimiter::builder(rule, self.network()).name("fleet").clock(self.clock())
    }

    pub(crate) fn network(&self) -> Network {
        Network(self.clone(), Lanes::default())
    }
}

fn empty(unix_us: u64, begun: Instant) -> Arc<Central> {
    Arc::new(MemoryStore::new(Box::new(move || unix_us + begun.elapsed().as_micros() as u64)))
}

impl Store for Network {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        self.call(ops, false).await.map(drop)
    }

    async fn acquire_all(&self, ops: &mut [Op<'_>]) -> Result<Option<usize>, StoreError> {
        self.call(ops, true).await
    }

    fn lanes(&self) -> Lanes {
        self.1.clone()
    }
}

impl Network {
    /// Sends calls, and returns the first refusal of calls that are granted together.
    async fn call(&self, ops: &mut [Op<'_>], together: bool) -> Result<Option<usize>, StoreError> {
        let World { rtt, down, hangs, calls, ops: keys, probes, .. } = &self.0;
        let sent = self.0.now();
        if matches!(ops, [op] if op.key == b":probe") {
            probes.fetch_add(1, Relaxed);
        }
        assert!(!self.0.panics.load(Relaxed), "the store panics");
        let mut known: Vec<&[u8]> = ops.iter().map(|op| op.key).collect();
        known.sort_unstable();
        assert!(known.windows(2).all(|pair| pair[0] != pair[1]), "a call has a key twice");
        if ops.iter().any(|op| number(op.key) == Some(BAD)) {
            while self.0.bad_hangs.load(Relaxed) {
                sleep(Duration::from_secs(1)).await;
            }
            if self.0.bad_fails.load(Relaxed) {
                sleep(*rtt).await;
                return Err(StoreError::new(StoreErrorKind::Permanent, "the key holds no bucket"));
            }
        }
        let sent_before = self.0.sent.fetch_add(1, Relaxed);
        let is_third = sent_before % 3 == 2;
        let late = Duration::from_millis(60 + sent_before * 37 % 200);
        let is_large = ops.iter().any(|op| op.amount.max > 20);
        let late = if (is_third || is_large) && self.0.late.load(Relaxed) { late } else { Duration::ZERO };
        sleep((*rtt + late) / 2).await;
        while hangs.load(Relaxed) {
            sleep(Duration::from_millis(1)).await;
        }
        let writes = || ops.iter().any(|op| op.amount != Amount::default());
        if down.load(Relaxed) || self.0.read_only.load(Relaxed) && writes() {
            return Err(StoreError::new(StoreErrorKind::Refused, "it is down"));
        }
        calls.fetch_add(1, Relaxed);
        keys.fetch_add(ops.len() as u64, Relaxed);
        let central = self.0.central.lock().unwrap().clone();
        let refused = match together {
            true => (*central).acquire_all(ops).await?,
            false => (*central).acquire(ops).await.map(|()| None)?,
        };
        note(&self.0.windows, ops);
        if is_third && self.0.loses.load(Relaxed) {
            let silent = [20, 1_000][sent_before as usize / 3 % 2];
            sleep(Duration::from_millis(silent)).await;
            ops.iter_mut().for_each(|op| op.answer = StoreAnswer::default());
            return Err(StoreError::new(StoreErrorKind::Unknown, "the answer is lost"));
        }
        sleep((*rtt + late) / 2).await;
        if self.0.now() - sent > DEADLINE {
            let granted = |op: &Op<'_>| Some((number(op.key)?, u64::try_from(op.answer.granted).ok()?));
            let now = self.0.now().as_secs_f64();
            let granted = ops.iter().filter_map(granted).map(|(key, n)| (key, now, n));
            self.0.were_late.lock().unwrap().extend(granted);
        }
        Ok(refused)
    }
}

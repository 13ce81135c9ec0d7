//! Parts of a store that fail alone, and limiters that share the breakers of a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::{Clock, Quota, Window};
use tollgate_distributed::{
    DistributedBuilder, DistributedLimiter, Lanes, MemoryStore, OnOutage, Op, SharedRule, Source, Store,
    StoreError, StoreErrorKind,
};

const RTT: Duration = Duration::from_millis(2);

/// The number of lanes. That of a key is its remainder.
const LANES: u64 = 3;

/// The health of a lane.
#[derive(Clone, Copy, Debug)]
enum Health {
    Well,
    /// Each call is refused.
    Killed,
    /// No call has an answer.
    Hung,
    /// Each answer takes two fifths of a deadline.
    Slow,
}

/// A store of three lanes. A call with keys of two lanes is as sick as the sicker of them.
#[derive(Clone)]
struct Parts {
    kept: Arc<MemoryStore<Box<dyn Fn() -> u64 + Send + Sync>>>,
    health: Arc<[AtomicU8; LANES as usize]>,
    probes: Arc<AtomicU64>,
    calls: Arc<AtomicU64>,
    begun: Instant,
}

impl Parts {
    fn new() -> Parts {
        let begun = Instant::now();
        let now_us = move || (1 << 50) + begun.elapsed().as_micros() as u64;
        Parts {
            kept: Arc::new(MemoryStore::new(Box::new(now_us))),
            health: Arc::default(),
            probes: Arc::default(),
            calls: Arc::default(),
            begun,
        }
    }

    fn set(&self, lane: usize, health: Health) {
        self.health[lane].store(health as u8, Relaxed);
    }

    fn limiter<R: SharedRule>(&self, rule: R) -> DistributedBuilder<u64, Parts, R> {
        let begun = self.begun;
        let clock = Clock::from_fn(move || Duration::from_micros(1 << 50) + begun.elapsed());
        DistributedLimiter::builder(rule, self.clone()).name("parts").clock(clock)
    }
}

impl Store for Parts {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Relaxed);
        if ops[0].key.starts_with(b":probe") {
            self.probes.fetch_add(1, Relaxed);
        }
        let health = |lane| self.health[lane as usize].load(Relaxed);
        let is_any = |sick: Health| ops.iter().any(|op| health(self.lane(op.key)) == sick as u8);
        sleep(if is_any(Health::Slow) { RTT * 10 } else { RTT }).await;
        while is_any(Health::Hung) {
            sleep(Duration::from_millis(10)).await;
        }
        if is_any(Health::Killed) {
            return Err(StoreError::new(StoreErrorKind::Refused, "it is killed"));
        }
        (*self.kept).acquire(ops).await
    }

    fn lanes(&self) -> Lanes {
        self.kept.lanes()
    }

    fn lane(&self, key: &[u8]) -> u32 {
        let number = key.rsplit(|&byte| byte == b':').next().unwrap();
        let number = number.strip_prefix(b"probe").unwrap_or(number);
        (std::str::from_utf8(number).unwrap().parse::<u64>().unwrap() % LANES) as u32
    }

    fn probe_key(&self, lane: u32) -> Vec<u8> {
        format!(":probe{lane}").into_bytes()
    }
}

/// The requests of a lane, and those that its policy decided.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    requests: u64,
    by_policy: u64,
}

/// Asks for 90 keys in turn, 1,500 a second for two seconds. The middle lane is sick for a second.
/// Returns the requests of each lane, and those of the sick one after it is well again.
async fn beside<R: SharedRule>(rule: R, is_exact: bool, sick: Health) -> ([Asked; 3], Asked) {
    let store = Parts::new();
    let builder = store.limiter(rule).on_outage(OnOutage::Deny);
    let limiter = if is_exact { builder.exact() } else { builder }.build().unwrap();
    let mut requests = JoinSet::new();
    for turn in 0..1_000_u64 {
        match turn {
            100 => store.set(1, sick),
            600 => store.set(1, Health::Well),
            _ => {}
        }
        for lane in 0..LANES {
            let (limiter, key) = (limiter.clone(), LANES * (turn % 30) + lane);
            requests.spawn(async move {
                let source = match limiter.ask(&key).await {
                    Ok(granted) => granted.source(),
                    Err(denied) => denied.source(),
                };
                (lane as usize, turn, source == Source::FailOpen)
            });
        }
        sleep(RTT).await;
    }
    let (mut lanes, mut healed) = ([Asked::default(); 3], Asked::default());
    for (lane, turn, by_policy) in requests.join_all().await {
        lanes[lane].requests += 1;
        lanes[lane].by_policy += u64::from(by_policy);
        if lane == 1 && turn >= 900 {
            healed.requests += 1;
            healed.by_policy += u64::from(by_policy);
        }
    }
    (lanes, healed)
}

/// A lane that is killed, hangs or is slow takes nothing from the keys of the others. Its own keys
/// have the policy, and the store again when it answers.
#[tokio::test(start_paused = true)]
async fn a_sick_lane_is_that_of_its_keys_alone() {
    for sick in [Health::Killed, Health::Hung, Health::Slow] {
        let exact = beside(Quota::per_second(1_000), true, sick).await;
        let leased = beside(Window::per_minute(10_000).utc(), false, sick).await;
        for ([first, own, last], healed) in [exact, leased] {
            assert_eq!([first.requests, own.requests, last.requests], [1_000; 3]);
            assert_eq!(first.by_policy + last.by_policy, 0, "{sick:?}: {first:?}, {last:?}");
            let is_away = !matches!(sick, Health::Slow);
            assert_eq!(own.by_policy > 400, is_away, "{sick:?}: {own:?}");
            assert_eq!((healed.requests, healed.by_policy), (100, 0), "{sick:?}");
        }
    }
}

/// A thousand limiters on one handle send the probes of one.
#[tokio::test(start_paused = true)]
async fn limiters_on_one_handle_share_its_probes() {
    for sick in [Health::Killed, Health::Hung] {
        let store = Parts::new();
        let name = |of: usize| store.limiter(Quota::per_second(1_000)).name(format!("limiter {of}"));
        let limiters: Vec<_> = (0..1_000).map(|of| name(of).exact().build().unwrap()).collect();
        store.set(1, sick);
        let mut requests = JoinSet::new();
        for limiter in limiters.clone() {
            requests.spawn(async move { limiter.ask(&1).await.map(|granted| granted.source()) });
        }
        let sources = requests.join_all().await;
        assert!(sources.iter().all(|source| *source == Ok(Source::Fallback)), "{sick:?}");
        let (before, calls) = (store.probes.load(Relaxed), store.calls.load(Relaxed));
        sleep(Duration::from_secs(20)).await;
        let since = store.probes.load(Relaxed) - before;
        assert!((30..=200).contains(&since), "{sick:?}: {since} probes in 20 s");
        assert_eq!(store.calls.load(Relaxed) - calls, since, "{sick:?}: nothing but probes");
        // All know that it answers again.
        store.set(1, Health::Well);
        sleep(Duration::from_secs(1)).await;
        for limiter in &limiters {
            assert_eq!(limiter.ask(&1).await.unwrap().source(), Source::Store, "{sick:?}");
        }
        assert_eq!(limiters[0].stats().breaker_opened, 1);
    }
}

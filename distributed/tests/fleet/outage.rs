//! A server is frozen or killed under load: no request waits longer than the deadline, the policy
//! holds, and the limiter recovers after the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::Quota;
use tollgate_distributed::{AnyStore, DistributedLimiter, OnOutage, Source};
use tollgate_test_servers::any::{AnyServer, Engine};

use crate::Failure;

type Limiter = DistributedLimiter<u64, AnyStore>;

const QUOTA: Quota = Quota::per_second(1_000);
const SHARE: f64 = 0.5;
const DEADLINE: Duration = Duration::from_millis(50);
const KEY: u64 = 7;

/// The load on a limiter, and its longest request.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    granted: AtomicU64,
    by_fallback: AtomicU64,
    longest: AtomicU64,
}

async fn ask(limiter: Limiter, load: Arc<Load>) {
    while !load.stop.load(Relaxed) {
        let begun = Instant::now();
        let decision = limiter.ask(&KEY).await;
        load.longest.fetch_max(begun.elapsed().as_micros() as u64, Relaxed);
        if let Ok(granted) = &decision {
            load.granted.fetch_add(1, Relaxed);
            load.by_fallback.fetch_add(u64::from(granted.source() == Source::Fallback), Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
}

/// Waits until a condition holds, and returns the time that it took.
pub(crate) async fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> Result<Duration, Failure> {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > limit {
            return Err(format!("it did not hold within {limit:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(begun.elapsed())
}

/// A key of Redis that holds no bucket fails its own requests, and those of no other key.
#[cfg(feature = "redis")]
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn one_bad_key() -> Result<(), Failure> {
    if !tollgate_test_servers::redis::redis_is_installed() {
        return Ok(());
    }
    let server = tollgate_test_servers::redis::Redis::start(&[])?;
    let store = AnyStore::open(&server.url())?;
    // No request is late on a machine that is busy with other tests.
    let deadline = Duration::from_secs(10);
    let limiter: Limiter = DistributedLimiter::builder(QUOTA, store)
        .name("fleet")
        .exact()
        .deadline(deadline)
        .on_outage(OnOutage::Deny)
        .build()?;
    limiter.ask(&KEY).await?;
    let spoil = "for _, key in ipairs(redis.call('KEYS', '*7')) do redis.call('SET', key, 'hello') end";
    server.command(&["EVAL", spoil, "0"])?;
    for turn in 0..200 {
        let bad = async || limiter.ask(&KEY).await.map_err(|denied| denied.source());
        let good = async |key| limiter.ask(&key).await.map(|granted| granted.source());
        let (bad, one, two) = tokio::join!(bad(), good(10 * turn), good(10 * turn + 1));
        assert_eq!((bad, one?, two?), (Err(Source::FailOpen), Source::Store, Source::Store), "{turn}");
    }
    assert_eq!(limiter.stats().breaker_opened, 0, "{:?}", limiter.stats());
    Ok(())
}

/// Two servers of Redis behind one address. The first one becomes a replica under load, and keeps
/// its connections: it answers `READONLY` on them, and new connections lead to the second one.
#[cfg(feature = "redis")]
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn a_server_is_demoted(is_exact: bool) -> Result<(), Failure> {
    use tollgate_test_servers::net::Proxy;
    use tollgate_test_servers::redis::{Pair, redis_is_installed};

    if !redis_is_installed() {
        return Ok(());
    }
    let pair = Pair::start(&[])?;
    let network = Proxy::start(pair.primary.port()).await?;
    let store = AnyStore::open(&format!("redis://127.0.0.1:{}", network.port()))?;
    // A refusal by the policy grants nothing, so that all grants are those of the store.
    let builder = DistributedLimiter::builder(QUOTA, store).name("fleet").on_outage(OnOutage::Deny);
    let limiter: Limiter = if is_exact { builder.exact() } else { builder }.build()?;
    let load = Arc::new(Load::default());
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for _ in 0..16 {
        tasks.spawn(ask(limiter.clone(), load.clone()));
    }
    let granted = |more| load.granted.load(Relaxed) >= more;
    // The burst is used up.
    until(Duration::from_secs(20), || granted(1_200)).await?;
    let connections = network.accepted();
    // A demoted server drops the grants that the replica lacks: there are none.
    pair.pause()?;
    network.switch(pair.replica.port());
    pair.primary.command(&["REPLICAOF", "127.0.0.1", &pair.replica.port().to_string()])?;
    pair.promote()?;
    pair.primary.command(&["CLIENT", "UNPAUSE"])?;
    let demoted = Instant::now();
    until(Duration::from_secs(20), || network.accepted() > connections).await?;
    let connected = demoted.elapsed();
    let before = load.granted.load(Relaxed);
    // More than another burst: a replica that had no bucket would grant it at once.
    until(Duration::from_secs(20), || !limiter.stats().breaker_open && granted(before + 1_200)).await?;
    load.stop.store(true, Relaxed);
    while let Some(task) = tasks.join_next().await {
        task?;
    }
    let (all, length, stats) = (load.granted.load(Relaxed), begun.elapsed(), limiter.stats());
    println!("exact {is_exact}: a new connection in {connected:?}, {all} granted in {length:?}, {stats:?}");
    let most = 1_000.0 * (1.0 + length.as_secs_f64());
    assert!((all as f64) <= most, "{all} of {most}: {stats:?}");
    // One answer is enough to leave the first server, and no connection follows another.
    assert!(network.accepted() <= connections + 2, "{} connections", network.accepted());
    assert!(stats.breaker_opened <= 2 && stats.calls_permanent == 0, "{stats:?}");
    // The longest time between two probes.
    Ok(())
}

/// The kinds of an outage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Frozen,
    Killed,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn run(engine: Engine, kind: Kind) -> Result<(), Failure> {
    let Some(mut server) = engine.start()? else { return Ok(()) };
    let store = AnyStore::open(&server.url())?;
    store.migrate().await?;
    let limiter: Limiter = DistributedLimiter::builder(QUOTA, store)
        .name("fleet")
        .deadline(DEADLINE)
        .on_outage(OnOutage::Local { share: SHARE })
        .build()?;
    until(Duration::from_secs(10), || {
        limiter.stats().calls_answered > 0 || limiter.try_acquire_local(&KEY).is_ok()
    })
    .await?;
    let load = Arc::new(Load::default());
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        tasks.spawn(ask(limiter.clone(), load.clone()));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    load.longest.store(0, Relaxed);
    // A store that is slow at first may miss a deadline.
    load.by_fallback.store(0, Relaxed);
    let begun = Instant::now();
    kind.begin(&mut server)?;
    until(Duration::from_secs(5), || limiter.stats().breaker_open).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (longest, length) = (Duration::from_micros(load.longest.load(Relaxed)), begun.elapsed());
    let fallen_back = load.by_fallback.load(Relaxed);
    kind.end(&mut server)?;
    let healed = until(Duration::from_secs(5), || !limiter.stats().breaker_open).await?;
    let calls = limiter.stats().calls_answered;
    until(Duration::from_secs(5), || limiter.stats().calls_answered > calls).await?;
    load.stop.store(true, Relaxed);
    while let Some(task) = tasks.join_next().await {
        task?;
    }
    println!(
        "{engine:?}, {kind:?}: longest {longest:?}, healed in {healed:?}, {fallen_back} by the share in {length:?}"
    );
    // The share of the burst, if it was full, and of the rate.
    let most = SHARE * 1_000.0 * (1.0 + length.as_secs_f64()) * 1.05;
    assert!(fallen_back > 100 && (fallen_back as f64) < most, "{fallen_back} by the share, of {most}");
    // A server that has just been started may fail calls after it answered a probe.
    assert!((1..=3).contains(&limiter.stats().breaker_opened), "{:?}", limiter.stats());
    // A machine that is busy with other tests is late.
    let late = Duration::from_secs(5);
    assert!(longest < DEADLINE + late, "a request took {longest:?}");
    assert!(healed < Duration::from_secs(1) + late, "it healed in {healed:?}");
    Ok(())
}

impl Kind {
    fn begin(self, server: &mut AnyServer) -> Result<(), Failure> {
        match self {
            Kind::Frozen => server.process().freeze()?,
            Kind::Killed => server.process().kill(),
        }
        Ok(())
    }

    fn end(self, server: &mut AnyServer) -> Result<(), Failure> {
        match self {
            Kind::Frozen => server.process().thaw()?,
            Kind::Killed => server.restart()?,
        }
        Ok(())
    }
}

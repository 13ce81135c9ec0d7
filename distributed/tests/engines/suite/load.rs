//! One key under load from several connections: no token is lost, and none is made.

use std::iter::repeat_with;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::Quota;
use tollgate_distributed::{Op, Spec, Store, StoreAnswer, StoreError, StoreErrorKind};

use crate::engine::{Engine, Options, PATIENT, Server, ask, exactly, load_time};

/// The calls of a run.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    /// The answers that granted tokens.
    pub(crate) grants: Vec<StoreAnswer>,
}

impl Run {
    pub(crate) fn add(&mut self, run: Run) {
        self.calls += run.calls;
        self.failed += run.failed;
        self.grants.extend(run.grants);
    }

    pub(crate) fn granted(&self) -> i64 {
        self.grants.iter().map(|answer| answer.granted).sum()
    }
}

/// The quota of a key under load: one token every 2 ms. Its bucket is not full again between two
/// calls, nor within 2 s after the last one.
pub(crate) fn contended() -> Spec {
    Spec::new(Quota::per_second(500).burst(1_000), 0).unwrap()
}

/// Takes half of the burst of a missing key, so that its bucket is not full again before the load
/// begins.
pub(crate) async fn begin(store: &impl Store, key: &[u8]) -> Run {
    let half = contended().quota().capacity() as i64 / 2;
    let answer = ask(store, key, contended(), exactly(half)).await;
    assert_eq!(answer.granted, half);
    Run { calls: 1, failed: 0, grants: vec![answer] }
}

/// Takes tokens of one key by `tasks` tasks on each store.
pub(crate) async fn load<S: Store>(
    stores: &[Arc<S>],
    tasks: usize,
    key: &'static [u8],
    time: Duration,
) -> Run {
    let mut set = JoinSet::new();
    let end = Instant::now() + time;
    for store in stores.iter().flat_map(|store| std::iter::repeat_n(store, tasks)) {
        set.spawn(take_until(Arc::clone(store), key, end));
    }
    let mut run = Run::default();
    set.join_all().await.into_iter().for_each(|part| run.add(part));
    run
}

/// Decides calls. SQLite gives no turns: a call may wait for its whole second while others have the
/// lock, takes nothing, and is sent once more. A deadlock fails at once.
pub(crate) async fn decide<S: Store>(store: &S, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
    loop {
        let begun = Instant::now();
        match store.acquire(ops).await {
            Err(error)
                if error.kind() == StoreErrorKind::Refused
                    && error.to_string().contains("database is locked")
                    && begun.elapsed() >= Duration::from_secs(1) => {}
            decided => return decided,
        }
    }
}

async fn take_until<S: Store>(store: Arc<S>, key: &[u8], end: Instant) -> Run {
    let mut run = Run::default();
    while Instant::now() < end {
        let mut ops = [Op::new(key, contended(), exactly(1))];
        run.calls += 1;
        match decide(&*store, &mut ops).await {
            Ok(()) if ops[0].answer.granted > 0 => run.grants.push(ops[0].answer),
            Ok(()) => {}
            Err(_) => {
                run.failed += 1;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
    run
}

/// Returns the tokens that the bucket of a run earned from its first grant to a look, and those
/// that it still has, in credits.
async fn earned(store: &impl Store, key: &[u8], run: &Run) -> (i64, i64) {
    let spec = contended();
    let first = run.grants.iter().map(|answer| answer.now_us).min().expect("no call was granted");
    let look = ask(store, key, spec, exactly(0)).await;
    let earned = ((look.now_us - first) * spec.per_tick()) as i64;
    (spec.capacity() as i64 + earned, look.credits)
}

/// The granted tokens and those left are the burst and the earned ones.
pub(crate) async fn no_token_is_lost_or_made(store: &impl Store, key: &[u8], run: &Run) {
    let (earned, left) = earned(store, key, run).await;
    assert_eq!(run.granted() * contended().per_token() as i64 + left, earned, "{} calls", run.calls);
}

/// At most the burst and the earned tokens were granted. Failed calls may have taken some.
pub(crate) async fn no_token_is_made(store: &impl Store, key: &[u8], run: &Run) {
    let (earned, left) = earned(store, key, run).await;
    assert!(run.granted() * contended().per_token() as i64 + left <= earned, "{} calls", run.calls);
}

/// Sends batches on the same keys by all stores, every second of them in the opposite order.
/// Returns the number of batches, and the errors of those that failed.
pub(crate) async fn batches<S: Store>(
    stores: Vec<Arc<S>>,
    keys: &[String],
    time: Duration,
) -> (u64, Vec<StoreError>) {
    let (mut set, end) = (JoinSet::new(), Instant::now() + time);
    for (index, store) in stores.into_iter().enumerate() {
        let mut keys = keys.to_vec();
        if index % 2 == 0 {
            keys.reverse();
        }
        set.spawn(batches_until(store, keys, end));
    }
    let (sent, failed): (Vec<u64>, Vec<_>) = set.join_all().await.into_iter().unzip();
    (sent.into_iter().sum(), failed.into_iter().flatten().collect())
}

async fn batches_until<S: Store>(store: Arc<S>, keys: Vec<String>, end: Instant) -> (u64, Vec<StoreError>) {
    let spec = Spec::new(Quota::per_second(1_000_000).burst(1_000_000), 0).unwrap();
    let (mut sent, mut failed) = (0, Vec::new());
    while sent < 3 || Instant::now() < end {
        let mut ops: Vec<_> = keys.iter().map(|key| Op::new(key.as_bytes(), spec, exactly(1))).collect();
        sent += 1;
        failed.extend(decide(&*store, &mut ops).await.err());
    }
    (sent, failed)
}

/// Returns stores with connections of their own.
pub(crate) fn stores<E: Engine>(engine: &E, count: usize, options: Options) -> Vec<Arc<E::Store>> {
    repeat_with(|| Arc::new(engine.connect(options))).take(count).collect()
}

pub(crate) async fn no_token_is_lost_or_made_under_load(engine: impl Engine) {
    let mut run = begin(engine.store(), b"hot").await;
    run.add(load(&stores(&engine, 4, PATIENT), 64, b"hot", load_time(2)).await);
    assert_eq!(run.failed, 0);
    assert!(run.calls > 100, "{} calls", run.calls);
    no_token_is_lost_or_made(engine.store(), b"hot", &run).await;
    println!("{} calls, {} granted", run.calls, run.granted());
}

pub(crate) async fn batches_in_opposite_orders_do_not_deadlock(mut engine: impl Engine) {
    let keys: Vec<String> = (0..64).map(|key| format!("key {key}")).collect();
    let stores = stores(&engine, 8, Options { connections: 1, ..PATIENT });
    let (sent, failed) = batches(stores, &keys, load_time(2)).await;
    println!("{sent} batches");
    assert!(failed.is_empty(), "of {sent} batches: {failed:?}");
    assert_eq!((engine.deadlocks().await, engine.rows().await.len()), (0, 64));
}

pub(crate) async fn ended_sessions_make_no_token_and_heal(mut engine: impl Server) {
    let stores = stores(&engine, 4, PATIENT);
    let mut run = begin(engine.store(), b"hot").await;
    let time = load_time(2).max(Duration::from_secs(3));
    let end = Instant::now() + time;
    let killer = async {
        let mut ended = 0;
        while Instant::now() + Duration::from_millis(700) < end {
            tokio::time::sleep(Duration::from_millis(500)).await;
            ended += engine.end_sessions().await;
        }
        ended
    };
    let (load, ended) = tokio::join!(load(&stores, 16, b"hot", time), killer);
    run.add(load);
    assert!(ended >= 8 && run.failed > 0, "{ended} sessions were ended, {} calls failed", run.failed);
    for store in &stores {
        ask(&**store, b"cold", contended(), exactly(1)).await;
    }
    no_token_is_made(&engine.connect(PATIENT), b"hot", &run).await;
    println!("{} calls, {} failed, {} granted", run.calls, run.failed, run.granted());
}

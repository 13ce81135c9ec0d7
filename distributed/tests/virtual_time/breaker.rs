//! The errors and the silence of a store, of one key, and of a limiter that has ended.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, timeout};
use tollgate::{Quota, Reason};
use tollgate_distributed::{
    DistributedLimiter, DistributedStats, OnOutage, Op, Source, Store, StoreAnswer, StoreError,
    StoreErrorKind,
};

use crate::world::{BAD, World};

const RTT: Duration = Duration::from_millis(2);
const QUOTA: Quota = Quota::per_second(1_000);

/// Asks for a bad key each millisecond for two seconds, and for `good` others at times. Returns the
/// requests of the good keys, and those that the store decided.
async fn beside(fault: impl Fn(&World), good: u64, every: u64) -> (u64, u64, DistributedStats) {
    let world = World::new(RTT);
    fault(&world);
    let limiter = world.process(QUOTA).exact().on_outage(OnOutage::Deny).build().unwrap();
    let (mut asked, mut by_store, mut requests) = (0, 0, tokio::task::JoinSet::new());
    for millis in 0..2_000 {
        let bad = limiter.clone();
        requests.spawn(async move { (BAD, bad.ask(&BAD).await.ok().map(|granted| granted.source())) });
        for key in (0..good).filter(|_| millis % every == 0) {
            let limiter = limiter.clone();
            let key = 10 * (key + millis);
            requests
                .spawn(async move { (key, limiter.ask(&key).await.ok().map(|granted| granted.source())) });
        }
        sleep(Duration::from_millis(1)).await;
    }
    for (key, source) in requests.join_all().await {
        assert!(key != BAD || source.is_none(), "the bad key has a grant: {source:?}");
        asked += u64::from(key != BAD);
        by_store += u64::from(key != BAD && matches!(source, Some(Source::Store)));
    }
    (asked, by_store, limiter.stats())
}

/// A call that fails for one key is no failure of the store, and the other keys of the call have
/// their tokens.
#[tokio::test(start_paused = true)]
async fn an_error_of_a_key_is_that_of_no_other_key() {
    let (asked, by_store, stats) = beside(|world| world.bad_fails.store(true, Relaxed), 20, 20).await;
    assert_eq!((asked, by_store, stats.breaker_opened), (2_000, 2_000, 0), "{stats:?}");
}

/// A call without an answer is one failure, however many requests of its key come meanwhile.
#[tokio::test(start_paused = true)]
async fn a_slow_call_is_one_failure() {
    let (asked, by_store, stats) = beside(|world| world.bad_hangs.store(true, Relaxed), 1, 250).await;
    assert_eq!(stats.breaker_opened, 0, "{stats:?}");
    // The first request shares the call of the bad key.
    assert!(asked == 8 && by_store >= 7, "{by_store} of {asked}");
}

/// An error of all keys opens the breaker, by its probes.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_all_keys_is_away() {
    struct Failing;
    impl Store for Failing {
        async fn acquire(&self, _: &mut [Op<'_>]) -> Result<(), StoreError> {
            Err(StoreError::new(StoreErrorKind::Permanent, "no such table"))
        }
    }
    let world = World::new(RTT);
    let builder = DistributedLimiter::<u64, _>::builder(QUOTA, Failing).name("failing").clock(world.clock());
    let limiter = builder.exact().on_outage(OnOutage::Deny).build().unwrap();
    while !limiter.stats().breaker_open {
        assert_eq!(limiter.ask(&1).await.unwrap_err().reason(), Reason::Unavailable);
        sleep(Duration::from_millis(1)).await;
        assert!(world.now() < Duration::from_millis(500), "{:?}", limiter.stats());
    }
}

/// A request that waits for tokens ends with the limiter, and a later one does not wait.
#[tokio::test(start_paused = true)]
async fn a_closed_limiter_lets_no_request_wait() {
    for policy in [OnOutage::Deny, OnOutage::Local { share: 1.0 }] {
        let world = World::new(RTT);
        let limiter = world.process(Quota::per_hour(1)).exact().on_outage(policy).build().unwrap();
        limiter.ask(&7).await.unwrap();
        let waits = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.acquire(&7).await }
        });
        sleep(Duration::from_secs(5)).await;
        limiter.shutdown().await;
        let closed = world.now();
        let ends = async || (waits.await.unwrap().is_err(), limiter.acquire(&7).await.is_err());
        let ended = timeout(Duration::from_secs(1), ends()).await;
        assert_eq!(ended, Ok((true, true)), "{policy:?}");
        assert_eq!(world.now(), closed, "{policy:?}");
    }
}

/// A limiter whose runtime has ended decides by its policy, without a wait.
#[test]
fn a_limiter_without_its_runtime_does_not_wait() {
    let new =
        || -> Runtime { Builder::new_current_thread().enable_time().start_paused(true).build().unwrap() };
    let first = new();
    let limiter = first.block_on(async {
        let world = World::new(RTT);
        let limiter = world.process(QUOTA).exact().on_outage(OnOutage::Deny).build().unwrap();
        limiter.ask(&7).await.unwrap();
        limiter
    });
    // A call is in the queue of the task when its runtime ends.
    let _ = limiter.try_acquire_local(&8);
    drop(first);
    new().block_on(async {
        let begun = Instant::now();
        for key in [7, 8, 9] {
            let denied = limiter.ask(&key).await.unwrap_err();
            assert_eq!((denied.reason(), denied.source()), (Reason::Unavailable, Source::FailOpen));
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(limiter.stats().breaker_open);
        assert!(limiter.acquire(&7).await.is_err());
    });
}

/// Requests in the queue of a background task end with its runtime, without a wait.
#[test]
fn a_queued_request_does_not_outlive_the_runtime_of_its_limiter() {
    let new =
        || -> Runtime { Builder::new_current_thread().enable_time().start_paused(true).build().unwrap() };
    let first = new();
    let limiter = first.block_on(async {
        let world = World::new(RTT);
        world.process(QUOTA).exact().max_keys(1).on_outage(OnOutage::Deny).build().unwrap()
    });
    new().block_on(async {
        // The second key has no room.
        let requests = [7, 8].map(|key| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.ask(&key).await })
        });
        tokio::task::yield_now().await;
        first.shutdown_background();
        let begun = Instant::now();
        for request in requests {
            let denied = request.await.unwrap().unwrap_err();
            assert_eq!((denied.reason(), denied.source()), (Reason::Unavailable, Source::FailOpen));
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
    });
}

/// An answer that takes more than half of the deadline leaves no time for a request that waits for
/// another call first. Such requests are counted, and none is with a faster store.
#[tokio::test(start_paused = true)]
async fn requests_of_a_store_that_is_too_slow_are_counted() {
    for (rtt, is_slow) in [(20, false), (40, true)] {
        let world = World::new(Duration::from_millis(rtt));
        let limiter = world.process(QUOTA).exact().on_outage(OnOutage::Deny).build().unwrap();
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..400 {
            let limiter = limiter.clone();
            requests.spawn(async move { limiter.ask(&7).await.is_ok() });
            sleep(Duration::from_millis(7)).await;
        }
        let granted = requests.join_all().await.into_iter().filter(|granted| *granted).count() as u64;
        let stats = limiter.stats();
        assert_eq!((stats.calls_late, stats.breaker_opened), (0, 0));
        assert_eq!((stats.overdue, stats.overdue > 100), (stats.by_policy, is_slow), "{rtt} ms: {stats:?}");
        assert_eq!(granted + stats.overdue, 400, "{rtt} ms");
    }
}

/// Calls that hang give their places back at the deadline, and the next call is sent at once.
#[tokio::test(start_paused = true)]
async fn calls_that_hang_hold_up_a_later_one_until_their_deadline() {
    struct Hanging;
    impl Store for Hanging {
        async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
            let hangs =
                |op: &Op<'_>| matches!(op.key, b"hanging:0" | b"hanging:1" | b"hanging:2" | b"hanging:3");
            if ops.iter().any(hangs) {
                std::future::pending::<()>().await;
            }
            let now_us = 1 << 50;
            ops.iter_mut()
                .for_each(|op| op.answer = StoreAnswer { granted: op.amount.max, now_us, ..op.answer });
            Ok(())
        }
    }
    let world = World::new(RTT);
    let builder = DistributedLimiter::<u64, _>::builder(QUOTA, Hanging).name("hanging").clock(world.clock());
    let limiter = builder.exact().on_outage(OnOutage::Deny).build().unwrap();
    let ask = async |key: u64| limiter.ask(&key).await.map(|granted| granted.source()).ok();
    let later = async |key: u64| {
        sleep(Duration::from_millis(5 * key)).await;
        ask(key).await
    };
    let sources = tokio::join!(later(0), later(1), later(2), later(3), later(4));
    assert_eq!(sources, (None, None, None, None, Some(Source::Store)));
    assert!(world.now() < Duration::from_millis(70), "{:?}", world.now());
}

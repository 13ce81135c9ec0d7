//! Each verb, over a store that answers.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::{Quota, Reason};
use tollgate_distributed::{DistributedLimiter, InvalidOption, OnOutage, Source, all_of, ask_all_of};

use crate::world::{Limiter, World};

const RTT: Duration = Duration::from_millis(2);
const QUOTA: Quota = Quota::per_second(10).burst(5);

fn world() -> World {
    World::new(RTT)
}

fn exact(world: &World, quota: Quota) -> Limiter {
    world.process(quota).exact().build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn processes_share_a_bucket() {
    let world = world();
    let (one, two) = (exact(&world, QUOTA), exact(&world, QUOTA));
    for (turn, limiter) in [&one, &two, &one, &two, &one].into_iter().enumerate() {
        let granted = limiter.ask(&7).await.unwrap();
        assert_eq!((granted.source(), granted.remaining()), (Source::Store, 4 - turn as u64));
    }
    let denied = two.ask(&7).await.unwrap_err();
    assert_eq!((denied.reason(), denied.source()), (Reason::Empty, Source::Store));
    // Other keys have buckets of their own.
    assert!(two.ask(&8).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_the_token_is_there() {
    let world = world();
    let limiter = exact(&world, QUOTA);
    limiter.key(&7).n(5).ask().await.unwrap();
    let denied = limiter.ask(&7).await.unwrap_err();
    let wait = denied.retry_after().unwrap();
    assert!(wait > Duration::from_millis(90) && wait <= Duration::from_millis(100), "{wait:?}");
    sleep(wait - RTT * 2).await;
    assert!(limiter.ask(&7).await.is_err());
    sleep(RTT * 2).await;
    assert!(limiter.ask(&7).await.is_ok());
}

/// A key without tokens costs a call a second, whatever its demand is.
#[tokio::test(start_paused = true)]
async fn a_refused_key_costs_no_calls() {
    let world = world();
    let limiter = exact(&world, Quota::per_minute(1));
    limiter.ask(&7).await.unwrap();
    let before = world.calls.load(Relaxed);
    for _ in 0..10_000 {
        let denied = limiter.ask(&7).await.unwrap_err();
        assert!(denied.retry_after() <= Some(Duration::from_secs(60)));
        sleep(Duration::from_micros(1_000)).await;
    }
    let calls = world.calls.load(Relaxed) - before;
    assert!((5..=20).contains(&calls), "{calls} calls in ten seconds");
    // More tokens than the bucket has, but fewer than the burst: refused as well, without a call.
    let large = exact(&world, QUOTA);
    large.key(&1).n(3).ask().await.unwrap();
    let before = world.calls.load(Relaxed);
    assert_eq!(large.key(&1).n(4).ask().await.unwrap_err().source(), Source::Shadow);
    assert_eq!(world.calls.load(Relaxed), before);
    assert!(large.key(&1).n(2).ask().await.is_ok());
}

/// Requests that come during a call are answered by it.
#[tokio::test(start_paused = true)]
async fn a_refused_key_costs_a_call_a_second_without_a_wait() {
    let world = world();
    let limiter = exact(&world, Quota::per_minute(1));
    limiter.ask(&7).await.unwrap();
    let before = world.calls.load(Relaxed);
    for _ in 0..10_000 {
        assert!(limiter.try_acquire_local(&7).is_err());
        sleep(Duration::from_millis(1)).await;
    }
    let calls = world.calls.load(Relaxed) - before;
    assert!((5..=10).contains(&calls), "{calls} calls in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_wait_succeeds_a_round_trip_later() {
    let world = world();
    let limiter = exact(&world, QUOTA);
    let denied = limiter.try_acquire_local(&7).unwrap_err();
    assert_eq!((denied.reason(), denied.source()), (Reason::Empty, Source::Lease));
    sleep(RTT * 2).await;
    let granted = limiter.try_acquire_local(&7).unwrap();
    assert_eq!((granted.source(), granted.remaining()), (Source::Lease, 4));
    assert_eq!(limiter.key(&7).n(6).try_acquire_local().unwrap_err().reason(), Reason::TooMany);
}

#[tokio::test(start_paused = true)]
async fn waiting_verbs_wait_for_tokens() {
    let world = world();
    let limiter = exact(&world, QUOTA);
    limiter.key(&7).n(5).within(Duration::MAX).acquire().await.unwrap();
    let before = world.now();
    limiter.key(&7).n(3).within(Duration::MAX).acquire().await.unwrap();
    let waited = world.now() - before;
    assert!((290..320).contains(&waited.as_millis()), "{waited:?}");
    let denied = limiter.key(&7).within(Duration::from_millis(50)).acquire().await.unwrap_err();
    // The token is there in 100 ms, and the round trip has taken some of them.
    let later = denied.retry_after().unwrap().as_millis();
    assert!(denied.reason() == Reason::Deadline && (30..=50).contains(&later), "{denied}");
    assert!(world.now() - before - waited < RTT * 2, "it is refused at once");
    assert!(limiter.key(&7).within(Duration::from_millis(120)).acquire().await.is_ok());
    let denied = limiter.key(&7).n(6).within(Duration::MAX).acquire().await.unwrap_err();
    assert_eq!(denied.reason(), Reason::TooMany);
}

#[tokio::test(start_paused = true)]
async fn refunds_serve_the_next_request_or_go_back() {
    let world = world();
    let one = world.process(Quota::per_hour(5)).build().unwrap();
    let two = exact(&world, Quota::per_hour(5));
    one.key(&7).n(5).ask().await.unwrap();
    one.refund(&7, 3);
    assert_eq!(one.key(&7).ask().await.unwrap().source(), Source::Lease);
    assert!(two.ask(&7).await.is_err());
    // Two tokens are left, and go back after a second without a request.
    sleep(Duration::from_secs(3)).await;
    assert_eq!(two.peek(&7).await.unwrap().remaining(), 2);
    assert_eq!(one.stats().tokens_returned, 2);
    assert!(two.key(&7).n(2).ask().await.is_ok());
    assert_eq!(one.stats().keys, 0, "an idle key without tokens is forgotten");
}

#[tokio::test(start_paused = true)]
async fn all_or_none() {
    let world = world();
    let (user, tenant) = (exact(&world, QUOTA), world.process(QUOTA).name("tenant").exact().build().unwrap());
    let limits = [user.request(&1, 1), tenant.request(&9, 3)];
    assert_eq!(ask_all_of(&limits).await.unwrap().unwrap().remaining(), 2);
    let denied = ask_all_of(&limits).await.unwrap_err();
    assert_eq!((denied.which(), denied.denied().reason()), (1, Reason::Empty));
    // The user's token is back in the store.
    assert_eq!(ask_all_of(&limits[..1]).await.unwrap().unwrap().source(), Source::Store);
    assert_eq!(user.key(&1).n(3).ask().await.unwrap().remaining(), 0);
    assert_eq!(all_of(&[]).unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn plans_and_another_quota() {
    let world = world();
    let limiter = exact(&world, QUOTA);
    let large = limiter.plan(Quota::per_second(10).burst(100)).unwrap();
    assert_eq!(limiter.key(&1).n(60).under(&large).ask().await.unwrap().remaining(), 40);
    assert_eq!(limiter.ask(&2).await.unwrap().remaining(), 4);
    // A key that leaves its plan keeps the tokens that fit.
    assert_eq!(limiter.key(&1).n(41).try_acquire_local().unwrap_err().reason(), Reason::TooMany);
    limiter.set_rule(Quota::per_second(1).burst(3)).unwrap();
    assert_eq!(limiter.ask(&2).await.unwrap().remaining(), 2);
    assert_eq!(limiter.rule(), Quota::per_second(1).burst(3));
    let period = Duration::from_nanos(86_399_999_999_999);
    let uneven = Quota::per(999_999_937, period).burst(1 << 40);
    let error = limiter.set_rule(uneven).unwrap_err().to_string();
    assert!(error.contains("999999937/86399999999999ns") && error.contains("9007199254740991"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_local_limit_in_front() {
    let world = world();
    let limiter = world.process(QUOTA).exact().local_first(Quota::per_second(1).burst(2)).build().unwrap();
    assert!(limiter.ask(&7).await.is_ok() && limiter.ask(&7).await.is_ok());
    let before = world.calls.load(Relaxed);
    let denied = limiter.ask(&7).await.unwrap_err();
    assert_eq!(denied.source(), Source::Local);
    assert_eq!(world.calls.load(Relaxed), before, "the store was not asked");
    assert_eq!(limiter.stats().by_local, 1);
}

/// Requests of one process for one key share calls.
#[tokio::test(start_paused = true)]
async fn requests_at_once_share_a_call() {
    let world = world();
    let limiter = exact(&world, Quota::per_second(1_000));
    let requests = (0..200).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.ask(&7).await.is_ok() })
    });
    for request in requests.collect::<Vec<_>>() {
        assert!(request.await.unwrap());
    }
    assert!(world.calls.load(Relaxed) <= 3, "{} calls", world.calls.load(Relaxed));
    assert_eq!(limiter.peek(&7).await.unwrap().remaining(), 802);
}

/// Some keys at once share a call as well.
#[tokio::test(start_paused = true)]
async fn keys_at_once_share_a_call() {
    let world = world();
    let limiter = exact(&world, QUOTA);
    let requests = (0..256).map(|key| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.ask(&key).await.is_ok() })
    });
    for request in requests.collect::<Vec<_>>() {
        assert!(request.await.unwrap());
    }
    assert!(world.calls.load(Relaxed) <= 8, "{} calls", world.calls.load(Relaxed));
}

/// Keys wait while all calls are under way, and the background task sleeps meanwhile: else virtual
/// time would stand still.
#[test]
fn more_keys_than_calls_at_a_time() {
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let limiter = exact(&world(), QUOTA);
            let requests = (0..2_000).map(|key| {
                let limiter = limiter.clone();
                async move { limiter.ask(&key).await.is_ok() }
            });
            let granted = JoinSet::from_iter(requests).join_all().await;
            ended.send(granted.iter().all(|granted| *granted)).unwrap();
        });
    });
    let granted = end.recv_timeout(Duration::from_secs(60)).expect("the requests are decided");
    assert!(granted);
}

/// The tokens of silent keys go back after the requests of other keys are decided.
#[tokio::test(start_paused = true)]
async fn requests_go_before_tokens_that_go_back() {
    const SILENT: u64 = 20_000;
    let world = World::new(RTT);
    let limiter = world.process(Quota::per_second(1_000)).build().unwrap();
    for key in 0..SILENT {
        limiter.refund(&key, 1);
    }
    world.sleep_until(0.9).await;
    let mut key = SILENT;
    while limiter.stats().tokens_returned < SILENT {
        let granted = limiter.ask(&key).await.unwrap();
        assert_eq!(granted.source(), Source::Store, "key {key} at {:?}", world.now());
        key += 1;
    }
    let returned = world.now();
    assert!(returned > Duration::from_millis(1_050), "{returned:?}: the requests were not beside the tokens");
    assert_eq!(limiter.stats().by_fallback, 0);
}

/// A request that ends before its answer gives the tokens back.
#[tokio::test(start_paused = true)]
async fn a_dropped_request_loses_no_token() {
    let world = world();
    let limiter = exact(&world, Quota::per_hour(3));
    let request = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.key(&7).n(3).ask().await }
    });
    sleep(RTT / 2).await;
    request.abort();
    sleep(RTT).await;
    assert_eq!(limiter.key(&7).n(3).ask().await.unwrap().source(), Source::Store);
}

/// A key beyond `max_keys` is decided by a call for each request, and is not kept.
#[tokio::test(start_paused = true)]
async fn keys_without_room_are_decided_by_calls() {
    let world = world();
    let limiter = world.process(QUOTA).max_keys(4).build().unwrap();
    for key in 0..100 {
        assert!(limiter.ask(&key).await.is_ok());
    }
    for _ in 0..4 {
        assert!(limiter.ask(&99).await.is_ok());
    }
    assert!(limiter.ask(&99).await.is_err());
    let stats = limiter.stats();
    assert!(stats.keys <= 4 && stats.without_room == 101, "{stats:?}");
    // Without a call no token is taken that no request would find.
    for _ in 0..20 {
        assert_eq!(limiter.try_acquire_local(&200).unwrap_err().reason(), Reason::Full);
        sleep(RTT * 2).await;
    }
    assert_eq!(limiter.ask(&200).await.unwrap().remaining(), QUOTA.capacity() - 1);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_returns_the_tokens() {
    let world = world();
    let quota = Quota::per_second(1_000);
    let limiter = world.process(quota).build().unwrap();
    for request in 0..500 {
        let _ = limiter.ask(&(request % 10)).await;
        sleep(Duration::from_millis(1)).await;
    }
    let held = limiter.stats();
    let unused = held.tokens_granted - held.tokens_used;
    assert!(unused > 10, "{held:?}");
    limiter.shutdown().await;
    let stats = limiter.stats();
    let back = stats.tokens_returned - held.tokens_returned;
    assert!(back * 100 >= unused * 95, "{back} of {unused} came back: {held:?}\n{stats:?}");
}

/// A drop of the last handle does the same.
#[tokio::test(start_paused = true)]
async fn a_dropped_limiter_returns_the_tokens() {
    let world = world();
    let limiter = world.process(Quota::per_hour(100)).exact().build().unwrap();
    limiter.key(&7).n(60).ask().await.unwrap();
    limiter.refund(&7, 50);
    drop(limiter);
    sleep(Duration::from_secs(1)).await;
    let other = exact(&world, Quota::per_hour(100));
    assert_eq!(other.peek(&7).await.unwrap().remaining(), 90);
}

/// A limiter without a name would share the buckets of each other one on its store.
#[tokio::test(start_paused = true)]
async fn limiters_share_buckets_only_by_a_name() {
    let world = world();
    let built = DistributedLimiter::<u64, _>::builder(QUOTA, world.network()).build();
    assert_eq!(
        built.unwrap_err().to_string(),
        "a limiter needs a name: limiters of one name on one store share their buckets"
    );
    let limits = ["users", "tenants", "users"];
    let limits = limits.map(|name| world.process(Quota::per_hour(5)).name(name).exact().build().unwrap());
    let mut granted = [0; 3];
    for (limit, granted) in limits.iter().zip(&mut granted) {
        for _ in 0..9 {
            *granted += u64::from(limit.ask(&7).await.is_ok());
        }
    }
    assert_eq!(granted, [5, 5, 0]);
}

#[tokio::test(start_paused = true)]
async fn options_out_of_bounds_are_errors() {
    let world = world();
    let error = |error: Result<Limiter, InvalidOption>| error.unwrap_err().to_string();
    assert_eq!(
        error(world.process(QUOTA).name("a:b").build()),
        "the name \"a:b\" is not of 1 to 64 bytes without a \":\""
    );
    assert_eq!(
        error(world.process(QUOTA).on_outage(OnOutage::Local { share: 0.0 }).build()),
        "a share of 0 is not above 0 and at most 1"
    );
    assert_eq!(
        error(world.process(QUOTA).leased(Duration::from_millis(1)).build()),
        "a horizon of 1ms is not between 10ms and 1s"
    );
    // No leases are another option.
    assert_eq!(
        error(world.process(QUOTA).leased(Duration::ZERO).build()),
        "a horizon of 0ns is not between 10ms and 1s"
    );
    assert_eq!(
        error(world.process(QUOTA).deadline(Duration::ZERO).build()),
        "a deadline of 0ns is not between 1ms and 10s"
    );
}

#[test]
fn a_limiter_needs_a_runtime() {
    let quota = QUOTA;
    let store = tollgate_distributed::MemoryStore::new(|| 0);
    let built = DistributedLimiter::<u64, _>::builder(quota, store).name("none").build();
    assert!(matches!(built, Err(InvalidOption::NoRuntime)));
}

/// Each decision is in one series of decisions, each call in one of calls, and each token in one.
#[tokio::test(start_paused = true)]
async fn the_series_add_up() {
    let world = world();
    let limiter = world.process(Quota::per_second(100)).build().unwrap();
    let mut decided = 0;
    for request in 0..2_000 {
        let _ = limiter.ask(&(request % 3)).await;
        decided += 1;
        if request % 7 == 0 {
            let _ = limiter.try_acquire_local(&(request % 5));
            decided += 1;
        }
        sleep(Duration::from_micros(300)).await;
    }
    sleep(Duration::from_secs(3)).await;
    let series = limiter.stats().series();
    let sum = |name| -> u64 { series.iter().filter(|of| of.0 == name).map(|of| of.2).sum() };
    assert_eq!(sum("tollgate_shared_decisions_total"), decided);
    assert_eq!(sum("tollgate_store_calls_total"), world.calls.load(Relaxed));
    assert_eq!(sum("tollgate_store_keys_total"), world.ops.load(Relaxed));
    let tokens = |end| series.iter().find(|of| of.1 == Some(("end", end))).unwrap().2;
    assert_eq!(tokens("granted"), tokens("used") + tokens("returned"), "{series:?}");
    assert_eq!(sum("tollgate_shared_keys"), 0);
}

/// A request of fewer tokens is granted after a larger one was refused, and beside it.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_many_tokens_is_none_of_a_few() {
    let world = world();
    let limiter = exact(&world, Quota::per_hour(10));
    limiter.key(&7).n(6).ask().await.unwrap();
    assert_eq!(limiter.key(&7).n(5).ask().await.unwrap_err().remaining(), 0);
    // In one call as well, of a process that does not know the level.
    let other = exact(&world, Quota::per_hour(10));
    other.key(&7).ask().await.unwrap();
    limiter.key(&7).ask().await.unwrap();
    let (large, small) = tokio::join!(other.key(&7).n(3).ask(), other.key(&7).n(2).ask());
    assert_eq!((large.unwrap_err().reason(), small.unwrap().remaining()), (Reason::Empty, 0));
    assert!(limiter.key(&7).n(2).ask().await.is_err());
    // Each size has its own wait.
    let waits = [limiter.key(&7).ask().await, limiter.key(&7).n(2).ask().await];
    let waits = waits.map(|denied| denied.unwrap_err().retry_after().unwrap().as_secs());
    assert!((350..=360).contains(&waits[0]) && (710..=720).contains(&waits[1]), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_charge_takes_the_tokens_at_hand_and_then_those_of_the_store_on_credit() {
    let world = world();
    let (here, there) = (exact(&world, Quota::per_hour(10)), exact(&world, Quota::per_hour(10)));
    assert_eq!(here.known(&7).remaining(), 10, "of a key that was not seen");
    here.key(&7).n(4).ask().await.unwrap();
    here.refund(&7, 2);
    assert_eq!(here.known(&7).remaining(), 8);
    here.charge(&7, 1);
    assert_eq!(here.known(&7).remaining(), 7);
    here.charge(&7, 3);
    assert_eq!(here.known(&7).remaining(), 4);
    sleep(RTT * 2).await;
    assert_eq!((here.known(&7).remaining(), there.peek(&7).await.unwrap().remaining()), (4, 4));
    here.charge(&7, 100);
    sleep(RTT * 2).await;
    // A burst of debt is the most.
    let wait = there.ask(&7).await.unwrap_err().retry_after().unwrap();
    assert!((3_950..=3_960).contains(&wait.as_secs()), "{wait:?}");
}

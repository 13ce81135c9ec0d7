//! Several limits of one request, in one round trip.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::{Quota, Reason, Window};
use tollgate_distributed::{
    DistributedBuilder, DistributedLimiter, DistributedStats, OnOutage, Request, Source, Sourced, ask_all_of,
};

use crate::world::{Network, World};

const RTT: Duration = Duration::from_millis(2);

/// The limits of a process: a bucket, a day, and a sliding hour, on one handle of the store.
#[derive(Clone)]
struct Limits {
    bucket: DistributedLimiter<u64, Network>,
    day: DistributedLimiter<u64, Network, Window>,
    hour: DistributedLimiter<u64, Network, Window>,
}

const QUOTA: Quota = Quota::per_second(100).burst(20);

impl Limits {
    fn new(world: &World, is_exact: bool, policy: OnOutage) -> Limits {
        let network = world.network();
        let limits = [Window::per_day(5_000).utc(), Window::per_hour(1_000).sliding()];
        let [day, hour] = limits.map(|window| {
            let name = if window.sub_window().is_some() { "hour" } else { "day" };
            let builder = DistributedLimiter::<u64, _>::builder(window, network.clone());
            common(builder, world, is_exact, policy).name(name).build().unwrap()
        });
        let builder = DistributedLimiter::<u64, _>::builder(QUOTA, network);
        Limits { bucket: common(builder, world, is_exact, policy).name("bucket").build().unwrap(), day, hour }
    }

    fn requests(&self, n: u64) -> [Request; 3] {
        [self.bucket.request(&1, n), self.day.request(&2, n), self.hour.request(&1, n)]
    }

    /// Returns the tokens that are left in the store.
    async fn left(&self) -> [u64; 3] {
        let [bucket, day, hour] =
            [self.bucket.peek(&1).await, self.day.peek(&2).await, self.hour.peek(&1).await];
        [bucket, day, hour].map(|look| look.unwrap().remaining())
    }

    fn stats(&self) -> [DistributedStats; 3] {
        [self.bucket.stats(), self.day.stats(), self.hour.stats()]
    }
}

fn common<R: tollgate_distributed::SharedRule>(
    builder: DistributedBuilder<u64, Network, R>,
    world: &World,
    is_exact: bool,
    policy: OnOutage,
) -> DistributedBuilder<u64, Network, R> {
    let builder = builder.clock(world.clock()).on_outage(policy);
    if is_exact { builder.exact() } else { builder }
}

/// Three limits are one call of three keys. Tokens at hand cost none.
#[tokio::test(start_paused = true)]
async fn three_limits_are_one_round_trip() {
    let world = World::new(RTT);
    let limits = Limits::new(&world, true, OnOutage::Deny);
    let granted = ask_all_of(&limits.requests(3)).await.unwrap().unwrap();
    assert_eq!((granted.remaining(), granted.source()), (17, Source::Store));
    assert_eq!((world.calls.load(Relaxed), world.ops.load(Relaxed), world.now()), (1, 3, RTT));
    assert_eq!(limits.left().await[1..], [4_997, 997]);
    // One token of the bucket is at hand, and the store is asked for the other one.
    assert!(limits.bucket.try_acquire_local(&1).is_err());
    sleep(RTT * 2).await;
    let before = world.calls.load(Relaxed);
    ask_all_of(&limits.requests(2)).await.unwrap();
    assert_eq!(world.calls.load(Relaxed) - before, 1);
    assert_eq!(limits.left().await[1..], [4_995, 995]);
    assert_eq!(limits.stats().map(|stats| stats.tokens_granted), [3 + 1 + 1, 5, 5]);
}

/// A refusal of one limit takes nothing of the others, and names the limit and its wait.
#[tokio::test(start_paused = true)]
async fn a_refusal_leaves_all_limits_as_they_were() {
    for is_exact in [true, false] {
        let world = World::new(RTT);
        let limits = Limits::new(&world, is_exact, OnOutage::Deny);
        let other = Limits::new(&world, true, OnOutage::Deny);
        // Another process takes nearly all of the day.
        other.day.key(&2).n(other.left().await[1] - 2).ask().await.unwrap();
        sleep(Duration::from_secs(1)).await;
        let before = other.left().await;
        let denied = ask_all_of(&limits.requests(3)).await.unwrap_err();
        assert_eq!((denied.which(), denied.denied().reason()), (1, Reason::Empty));
        assert!(denied.denied().retry_after() > Some(Duration::from_secs(60)), "{denied}");
        // A lease of one token may be on its way.
        let taken = before[1] - other.left().await[1];
        assert!(taken <= u64::from(!is_exact), "{taken} taken, exact: {is_exact}");
        assert_eq!([other.left().await[0], other.left().await[2]], [before[0], before[2]]);
        // Known without a call.
        let calls = world.calls.load(Relaxed);
        assert_eq!(ask_all_of(&limits.requests(3)).await.unwrap_err().which(), 1);
        assert_eq!(world.calls.load(Relaxed), calls);
        ask_all_of(&limits.requests(2)).await.unwrap();
        sleep(Duration::from_secs(2)).await;
        assert_eq!(other.left().await[1], 0, "exact: {is_exact}");
    }
}

/// A future that is dropped before or at its answer gives all tokens back.
#[tokio::test(start_paused = true)]
async fn a_dropped_request_of_several_limits_loses_no_token() {
    let world = World::new(RTT);
    let limits = Limits::new(&world, true, OnOutage::Deny);
    for half_trips in [0, 1, 2, 3] {
        let requests = limits.requests(5);
        let request = tokio::spawn(async move { ask_all_of(&requests).await });
        sleep(RTT / 2 * half_trips).await;
        request.abort();
        let was_granted = request.await.is_ok_and(|granted| granted.is_ok());
        sleep(Duration::from_secs(1)).await;
        let taken = if was_granted { 5 } else { 0 };
        assert_eq!(limits.left().await, [20, 5_000 - taken, 1_000 - taken], "{half_trips}");
        limits.day.refund(&2, taken);
        limits.hour.refund(&1, taken);
        sleep(Duration::from_secs(1)).await;
    }
}

/// A failure of the store.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Failure {
    None,
    Late,
    Lost,
    Outage,
}

/// Requests of two processes beside each failure and a plan: the bucket keeps its bound, and the
/// store counts each granted request once, but for lost answers.
#[tokio::test(start_paused = true)]
async fn failures_leak_no_token_of_several_limits() {
    for failure in [Failure::None, Failure::Late, Failure::Lost, Failure::Outage] {
        for is_exact in [true, false] {
            let world = World::new(RTT);
            let processes = [0; 2].map(|_| Limits::new(&world, is_exact, OnOutage::Deny));
            world.late.store(failure == Failure::Late, Relaxed);
            world.loses.store(failure == Failure::Lost, Relaxed);
            let plan = processes[1].bucket.plan(Quota::per_second(50).burst(20)).unwrap();
            let (mut requests, mut by_plan) = (JoinSet::new(), 0);
            for turn in 0..1_500_u64 {
                world.down.store(failure == Failure::Outage && (300..800).contains(&turn), Relaxed);
                let limits = processes[turn as usize % 2].requests(1);
                requests.spawn(async move {
                    ask_all_of(&limits).await.map(|granted| granted.map(Sourced::into_inner))
                });
                if turn % 100 == 99 {
                    by_plan += u64::from(processes[1].bucket.key(&1).under(&plan).ask().await.is_ok());
                }
                sleep(Duration::from_millis(4)).await;
            }
            let seconds = world.now().as_secs_f64();
            let granted = requests.join_all().await.into_iter().filter(Result::is_ok).count() as u64;
            world.late.store(false, Relaxed);
            world.loses.store(false, Relaxed);
            sleep(Duration::from_secs(8)).await;
            let [_, day, hour] = processes[0].left().await;
            let what = format!(
                "{failure:?}, exact: {is_exact}, {granted} granted, {:?}",
                [5_000 - day, 1_000 - hour]
            );
            println!("{what}");
            let lost: u64 = processes.iter().flat_map(Limits::stats).map(|stats| stats.tokens_lost).sum();
            for counted in [5_000 - day, 1_000 - hour] {
                assert!((granted..=granted + lost).contains(&counted), "{what}, {lost} lost");
            }
            assert_eq!(lost > 0, failure == Failure::Lost, "{what}");
            // Leases and late answers may hold tokens of a second from before.
            let slack = if is_exact && failure == Failure::None { 0.0 } else { 120.0 };
            let most = 20.0 + 100.0 * seconds + 1.0 + slack;
            assert!((granted + by_plan) as f64 <= most, "{what}, at most {most}");
            assert!(granted > 150, "{what}");
        }
    }
}

/// The tokens of outages are charged by the calls behind the joint ones.
#[tokio::test(start_paused = true)]
async fn outages_of_several_limits_forgive_no_debt() {
    let world = World::new(RTT);
    let limits = Limits::new(&world, true, OnOutage::Local { share: 1.0 });
    let (mut granted, mut without) = (0, 0);
    for turn in 0..4_000_u64 {
        world.down.store(turn % 500 >= 300, Relaxed);
        if let Ok(Some(last)) = ask_all_of(&limits.requests(1)).await {
            granted += 1;
            without += u64::from(last.source() == Source::Fallback);
        }
        sleep(RTT).await;
    }
    let most = 20.0 + 100.0 * world.now().as_secs_f64();
    println!("{granted} granted, {without} of them in outages, at most {most}");
    // Tokens that were never charged would be missing in each later outage.
    assert!(without > 300, "{without} in outages");
    // A bucket is in debt for a burst at most, and a call is under way at the begin of an outage.
    assert!((granted as f64) <= most + 20.0, "{granted} granted, at most {most}");
    assert!((granted as f64) > most * 0.6, "{granted} granted, at most {most}");
}

/// A late answer of a window that is over neither grants nor goes back into the next one.
#[tokio::test(start_paused = true)]
async fn an_edge_between_a_call_and_its_answer_gives_no_token_twice() {
    let day_us = 86_400_000_000;
    for (before_us, is_late) in [(1_500, false), (100_000, true)] {
        // The store decides before the edge, and its answer is there after it.
        let world = World::at((1 << 50) / day_us * day_us + day_us - before_us, RTT);
        world.late.store(is_late, Relaxed);
        let limits = Limits::new(&world, true, OnOutage::Deny);
        // Each third answer is late.
        for _ in 0..if is_late { 2 } else { 0 } {
            limits.bucket.ask(&9).await.unwrap();
        }
        let granted = ask_all_of(&limits.requests(5)).await;
        assert_eq!(granted.is_ok(), !is_late, "{granted:?}");
        world.late.store(false, Relaxed);
        sleep(Duration::from_secs(2)).await;
        let [_, day, hour] = limits.left().await;
        assert_eq!(day, 5_000, "late: {is_late}");
        // A sub-window of the hour is over, too: its tokens come back later.
        assert_eq!(hour, 995, "late: {is_late}");
    }
}

// promise: layer
//! Several limits of one request over one store: one round trip, all or none.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Quota, RateLimiter, Window};
use tollgate_distributed::{DistributedLimiter, OnOutage, SharedRule};
use tollgate_http::{LimitBy, RateLimitLayer};

use super::serving::{by_number, call, of, status};
use crate::world::{Limiter, Network, World};

const RTT: Duration = Duration::from_millis(2);

/// The limits of a process on one handle of the store.
struct Limits {
    second: Limiter,
    hour: Limiter,
    day: DistributedLimiter<u64, Network, Window>,
}

fn exact<R: SharedRule>(world: &World, store: &Network, rule: R) -> DistributedLimiter<u64, Network, R> {
    let builder = DistributedLimiter::<u64, _>::builder(rule, store.clone()).clock(world.clock());
    builder.name(rule.into().to_string()).on_outage(OnOutage::Deny).exact().build().unwrap()
}

impl Limits {
    fn new(world: &World) -> Limits {
        let store = world.network();
        Limits {
            second: exact(world, &store, Quota::per_second(10)),
            hour: exact(world, &store, Quota::per_hour(4)),
            day: exact(world, &store, Window::per_day(100).utc()),
        }
    }

    /// Returns the tokens that are left in the store.
    async fn left(&self) -> [u64; 3] {
        let (second, hour, day) =
            (self.second.peek(&1).await, self.hour.peek(&1).await, self.day.peek(&1).await);
        [second, hour, day].map(|look| look.unwrap().remaining())
    }

    fn layer(&self, hour: LimitBy<u64>) -> RateLimitLayer<u64> {
        RateLimitLayer::builder(self.second.clone())
            .key(by_number())
            .and(hour)
            .and(LimitBy::new(self.day.clone()).key(by_number()))
            .build()
    }
}

fn by<R: SharedRule>(limiter: &DistributedLimiter<u64, Network, R>) -> LimitBy<u64> {
    LimitBy::new(limiter.clone()).key(by_number())
}

#[tokio::test(start_paused = true)]
async fn three_limits_of_a_request_are_one_call() {
    let world = World::new(RTT);
    let limits = Limits::new(&world);
    let layer = limits.layer(by(&limits.hour));
    let calls = || [world.calls.load(Relaxed), world.ops.load(Relaxed)];
    let response = call(&layer, of(1, "/")).await;
    assert_eq!((response.status().as_u16(), calls(), world.now()), (200, [1, 3], RTT));
    // The limit with the fewest tokens left decides.
    assert!(response.headers()["ratelimit"].to_str().unwrap().contains(";r=3;"), "{response:?}");
    // Another process has the rest of the hour.
    Limits::new(&world).hour.key(&1).n(3).ask().await.unwrap();
    let there = limits.left().await;
    let before = calls();
    // The second refusal is known for a second, and no call.
    assert_eq!([status(&layer, of(1, "/")).await, status(&layer, of(1, "/")).await], [429, 429]);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(calls(), [before[0] + 1, before[1] + 3], "nothing was taken that goes back");
    assert_eq!(limits.left().await[1..], there[1..]);
    assert_eq!((layer.stats().granted, layer.stats().refused), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn tokens_at_hand_are_no_call() {
    let world = World::new(RTT);
    let store = world.network();
    let leased = |rule: Quota, name: &str| {
        let builder = DistributedLimiter::<u64, _>::builder(rule, store.clone()).clock(world.clock());
        builder.name(name).build().unwrap()
    };
    let quota = Quota::per_second(100_000);
    let limiters = ["one", "two", "three"].map(|name| leased(quota, name));
    let [one, two, three] = limiters.each_ref();
    let layer = RateLimitLayer::builder(one.clone()).key(by_number()).and(by(two)).and(by(three)).build();
    for _ in 0..1_000 {
        assert_eq!(status(&layer, of(1, "/")).await, 200);
        sleep(Duration::from_micros(500)).await;
    }
    let calls = world.calls.load(Relaxed);
    let before = world.now();
    for _ in 0..10 {
        assert_eq!(status(&layer, of(1, "/")).await, 200);
    }
    assert_eq!((world.now(), world.calls.load(Relaxed)), (before, calls));
    assert!(calls < 100, "{calls} calls for 1,000 requests");
}

#[tokio::test(start_paused = true)]
async fn the_plan_of_a_limit_decides_in_the_one_call() {
    let world = World::new(RTT);
    let limits = Limits::new(&world);
    let gold = limits.hour.plan(Quota::per_hour(40)).unwrap();
    let hour = by(&limits.hour);
    let layer = limits.layer(hour.plan(move |head| (head.uri.path() == "/202").then(|| gold.clone())));
    for n in 0..8 {
        assert_eq!(status(&layer, of(1, "/202")).await, 202, "{n}");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!((world.calls.load(Relaxed), world.ops.load(Relaxed)), (8, 24));
    // One bucket under both: it keeps at most the burst of the lesser quota.
    let statuses = [status(&layer, of(1, "/201")).await, status(&layer, of(2, "/201")).await];
    assert_eq!(statuses, [201, 201]);
    assert_eq!(limits.left().await[1], 3);
}

/// A limit in shadow mode decides alone, and one of this process after the store: its refusal gives
/// back.
#[tokio::test(start_paused = true)]
async fn limits_that_refuse_by_themselves_take_nothing_of_the_others() {
    let world = World::new(RTT);
    let limits = Limits::new(&world);
    limits.hour.key(&1).n(4).ask().await.unwrap();
    let local = LimitBy::new(RateLimiter::new(Quota::per_hour(1))).key(by_number());
    let layer = RateLimitLayer::builder(limits.second.clone())
        .key(by_number())
        .and(by(&limits.hour).enforce(0))
        .and(by(&limits.day))
        .and(local)
        .build();
    let before = world.ops.load(Relaxed);
    assert_eq!(status(&layer, of(1, "/")).await, 200);
    assert_eq!(world.ops.load(Relaxed) - before, 2, "the hour is known to be used up");
    assert_eq!(status(&layer, of(1, "/")).await, 429);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(limits.left().await[2], 99);
    assert_eq!(layer.stats().limits[1].shadow_refused, 1);
}

/// Without an answer the policy of each limit decides, and no token is granted twice.
#[tokio::test(start_paused = true)]
async fn the_policies_decide_without_an_answer() {
    let world = World::new(RTT);
    let limits = Limits::new(&world);
    let layer = limits.layer(by(&limits.hour));
    world.hangs.store(true, Relaxed);
    assert_eq!(status(&layer, of(1, "/")).await, 503);
    assert_eq!(world.now(), Duration::from_millis(50), "one deadline");
    world.hangs.store(false, Relaxed);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(limits.left().await, [10, 4, 100]);
    assert_eq!(status(&layer, of(1, "/")).await, 200);
}

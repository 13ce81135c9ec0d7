//! The state of a key while its quota, its plan, its requests or its store change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::sleep;
use tollgate::Quota;
use tollgate_distributed::{DistributedLimiter, OnOutage, Op, Store, StoreError, StoreErrorKind};

use crate::outage::{granted, heal, open};
use crate::world::{Limiter, Network, World};

const RTT: Duration = Duration::from_millis(2);

fn with_share(world: &World, quota: Quota, share: f64) -> Limiter {
    world.process(quota).exact().on_outage(OnOutage::Local { share }).build().unwrap()
}

/// Asks for a token of a key under two plans in turn. Returns the grants.
async fn in_turns(limiter: &Limiter, key: u64, requests: u64) -> u64 {
    let plans = [10, 11].map(|tokens| limiter.plan(Quota::per_hour(tokens)).unwrap());
    let mut granted = 0;
    for request in 0..requests {
        granted += u64::from(limiter.key(&key).under(&plans[request as usize % 2]).ask().await.is_ok());
    }
    granted
}

/// A client that changes its plan with each request has no more than under one plan.
#[tokio::test(start_paused = true)]
async fn two_plans_of_a_key_are_one_limit_in_an_outage() {
    let world = World::new(RTT);
    let limiter = with_share(&world, Quota::per_hour(10), 1.0);
    limiter.key(&7).n(10).ask().await.unwrap();
    world.down.store(true, Relaxed);
    open(&world, &limiter).await;
    assert_eq!(in_turns(&limiter, 7, 1_000).await, 0);
    // A key that this process has not seen: the larger burst.
    let granted = in_turns(&limiter, 8, 1_000).await;
    assert!((10..=11).contains(&granted), "{granted} granted");
    // The part of a token that is earned outlives a change, too.
    sleep(Duration::from_secs(3_600)).await;
    let granted = in_turns(&limiter, 8, 1_000).await;
    assert!((10..=11).contains(&granted), "{granted} granted");
    // All are charged, though half of them were granted under each plan.
    heal(&world, &limiter).await;
    sleep(Duration::from_secs(3)).await;
    let full = limiter.peek(&8).await.unwrap().reset_after();
    assert!(full > Duration::from_secs(6_800), "nearly a burst of debt: {full:?}");
}

/// The last refusal of a key holds under its next plan, too.
#[tokio::test(start_paused = true)]
async fn a_change_of_plan_costs_no_call_for_a_refused_key() {
    let world = World::new(RTT);
    let limiter = with_share(&world, Quota::per_hour(10), 1.0);
    limiter.key(&7).n(10).ask().await.unwrap();
    let before = world.calls.load(Relaxed);
    assert_eq!(in_turns(&limiter, 7, 1_000).await, 0);
    let calls = world.calls.load(Relaxed) - before;
    assert!(calls <= 1, "{calls} calls for 1,000 refused requests at one moment");
}

/// Other keys do not wait for a client that changes its plan with each of many requests.
#[tokio::test(start_paused = true)]
async fn a_key_with_many_plans_is_not_in_the_way_of_others() {
    let world = World::new(RTT);
    let limiter = world.process(LAW).exact().on_outage(OnOutage::Deny).build().unwrap();
    let plans = [100, 80].map(|rate| limiter.plan(Quota::per_second(rate)).unwrap());
    let flood: Vec<_> = (0..1_000)
        .map(|request| {
            let (limiter, plan) = (limiter.clone(), plans[request % 2].clone());
            tokio::spawn(async move { limiter.key(&7).under(&plan).ask().await })
        })
        .collect();
    let asking = |key| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.ask(&key).await })
    };
    let others: Vec<_> = (8..28).map(asking).collect();
    for other in others {
        other.await.unwrap().unwrap();
    }
    assert!(world.now() <= RTT * 5, "after {:?}", world.now());
    for request in flood {
        let _ = request.await.unwrap();
    }
}

/// Tokens that come back right before a limiter is shut down reach the store, of however many keys.
#[tokio::test(start_paused = true)]
async fn a_shutdown_gives_back_the_tokens_of_all_keys() {
    let world = World::new(RTT);
    let limiter = world.process(LAW).exact().build().unwrap();
    for key in 0..200 {
        limiter.key(&key).n(3).ask().await.unwrap();
    }
    (0..200).for_each(|key| limiter.refund(&key, 2));
    limiter.shutdown().await;
    assert_eq!(limiter.stats().tokens_returned, 400);
}

/// A plan that a key has left takes no lease: no request would find its tokens.
#[tokio::test(start_paused = true)]
async fn a_plan_that_a_key_has_left_takes_no_lease() {
    let world = World::new(RTT);
    let limiter = world.process(LAW).build().unwrap();
    let plans = [100, 80].map(|rate| limiter.plan(Quota::per_second(rate)).unwrap());
    for request in 0..1_000 {
        let _ = limiter.key(&7).n(1 + request % 3).under(&plans[request as usize % 2]).ask().await;
        sleep(Duration::from_millis(5)).await;
    }
    sleep(Duration::from_secs(3)).await;
    let stats = limiter.stats();
    assert_eq!(stats.tokens_granted, stats.tokens_used + stats.tokens_returned, "{stats:?}");
    assert!(stats.tokens_used >= 480, "the lesser plan earns 400, beside the burst: {stats:?}");
}

/// A reload of the quota in an outage neither fills a bucket nor forgets a debt.
#[tokio::test(start_paused = true)]
async fn another_quota_in_an_outage_fills_no_bucket_and_forgets_no_debt() {
    let world = World::new(RTT);
    let builder = world.process(Quota::per_hour(10)).exact().max_keys(2);
    let limiter = builder.on_outage(OnOutage::Local { share: 1.0 }).build().unwrap();
    limiter.key(&7).n(10).ask().await.unwrap();
    world.down.store(true, Relaxed);
    open(&world, &limiter).await;
    limiter.charge(&7, 10);
    assert_eq!(granted(&limiter, 8).await, 10, "keys beyond `max_keys` share a bucket");
    for _ in 0..10 {
        limiter.set_rule(Quota::per_hour(10)).unwrap();
        assert_eq!((granted(&limiter, 7).await, granted(&limiter, 9).await), (0, 0));
    }
    heal(&world, &limiter).await;
    sleep(Duration::from_secs(3)).await;
    let full = limiter.peek(&7).await.unwrap().reset_after();
    assert!(full > Duration::from_secs(7_190), "a burst of debt, and a burst: {full:?}");
}

/// A key that was silent begins an outage with the tokens that it can have, and not with a burst.
#[tokio::test(start_paused = true)]
async fn a_silent_key_begins_an_outage_with_the_tokens_that_it_can_have() {
    let world = World::new(RTT);
    let limiter = with_share(&world, Quota::per_hour(3_600).burst(100), 0.5);
    limiter.key(&7).n(100).ask().await.unwrap();
    limiter.key(&8).n(60).ask().await.unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(limiter.stats().keys, 0, "idle keys hold nothing");
    world.down.store(true, Relaxed);
    open(&world, &limiter).await;
    assert_eq!((granted(&limiter, 7).await, granted(&limiter, 8).await), (5, 25));
}

/// Processes that have not seen a key have the burst together: none knows what another one took.
#[tokio::test(start_paused = true)]
async fn shares_of_an_unknown_key_are_a_burst_together() {
    let world = World::new(RTT);
    let limiters: [Limiter; 4] = std::array::from_fn(|_| with_share(&world, Quota::per_hour(1_000), 0.25));
    limiters[0].key(&7).n(1_000).ask().await.unwrap();
    world.down.store(true, Relaxed);
    let mut by_fleet = Vec::new();
    for limiter in &limiters {
        open(&world, limiter).await;
        by_fleet.push(granted(limiter, 7).await);
    }
    assert_eq!(by_fleet, [0, 250, 250, 250]);
}

/// The law of the exact mode: a quota of 100 a second, and a burst of 100.
const LAW: Quota = Quota::per_second(100);

/// Tokens of a late answer do not wait here while the bucket refills.
#[tokio::test(start_paused = true)]
async fn a_late_answer_adds_no_burst() {
    let world = World::new(RTT);
    let limiter = world.process(LAW).exact().on_outage(OnOutage::Deny).build().unwrap();
    world.hangs.store(true, Relaxed);
    limiter.key(&7).n(100).ask().await.unwrap_err();
    sleep(Duration::from_millis(150)).await;
    world.hangs.store(false, Relaxed);
    sleep(Duration::from_millis(700)).await;
    let begun = world.now();
    let granted = granted(&limiter, 7).await;
    let law = 100.0 + 100.0 * (world.now() - begun).as_secs_f64();
    assert!(granted as f64 <= law, "{granted} granted, the law is {law}");
}

/// Refunds of a fleet, by hand and by dropped requests, add no burst either.
#[tokio::test(start_paused = true)]
async fn refunds_of_a_fleet_add_no_burst() {
    let world = World::new(RTT);
    let limiters: [Limiter; 4] = std::array::from_fn(|_| with_share(&world, LAW, 0.25));
    for (index, limiter) in limiters.iter().enumerate() {
        if index % 2 == 0 {
            limiter.key(&7).n(25).ask().await.unwrap();
            limiter.refund(&7, 25);
        } else {
            let dropped = limiter.clone();
            let dropped = tokio::spawn(async move { dropped.key(&7).n(25).ask().await });
            sleep(RTT * 3 / 4).await;
            dropped.abort();
        }
    }
    sleep(Duration::from_millis(900)).await;
    let (begun, mut by_fleet) = (world.now(), 0);
    for limiter in &limiters {
        by_fleet += granted(limiter, 7).await;
    }
    let law = 100.0 + 100.0 * (world.now() - begun).as_secs_f64();
    assert!(by_fleet as f64 <= law, "{by_fleet} granted, the law is {law}");
    // No token is lost.
    sleep(Duration::from_secs(3)).await;
    let counts = limiters.each_ref().map(|limiter| limiter.stats());
    assert!(counts.iter().all(|of| of.tokens_granted == of.tokens_used + of.tokens_returned), "{counts:?}");
}

/// A way to the store on which the first call with spent tokens is lost while the flag is set.
struct Lossy(Network, Arc<AtomicBool>);

impl Store for Lossy {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        if ops.iter().any(|op| op.amount.spent > 0) && self.1.swap(false, Relaxed) {
            sleep(RTT).await;
            return Err(StoreError::new(StoreErrorKind::Unknown, "the request is lost"));
        }
        self.0.acquire(ops).await
    }
}

/// The tokens of an outage are charged, also if the first call with them has an unknown effect.
#[tokio::test(start_paused = true)]
async fn a_lost_request_forgives_no_debt() {
    let (world, loses) = (World::new(RTT), Arc::<AtomicBool>::default());
    let network = Lossy(world.network(), loses.clone());
    let builder = DistributedLimiter::builder(Quota::per_hour(1).burst(100), network).name("fleet");
    let limiter: DistributedLimiter<u64, _> = builder.clock(world.clock()).exact().build().unwrap();
    let mut granted = 0;
    for outage in 0..5 {
        world.down.store(true, Relaxed);
        for key in [8, 7] {
            for _ in 0..150 {
                let is_granted = limiter.ask(&key).await.is_ok();
                granted += u64::from(is_granted && key == 7);
                sleep(Duration::from_millis(1)).await;
            }
        }
        assert!(limiter.stats().breaker_open, "outage {outage}");
        world.down.store(false, Relaxed);
        loses.store(true, Relaxed);
        sleep(Duration::from_secs(2)).await;
        for _ in 0..3 {
            granted += u64::from(limiter.ask(&7).await.is_ok());
            sleep(Duration::from_secs(2)).await;
        }
        // The later outages have no token to charge.
        assert!(!loses.load(Relaxed) || outage > 0, "no request was lost");
    }
    assert!((95..=101).contains(&granted), "{granted} granted of a burst of 100");
}

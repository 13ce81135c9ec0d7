// promise: layer
//! A layer while the store does not answer.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::sleep;
use tollgate::Quota;
use tollgate_distributed::OnOutage;
use tollgate_http::{LimitBy, RateLimitLayer};

use super::serving::{by_number, call, of, status};
use crate::world::World;

const RTT: Duration = Duration::from_millis(2);
const DEADLINE: Duration = Duration::from_millis(50);

#[tokio::test(start_paused = true)]
async fn each_policy_decides_within_the_deadline_and_the_layer_heals() {
    let policies = [(OnOutage::Deny, 503), (OnOutage::Allow, 200), (OnOutage::Local { share: 1.0 }, 200)];
    for (policy, expected) in policies {
        let world = World::new(RTT);
        let limiter = world.process(Quota::per_second(1_000)).exact().on_outage(policy).build().unwrap();
        let layer = RateLimitLayer::builder(limiter.clone()).key(by_number()).build();
        assert_eq!(status(&layer, of(1, "/")).await, 200);
        world.hangs.store(true, Relaxed);
        for request in 0..200 {
            let before = world.now();
            assert_eq!(status(&layer, of(1, "/")).await, expected, "{policy:?}, request {request}");
            let took = world.now() - before;
            assert!(took <= DEADLINE + Duration::from_millis(1), "{policy:?}: {took:?}");
            sleep(Duration::from_millis(2)).await;
        }
        assert!(limiter.stats().breaker_open);
        world.hangs.store(false, Relaxed);
        sleep(Duration::from_secs(1)).await;
        let before = limiter.stats().by_store;
        assert_eq!(status(&layer, of(2, "/")).await, 200);
        assert_eq!(limiter.stats().by_store, before + 1, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_policy_tells_the_time_of_the_next_probe() {
    let world = World::new(RTT);
    let builder = world.process(Quota::per_second(10)).on_outage(OnOutage::Deny);
    let probes = (Duration::from_secs(30), Duration::from_secs(60));
    let limiter = builder.probes(probes.0, probes.1).build().unwrap();
    let layer = RateLimitLayer::builder(limiter).key(by_number()).build();
    world.down.store(true, Relaxed);
    for key in 0..10 {
        status(&layer, of(key, "/")).await;
    }
    let response = call(&layer, of(11, "/")).await;
    let wait: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert_eq!(response.status(), 503);
    assert!((10..=60).contains(&wait), "{wait}");
}

/// Several shared limits of a layer wait for their stores at the same time.
#[tokio::test(start_paused = true)]
async fn several_shared_limits_wait_for_one_deadline() {
    let world = World::new(RTT);
    let limiter = |name: &str| {
        world.process(Quota::per_second(10)).name(name).on_outage(OnOutage::Deny).build().unwrap()
    };
    let limit = |name: &str| LimitBy::new(limiter(name)).key(by_number());
    let layer =
        RateLimitLayer::builder(limiter("a")).key(by_number()).and(limit("b")).and(limit("c")).build();
    world.hangs.store(true, Relaxed);
    let before = world.now();
    assert_eq!(status(&layer, of(1, "/")).await, 503);
    let took = world.now() - before;
    assert!(took <= DEADLINE + Duration::from_millis(1), "{took:?}");
}

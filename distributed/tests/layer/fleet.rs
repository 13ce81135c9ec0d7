// promise: layer
//! Layers of several processes over one store hold one limit, and each behaves as a layer over a
//! local limiter.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::Request;
use tempfile::TempDir;
use tokio::time::sleep;
use tollgate::{Quota, RateLimiter};
use tollgate_distributed::{DistributedLimiter, SqliteStore};
use tollgate_http::{Cost, LimitBy, RateLimitLayer};
use tower_layer::Layer;
use tower_service::Service;

use super::serving::{Answer, by_number, call, of, status};
use crate::world::{Limiter, World};

const RTT: Duration = Duration::from_millis(2);

fn exact(world: &World, quota: Quota) -> Limiter {
    world.process(quota).exact().build().unwrap()
}

/// Responses and counts of both, at the same times.
#[tokio::test(start_paused = true)]
async fn a_layer_over_a_shared_limiter_answers_as_one_over_a_limiter_at_hand() {
    let quota = Quota::per_second(4);
    let world = World::new(Duration::ZERO);
    let at_hand = RateLimiter::<u64>::builder(quota).clock(world.clock()).build();
    let at_hand = RateLimitLayer::builder(at_hand).key(by_number()).build();
    let shared = RateLimitLayer::builder(exact(&world, quota)).key(by_number()).build();
    let (mut seed, mut refused) = (7_u64, 0);
    for step in 0..3_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        sleep(Duration::from_millis(seed >> 33 & 0x7f)).await;
        let key = seed >> 40 & 3;
        let request = || if key == 3 { Request::get("/").body(()).unwrap() } else { of(key, "/") };
        let (expected, found) = (call(&at_hand, request()).await, call(&shared, request()).await);
        assert_eq!(found.status(), expected.status(), "step {step}");
        assert_eq!(found.headers(), expected.headers(), "step {step}");
        let counts = [&at_hand, &shared].map(|layer| layer.stats());
        let counts = counts.map(|of| (of.granted, of.refused, of.rejected, of.keyless, of.without_room));
        assert_eq!(counts[1], counts[0], "step {step}");
        refused += u32::from(expected.status() == 429);
    }
    assert!(refused > 100 && shared.stats().granted > 100, "{refused}");
}

#[tokio::test(start_paused = true)]
async fn layers_of_one_store_hold_one_limit() {
    for (leased, least) in [(false, 199), (true, 190)] {
        let world = World::new(RTT);
        let quota = Quota::per_second(100);
        let build = |process: u8| {
            let builder = world.process(quota);
            let builder = if leased { builder } else { builder.exact() };
            RateLimitLayer::builder(builder.build().unwrap())
                .key(by_number())
                .name(&format!("process {process}"))
                .unwrap()
                .build()
        };
        let layers = [build(0), build(1)];
        let begun = world.now();
        let mut granted = 0;
        while world.now() - begun < Duration::from_secs(1) {
            for layer in &layers {
                granted += u32::from(status(layer, of(1, "/")).await == 200);
            }
            sleep(Duration::from_millis(2)).await;
        }
        assert!((least..=200).contains(&granted), "leased {leased}: {granted} granted");
        assert!(layers.iter().all(|layer| layer.stats().granted > 20));
    }
}

/// Most requests of a busy key find the tokens at hand: their response is ready at once.
#[tokio::test(start_paused = true)]
async fn a_request_whose_tokens_are_at_hand_waits_for_nothing() {
    let world = World::new(RTT);
    let limiter = world.process(Quota::per_second(100_000)).build().unwrap();
    let layer = RateLimitLayer::builder(limiter).key(by_number()).build();
    let mut waited = 0;
    for _ in 0..10_000 {
        let before = world.now();
        assert_eq!(status(&layer, of(1, "/")).await, 200);
        waited += u32::from(world.now() > before);
        sleep(Duration::from_micros(200)).await;
    }
    assert!(waited <= 10, "{waited} of 10,000 waited");
    let calls = world.calls.load(Relaxed);
    assert!(calls < 500, "{calls} calls for 10,000 requests");
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_is_settled_is_charged_and_refunded_at_the_store() {
    let world = World::new(RTT);
    let (here, there) = (exact(&world, Quota::per_hour(10)), exact(&world, Quota::per_hour(10)));
    let layer = RateLimitLayer::builder(here.clone())
        .key(by_number())
        .cost(|_| 4)
        .refund_on(|status| status.is_server_error())
        .settle_on(|answer| Cost::tokens(u64::from(answer.status.as_u16()) - 200))
        .build();
    for (path, left) in [("/503", 10), ("/201", 9), ("/207", 2)] {
        let response = call(&layer, of(1, path)).await;
        let told = response.headers()["ratelimit"].to_str().unwrap();
        assert!(told.contains(&format!(";r={left};")), "{path}: {told}");
        // Idle tokens go to the store.
        sleep(Duration::from_secs(3)).await;
        assert_eq!(there.peek(&1).await.unwrap().remaining(), left, "{path}");
    }
    // On credit: 2 tokens were there, 4 were asked for.
    assert_eq!(status(&layer, of(1, "/200")).await, 429);
    let generous = RateLimitLayer::builder(here).key(by_number()).settle_on(|_| Cost::tokens(7)).build();
    assert_eq!(status(&generous, of(1, "/200")).await, 200);
    sleep(Duration::from_secs(3)).await;
    let denied = there.ask(&1).await.unwrap_err();
    // 5 tokens of debt, and one to be earned.
    let wait = denied.retry_after().unwrap();
    assert!((2_100..=2_160).contains(&wait.as_secs()), "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn nested_layers_over_one_limiter_count_once() {
    let world = World::new(RTT);
    let limiter = exact(&world, Quota::per_hour(10));
    let layer = || RateLimitLayer::builder(limiter.clone()).key(by_number()).build();
    let (outer, inner) = (layer(), layer());
    let mut service = outer.layer(inner.layer(Answer));
    let Ok(response) = service.call(of(1, "/")).await;
    assert_eq!(response.status(), 200);
    assert_eq!((outer.stats().granted, inner.stats().skipped), (1, 1));
    assert_eq!(limiter.peek(&1).await.unwrap().remaining(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_leaves_its_tokens_in_the_store() {
    let world = World::new(RTT);
    let (here, other) = (exact(&world, Quota::per_hour(10)), exact(&world, Quota::per_hour(10)));
    let other_limit = LimitBy::new(RateLimiter::new(Quota::per_hour(1))).key(by_number());
    let layer = RateLimitLayer::builder(here.clone()).key(by_number()).and(other_limit).build();
    // One is granted, one is refused by the other limit, and one is dropped while it waits.
    assert_eq!([status(&layer, of(1, "/")).await, status(&layer, of(1, "/")).await], [200, 429]);
    let mut service = layer.layer(Answer);
    let mut response = Box::pin(service.call(of(2, "/")));
    let waits = tokio::time::timeout(RTT / 2, &mut response).await.is_err();
    assert!(waits);
    drop(response);
    sleep(RTT * 2).await;
    here.shutdown().await;
    assert_eq!(other.peek(&1).await.unwrap().remaining(), 9);
    assert_eq!(other.peek(&2).await.unwrap().remaining(), 10);
}

/// Over a file, with two stores as of two processes.
#[tokio::test]
async fn two_layers_on_one_file_hold_one_limit() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("limits.db");
    let layer = || {
        let store = SqliteStore::open(&file).unwrap();
        let builder = DistributedLimiter::builder(Quota::per_hour(10), store).name("fleet");
        RateLimitLayer::builder(builder.deadline(Duration::from_secs(10)).exact().build().unwrap())
            .key(by_number())
            .build()
    };
    let layers = [layer(), layer()];
    let mut granted = [0; 2];
    for _ in 0..10 {
        for (layer, granted) in layers.iter().zip(&mut granted) {
            *granted += u32::from(status(layer, of(1, "/")).await == 200);
        }
    }
    assert_eq!(granted, [5, 5]);
}

// promise: layer
//! The buckets of requests without a key, of plans, and of values that clients send.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::Request;
use tollgate::{AnyRule, Quota, Window};
use tollgate_distributed::{DistributedLimiter, SharedDigest, SharedHeaderKey};
use tollgate_http::{AnyLimiter, Cost, LayerPlan, OnMissingKey, RateLimitLayer};
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::serving::{by_number, call, of, status, without_key};
use crate::world::World;

const RTT: Duration = Duration::from_millis(2);

/// A subscriber that counts errors.
struct Errors(Arc<AtomicU64>);

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Relaxed);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_key_share_one_bucket_of_the_fleet() {
    let world = World::new(RTT);
    let layer = || {
        let limiter = world.process(Quota::per_hour(3)).exact().build().unwrap();
        RateLimitLayer::builder(limiter).key(by_number()).on_missing_key(OnMissingKey::Share).build()
    };
    let layers = [layer(), layer()];
    let mut statuses = Vec::new();
    for turn in 0..4 {
        statuses.push(status(&layers[turn % 2], without_key("/")).await);
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert_eq!(status(&layers[0], of(1, "/")).await, 200, "a key has its own");
    assert_eq!(layers[0].stats().keyless + layers[1].stats().keyless, 4);
}

#[tokio::test(start_paused = true)]
async fn the_bucket_of_requests_without_a_key_is_settled() {
    let world = World::new(RTT);
    let limiter = world.process(Quota::per_hour(10)).exact().build().unwrap();
    let layer = RateLimitLayer::builder(limiter).shared().settle_on(|_| Cost::tokens(3)).build();
    for left in [7, 4, 1] {
        let response = call(&layer, without_key("/")).await;
        let told = response.headers()["ratelimit"].to_str().unwrap();
        assert!(told.contains(&format!(";r={left};")), "{left}: {told}");
        tokio::time::sleep(RTT * 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_key_is_the_bucket_of_requests_without_one() {
    let world = World::new(RTT);
    let limiter = DistributedLimiter::<String, _>::builder(Quota::per_hour(1), world.network());
    let limiter = limiter.name("keys").clock(world.clock()).exact().build().unwrap();
    let layer = RateLimitLayer::builder(limiter)
        .key(|head: tollgate_http::Head<'_>| {
            head.headers.get("k").map(|value| value.to_str().unwrap().to_owned())
        })
        .on_missing_key(OnMissingKey::Share)
        .build();
    let empty = || Request::get("/").header("k", "").body(()).unwrap();
    assert_eq!(status(&layer, without_key("/")).await, 200);
    assert_eq!(status(&layer, empty()).await, 200);
    assert_eq!([status(&layer, without_key("/")).await, status(&layer, empty()).await], [429, 429]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_another_quota_for_some_keys() {
    let world = World::new(RTT);
    let limiter = world.process(Quota::per_hour(2)).exact().build().unwrap();
    let gold = LayerPlan::from(limiter.plan(Quota::per_hour(5)).unwrap());
    let odd = Quota::per(1_000_003, Duration::from_nanos(7_919_000_003)).burst(1 << 40);
    let impossible = LayerPlan::from(AnyRule::from(odd));
    let layer = RateLimitLayer::builder(limiter)
        .key(by_number())
        .plan(move |head| match head.uri.path() {
            "/gold" => Some(gold),
            "/impossible" => Some(impossible),
            _ => None,
        })
        .build();
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push((status(&layer, of(1, "/gold")).await, status(&layer, of(2, "/")).await));
    }
    assert_eq!(statuses, [(200, 200), (200, 200), (200, 429), (200, 429), (200, 429), (429, 429)]);
    let response = call(&layer, of(3, "/gold")).await;
    assert_eq!(response.headers()["ratelimit-policy"], "\"default\";q=5;w=3600");
    // A store counts no such quota, so that of the limiter decides. It is reported once.
    let errors = Arc::new(AtomicU64::new(0));
    let reports = tracing::subscriber::set_default(Errors(errors.clone()));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(status(&layer, of(4, "/impossible")).await);
    }
    assert_eq!(statuses, [200, 200, 429]);
    let response = call(&layer, of(5, "/impossible")).await;
    assert_eq!(response.headers()["ratelimit-policy"], "\"default\";q=2;w=3600");
    drop(reports);
    assert_eq!(errors.load(Relaxed), 1);
}

/// Whatever the rule of the limiter is.
#[tokio::test(start_paused = true)]
async fn a_plan_of_a_layer_may_be_unlimited_or_blocked() {
    let world = World::new(RTT);
    let quotas = world.process(Quota::per_hour(1)).exact().build().unwrap();
    let windows = world.process(Window::per_hour(1)).name("windows").exact().build().unwrap();
    for limiter in [AnyLimiter::from(quotas), AnyLimiter::from(windows)] {
        let layer = RateLimitLayer::builder(limiter)
            .key(by_number())
            .plan(|head| match head.uri.path() {
                "/partner" => Some(LayerPlan::from(AnyRule::from(Quota::UNLIMITED))),
                "/banned" => Some(LayerPlan::from(AnyRule::from(Quota::BLOCKED))),
                _ => None,
            })
            .build();
        for _ in 0..3 {
            assert_eq!(status(&layer, of(1, "/partner")).await, 200);
            assert_eq!(status(&layer, of(1, "/banned")).await, 429);
        }
        assert_eq!([status(&layer, of(1, "/")).await, status(&layer, of(1, "/")).await], [200, 429]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_of_a_header_is_one_key_in_each_process() {
    let world = World::new(RTT);
    let layer = || {
        let limiter = DistributedLimiter::<SharedDigest, _>::builder(Quota::per_hour(1), world.network());
        let limiter = limiter.name("keys").clock(world.clock()).exact().build().unwrap();
        RateLimitLayer::builder(limiter).key(SharedHeaderKey::new("x-api-key").unwrap()).build()
    };
    let with = |values: &[&str]| {
        let mut request = Request::get("/").body(()).unwrap();
        for value in values {
            request.headers_mut().append("x-api-key", value.parse().unwrap());
        }
        request
    };
    let layers = [layer(), layer()];
    assert_eq!([status(&layers[0], with(&["a"])).await, status(&layers[1], with(&["a"])).await], [200, 429]);
    assert_eq!(status(&layers[1], with(&["b"])).await, 200);
    assert_eq!(
        [status(&layers[0], with(&[])).await, status(&layers[0], with(&["c", "d"])).await],
        [400, 400]
    );
}

/// The limiter keeps no key, so the tokens after the settlement are not known.
#[tokio::test(start_paused = true)]
async fn a_response_under_a_plan_tells_no_more_than_its_burst() {
    let world = World::new(RTT);
    let limiter = world.process(Quota::per_hour(10)).max_keys(0).exact().build().unwrap();
    let plan = LayerPlan::from(limiter.plan(Quota::per_hour(5)).unwrap());
    let layer = RateLimitLayer::builder(limiter)
        .key(by_number())
        .plan(move |_| Some(plan))
        .settle_on(|_| Cost::tokens(2))
        .build();
    let response = call(&layer, of(1, "/")).await;
    let told = response.headers()["ratelimit"].to_str().unwrap();
    assert!(told.contains(";r=5;"), "{told}");
}

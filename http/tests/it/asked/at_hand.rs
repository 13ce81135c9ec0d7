// promise: layer
//! A limiter of a user that is at hand: it takes together with the other limits.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{AnyRule, Clock, Granted, Quota, RateLimiter, Stats, Tokens};
use tollgate_http::{
    Answer, AnyLimiter, DelayLayer, LayerLimiter, LayerPlan, LayerRequest, LimitBy, RateLimitLayer,
};
use tower_layer::Layer;

use super::questions::answer;
use super::store::shared;
use crate::limits::{Upstream, asks, buckets, by, hourly, poll, status};
use crate::serving::call;

/// Buckets by the parity of a key.
struct Parity(Arc<RateLimiter<u64>>);

impl Parity {
    fn key(request: LayerRequest<'_, u64>) -> u64 {
        request.key.expect("each request has a key") % 2
    }
}

impl LayerLimiter<u64> for Parity {
    fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn rule(&self, _: Option<&LayerPlan>) -> AnyRule {
        self.0.rule().into()
    }

    fn clock(&self) -> Clock {
        Clock::new()
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }

    fn take(&self, request: LayerRequest<'_, u64>) -> Answer {
        Answer::Now(self.0.try_acquire_n(&Parity::key(request), request.n))
    }

    fn refund(&self, request: LayerRequest<'_, u64>) {
        self.0.refund(&Parity::key(request), request.n);
    }

    fn charge(&self, _: LayerRequest<'_, u64>) {}

    fn peek(&self, request: LayerRequest<'_, u64>) -> Granted {
        let there = self.0.peek(&Parity::key(request));
        Granted::from_parts(0, there.remaining(), there.reset_after())
    }

    fn is_at_hand(&self) -> bool {
        true
    }

    fn with_tokens(&self, request: LayerRequest<'_, u64>, then: &mut dyn FnMut(&dyn Tokens)) {
        then(&self.0.key(&Parity::key(request)).n(request.n));
    }
}

fn of(key: u64) -> http::Request<()> {
    asks("/", &[("k", &key.to_string())])
}

#[test]
fn it_decides_alone_and_takes_with_the_others_or_not_at_all() {
    let alone = RateLimitLayer::builder(AnyLimiter::of(Parity(hourly(2)))).key(by("k")).build();
    let mut service = alone.layer(Upstream::default());
    assert_eq!([1, 3, 5, 2].map(|key| status(&call(&mut service, of(key)))), [200, 200, 429, 200]);
    for first in [true, false] {
        let (parity, other) = (hourly(9), hourly(1));
        let limits = (
            LimitBy::new(AnyLimiter::of(Parity(parity.clone()))).key(by("k")),
            LimitBy::new(other.clone()).key(by("k")),
        );
        let layer = match first {
            true => tollgate_http::LayerBuilder::from(limits.0).and(limits.1).build(),
            false => tollgate_http::LayerBuilder::from(limits.1).and(limits.0).build(),
        };
        let mut service = layer.layer(Upstream::default());
        assert_eq!([1, 1, 3].map(|key| status(&call(&mut service, of(key)))), [200, 429, 200]);
        assert_eq!((parity.peek(&1).remaining(), other.peek(&1).remaining()), (7, 0), "{first}");
    }
}

#[test]
fn its_tokens_go_back_if_a_request_that_waits_for_another_limit_is_dropped() {
    let (clock, _mock) = Clock::mock();
    let (parity, other) = (hourly(9), buckets(Quota::per_second(1), &clock));
    let layer = RateLimitLayer::builder(AnyLimiter::of(Parity(parity.clone()))).key(by("k"));
    let layer = layer.and(LimitBy::new(other).key(by("k"))).build();
    let delay = DelayLayer::by_timer(Duration::from_secs(1), |_| std::future::pending());
    let mut service = delay.layer(layer.layer(Upstream::default()));
    assert_eq!((status(&call(&mut service, of(1))), parity.peek(&1).remaining()), (200, 8));
    let mut waits = Box::pin(tower_service::Service::call(&mut service, of(1)));
    assert!(poll(&mut waits).is_pending());
    assert_eq!((parity.peek(&1).remaining(), layer.stats().waiting), (7, 1));
    drop(waits);
    assert_eq!((parity.peek(&1).remaining(), layer.stats().waiting), (8, 0));
    // A second one would wait for too long, and takes of none.
    let waits = Box::pin(tower_service::Service::call(&mut service, of(1)));
    let mut refused = Box::pin(tower_service::Service::call(&mut service, of(1)));
    assert_eq!((answer(&mut refused), parity.peek(&1).remaining()), (429, 7));
    drop(waits);
}

/// A limiter that is not at hand has no line, and no other limit is asked to wait beside it.
#[test]
fn a_request_that_a_limiter_not_at_hand_refuses_does_not_wait() {
    let (clock, _mock) = Clock::mock();
    let (store, other) = (shared(Quota::per_hour(1), &clock), buckets(Quota::per_second(1), &clock));
    let layer = RateLimitLayer::builder(store.any()).key(by("k"));
    let layer = layer.and(LimitBy::new(other.clone()).key(by("k"))).build();
    let delay = DelayLayer::by_timer(Duration::from_secs(3_600), |_| -> std::future::Pending<()> {
        panic!("no timer is made")
    });
    let mut service = delay.layer(layer.layer(Upstream::default()));
    for expected in [200, 429, 429] {
        let mut asked = Box::pin(tower_service::Service::call(&mut service, of(1)));
        assert_eq!((answer(&mut asked), other.peek(&1).remaining()), (expected, 0));
    }
    assert_eq!((layer.stats().waiting, layer.stats().delayed), (0, 0));
}

// promise: layer
//! The tokens of a request that was asked for: they are spent if the request is passed on, and
//! given back otherwise.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::Request;
use tollgate::{Clock, Quota};
use tollgate_http::{Cost, DelayLayer, LimitBy, OnMissingKey, RateLimitLayer, Verdict};
use tower_layer::Layer;
use tower_service::Service;

use super::questions::answer;
use super::store::{Shared, shared};
use crate::limits::{Upstream, asks, buckets, by, hourly, poll, status};
use crate::serving::call;

fn frozen(n: u64) -> Shared {
    shared(Quota::per_hour(n), &Clock::mock().0)
}

fn of(key: u64) -> Request<()> {
    asks("/", &[("k", &key.to_string())])
}

#[test]
fn tokens_are_given_back_if_another_limit_refuses() {
    for asked_first in [true, false] {
        let (limiter, other) = (frozen(5), hourly(1));
        let at_hand = LimitBy::new(other.clone()).key(by("k")).name("other").unwrap();
        let asked = LimitBy::new(limiter.any()).key(by("k")).name("asked").unwrap();
        let layer = match asked_first {
            true => RateLimitLayer::builder(limiter.any()).key(by("k")).and(at_hand).build(),
            false => RateLimitLayer::builder(other.clone()).key(by("k")).and(asked).build(),
        };
        let mut service = layer.layer(Upstream::default());
        let statuses = [(); 3].map(|()| status(&call(&mut service, of(1))));
        assert_eq!((statuses, limiter.left(1)), ([200, 429, 429], 4), "{asked_first}");
        assert_eq!(limiter.refunds(), [1, 1], "{asked_first}");
    }
}

#[test]
fn a_limiter_that_is_asked_and_refuses_takes_no_token_of_the_others() {
    let (limiter, other, another) = (frozen(1), hourly(5), frozen(5));
    let limits = (LimitBy::new(other.clone()).key(by("k")), LimitBy::new(another.any()).key(by("k")));
    let layer = RateLimitLayer::builder(limiter.any()).key(by("k")).and(limits.0).and(limits.1).build();
    let mut service = layer.layer(Upstream::default());
    let statuses = [(); 3].map(|()| status(&call(&mut service, of(1))));
    assert_eq!(statuses, [200, 429, 429]);
    assert_eq!((other.peek(&1).remaining(), another.left(1), another.refunds()), (4, 4, vec![1, 1]));
    assert!(limiter.refunds().is_empty());
}

/// Two limits of one limiter: each has the last token when it is looked at, and one takes it.
#[test]
fn tokens_are_given_back_if_another_limit_loses_its_token_in_between() {
    let (limiter, other) = (frozen(5), hourly(1));
    let [one, two] = [(); 2].map(|()| LimitBy::new(other.clone()).key(by("k")));
    let layer = RateLimitLayer::builder(limiter.any()).key(by("k")).and(one).and(two).build();
    assert_eq!(status(&call(&mut layer.layer(Upstream::default()), of(1))), 429);
    assert_eq!((limiter.left(1), limiter.refunds(), other.peek(&1).remaining()), (5, vec![1], 1));
}

#[test]
fn tokens_are_given_back_if_another_limit_rejects_or_bans() {
    let limiter = frozen(5);
    let ban = LimitBy::new(hourly(1)).key(by("other")).ban_after(1, Duration::from_secs(60));
    let other = ban.for_(Duration::from_secs(60)).unwrap();
    let layer = RateLimitLayer::builder(limiter.any()).key(by("k")).and(other).build();
    let mut service = layer.layer(Upstream::default());
    // No key for the other limit, then a grant, a refusal, and the ban.
    let requests = [asks("/", &[("k", "1")]), both(), both(), both()];
    let statuses = requests.map(|request| status(&call(&mut service, request)));
    assert_eq!((statuses, limiter.left(1)), ([400, 200, 429, 429], 4));
    // A request that is rejected or banned by another limit is not asked for.
    assert_eq!((limiter.refunds(), layer.stats().banned), (vec![1], 1));
}

fn both() -> Request<()> {
    asks("/", &[("k", "1"), ("other", "1")])
}

#[test]
fn tokens_are_given_back_before_a_request_in_shadow_mode_is_passed_on_without_a_decision() {
    let limiter = frozen(5);
    let other = LimitBy::new(hourly(1)).key(by("other")).on_missing_key(OnMissingKey::Reject);
    let layer = RateLimitLayer::builder(limiter.any()).key(by("k")).and(other).enforce(0).build();
    let upstream = Upstream::default();
    let response = call(&mut layer.layer(upstream.clone()), of(1));
    assert_eq!((status(&response), upstream.calls(), layer.stats().skipped), (200, 1, 1));
    // It was not asked.
    assert_eq!((limiter.left(1), limiter.refunds()), (5, vec![]));
}

#[test]
fn a_dropped_request_leaves_no_token_taken() {
    let (limiter, other) = (frozen(5), frozen(5));
    let layer = RateLimitLayer::builder(limiter.any()).key(by("k"));
    let layer = layer.and(LimitBy::new(other.any()).key(by("k"))).build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    for (silent, refunds) in [([true, true], [0, 0]), ([false, true], [1, 0]), ([true, false], [0, 1])] {
        limiter.set_silent(silent[0]);
        other.set_silent(silent[1]);
        for polls in 0..3 {
            let mut response = Box::pin(service.call(of(1)));
            for _ in 0..polls {
                assert!(poll(&mut response).is_pending());
            }
            drop(response);
            assert_eq!([limiter.refunds().len(), other.refunds().len()], refunds, "{silent:?}, {polls}");
            assert_eq!([limiter.left(1), other.left(1)], [5, 5], "{silent:?}, {polls}");
            assert_eq!((limiter.waiting(), other.waiting(), upstream.calls()), (0, 0, 0));
        }
    }
}

#[test]
fn tokens_of_a_request_that_is_passed_on_stay_spent() {
    let limiter = frozen(3);
    let layer = RateLimitLayer::builder(limiter.any()).key(by("k")).build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    drop(service.call(of(1)));
    assert_eq!((upstream.calls(), limiter.left(1)), (1, 2));
    // The request keeps its notes.
    let request = of(1);
    let copied = request.extensions().clone();
    assert_eq!(status(&call(&mut service, request)), 200);
    drop(copied);
    drop(service);
    drop(layer);
    assert_eq!((limiter.left(1), limiter.refunds()), (1, vec![]));
}

#[test]
fn a_cost_that_is_settled_is_refunded_or_charged_and_the_response_reports_the_rest() {
    let limiter = frozen(10);
    let layer = RateLimitLayer::builder(limiter.any())
        .key(by("k"))
        .cost(|_| 4)
        .refund_on(|status| status.is_server_error())
        .settle_on(|answer| Cost::tokens(u64::from(answer.status.as_u16()) - 200))
        .build();
    let mut service = layer.layer(Upstream::default());
    for (path, left) in [("/503", 10), ("/201", 9), ("/204", 5), ("/207", 0)] {
        let response = call(&mut service, asks(path, &[("k", "1")]));
        assert_eq!(limiter.left(1), left, "{path}");
        let told = response.headers()["ratelimit"].to_str().unwrap().to_owned();
        assert!(told.contains(&format!(";r={left};")), "{path}: {told}");
    }
    assert_eq!((limiter.refunds(), layer.stats().refunded), (vec![4, 3], 1));
}

/// A timer that the test ends.
fn sleep(over: &Arc<AtomicBool>) -> impl Fn(Duration) -> Timer + Send + Sync + 'static {
    let over = over.clone();
    move |_| {
        let over = over.clone();
        Box::pin(std::future::poll_fn(move |_| match over.load(Relaxed) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }))
    }
}

type Timer = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

#[test]
fn a_refusal_by_a_limiter_that_is_asked_does_not_wait() {
    let limiter = frozen(1);
    let layer = RateLimitLayer::builder(limiter.any()).key(by("k")).build();
    let delay = DelayLayer::by_timer(Duration::from_secs(7_200), |_| ready(()));
    let mut service = delay.layer(layer.layer(Upstream::default()));
    let statuses = [(); 3].map(|()| status(&call(&mut service, of(1))));
    assert_eq!((statuses, limiter.questions().len()), ([200, 429, 429], 3));
    let stats = layer.stats();
    assert_eq!((stats.delayed, stats.refused), (0, 2));
}

#[test]
fn tokens_are_kept_while_a_request_waits_for_its_turn_at_another_limit() {
    let (clock, _mock) = Clock::mock();
    for asked_first in [true, false] {
        let (limiter, over) = (frozen(9), Arc::new(AtomicBool::new(false)));
        let at_hand = LimitBy::new(buckets(Quota::per_second(1), &clock)).key(by("k"));
        let asked = LimitBy::new(limiter.any()).key(by("k"));
        let wait = Duration::from_millis(1_500);
        let layer = match asked_first {
            true => RateLimitLayer::builder(limiter.any()).key(by("k")).and(at_hand),
            false => {
                let first = RateLimitLayer::builder(buckets(Quota::per_second(1), &clock)).key(by("k"));
                first.and(asked)
            }
        };
        let layer = layer.build();
        let delay = DelayLayer::by_timer(wait, sleep(&over));
        let mut service = delay.layer(layer.layer(Upstream::default()));
        assert_eq!(status(&call(&mut service, of(1))), 200);
        // One waits and is dropped, one waits, and a third would wait for too long.
        drop(Box::pin(service.call(of(1))));
        assert_eq!((limiter.left(1), limiter.refunds()), (8, vec![1]), "{asked_first}");
        let mut waiting = Box::pin(service.call(of(1)));
        assert!(poll(&mut waiting).is_pending());
        assert_eq!((limiter.left(1), layer.stats().waiting), (7, 1), "{asked_first}");
        assert_eq!(status(&call(&mut service, of(1))), 429);
        assert_eq!((limiter.left(1), limiter.refunds()), (7, vec![1]), "{asked_first}");
        over.store(true, Relaxed);
        assert_eq!((answer(&mut waiting), limiter.left(1)), (200, 7), "{asked_first}");
        assert!(limiter.refunds().is_empty());
        assert_eq!(layer.stats().delayed, 2);
    }
}

#[test]
fn a_limit_in_shadow_mode_takes_its_tokens_with_the_others_or_none() {
    let (limiter, other) = (frozen(5), hourly(1));
    let silent = LimitBy::new(limiter.any()).key(by("k")).enforce(0);
    let layer = RateLimitLayer::builder(other.clone()).key(by("k")).and(silent).build();
    let mut service = layer.layer(Upstream::default());
    let statuses = [(); 2].map(|()| status(&call(&mut service, of(1))));
    assert_eq!((statuses, limiter.left(1), limiter.refunds()), ([200, 429], 4, vec![1]));
}

#[test]
fn a_decision_on_a_head_gives_its_tokens_back_if_it_is_dropped() {
    let limiter = frozen(2);
    let layer = RateLimitLayer::builder(limiter.any()).key(by("k")).build();
    let mut context = Context::from_waker(Waker::noop());
    let request = of(1);
    limiter.set_silent(true);
    for _ in 0..3 {
        let mut deciding = layer.decide(&request);
        assert!(Pin::new(&mut deciding).poll(&mut context).is_pending());
        assert_eq!(limiter.waiting(), 1);
        drop(deciding);
        assert_eq!((limiter.waiting(), limiter.left(1)), (0, 2));
    }
    limiter.set_silent(false);
    let mut decide = || match Pin::new(&mut layer.decide(&request)).poll(&mut context) {
        Poll::Ready(Verdict::Passed(_)) => 200,
        Poll::Ready(Verdict::Refused(refusal)) => refusal.status().as_u16(),
        Poll::Pending => panic!("the store answers at once"),
    };
    assert_eq!([decide(), decide(), decide()], [200, 200, 429]);
}

// promise: layer
//! The questions of a layer to its limiters: of which requests, for which cost, and when.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use tollgate::{AnyRule, Clock, Quota, Reason};
use tollgate_http::{Exempt, LayerPlan, LimitBy, OnMissingKey, RateLimitLayer};
use tower_layer::Layer;
use tower_service::Service;

use super::store::{Asked, Shared, shared};
use crate::limits::{Upstream, asks, by, hourly, poll, status};
use crate::serving::call;

fn frozen(n: u64) -> Shared {
    shared(Quota::per_hour(n), &Clock::mock().0)
}

fn of(key: u64) -> Request<()> {
    asks("/", &[("k", &key.to_string())])
}

fn one(key: u64) -> Asked {
    Asked { key: Some(key), n: 1, plan: None }
}

#[test]
fn each_request_is_asked_for_once() {
    let (limiter, costs) = (frozen(9), Arc::<AtomicU64>::default());
    let count = costs.clone();
    let cost = move |_: tollgate_http::Head<'_>| 1 + count.fetch_add(1, Relaxed);
    let layer = RateLimitLayer::builder(limiter.any()).key(by("k")).cost(cost).build();
    let mut service = layer.layer(Upstream::default());
    for (n, expected) in [(1, 200), (2, 200), (3, 200), (4, 429)] {
        assert_eq!(status(&call(&mut service, of(7))), expected, "{n}");
        assert_eq!(limiter.questions(), [Asked { n, ..one(7) }]);
    }
    assert_eq!((costs.load(Relaxed), limiter.left(7)), (4, 3));
    assert!(limiter.refunds().is_empty());
}

#[test]
fn a_request_that_the_limit_does_not_decide_is_not_asked_for() {
    let limiter = frozen(2);
    let layer = RateLimitLayer::builder(limiter.any())
        .key(by("k"))
        .when(|head| head.uri.path() != "/other")
        .exempt(Exempt::paths(["/exempt"]).unwrap())
        .when(|head| head.uri.path() != "/skipped")
        .build();
    let mut service = layer.layer(Upstream::default());
    for path in ["/exempt", "/skipped", "/other"] {
        assert_eq!(status(&call(&mut service, asks(path, &[("k", "1")]))), 200, "{path}");
    }
    assert_eq!(status(&call(&mut service, asks("/", &[]))), 400);
    assert!(limiter.questions().is_empty());
    let stats = layer.stats();
    assert_eq!((stats.exempt, stats.skipped, stats.rejected, stats.keyless), (1, 2, 1, 1));
}

#[test]
fn a_request_without_a_key_is_asked_for_if_such_requests_share_a_bucket() {
    for (missing, asked, expected) in [
        (OnMissingKey::Reject, 0, [400, 400]),
        (OnMissingKey::Allow, 0, [200, 200]),
        (OnMissingKey::Share, 2, [200, 429]),
    ] {
        let limiter = frozen(1);
        let layer = RateLimitLayer::builder(limiter.any()).key(by("k")).on_missing_key(missing).build();
        let mut service = layer.layer(Upstream::default());
        let statuses = [0; 2].map(|_| status(&call(&mut service, asks("/", &[]))));
        assert_eq!(statuses, expected, "{missing:?}");
        let questions = limiter.questions();
        assert_eq!(questions.len(), asked, "{missing:?}");
        assert!(questions.iter().all(|question| question.key.is_none()));
    }
}

#[test]
fn a_banned_key_is_not_asked_for() {
    let (clock, mock) = Clock::mock();
    let limiter = shared(Quota::per_second(1), &clock);
    let ban = RateLimitLayer::builder(limiter.any()).key(by("k")).ban_after(2, Duration::from_secs(60));
    let layer = ban.for_(Duration::from_secs(10)).unwrap().build();
    let mut service = layer.layer(Upstream::default());
    let statuses = [(); 5].map(|()| status(&call(&mut service, of(3))));
    assert_eq!((statuses, limiter.questions().len()), ([200, 429, 429, 429, 429], 3));
    assert_eq!(layer.stats().banned, 2);
    assert_eq!(status(&call(&mut service, of(4))), 200, "another key");
    limiter.questions();
    mock.advance(Duration::from_secs(10));
    assert_eq!((status(&call(&mut service, of(3))), limiter.questions()), (200, vec![one(3)]));
}

#[test]
fn nested_layers_of_one_limiter_ask_once() {
    let limiter = frozen(3);
    let outer = RateLimitLayer::builder(limiter.any()).key(by("k")).build();
    let inner = RateLimitLayer::builder(limiter.any()).key(by("k")).build();
    let other = RateLimitLayer::builder(frozen(3).any()).key(by("k")).build();
    let mut service = outer.layer(inner.layer(other.layer(Upstream::default())));
    assert_eq!(status(&call(&mut service, of(1))), 200);
    assert_eq!((limiter.questions(), limiter.left(1)), (vec![one(1)], 2));
    assert_eq!([outer.stats().granted, inner.stats().skipped, other.stats().granted], [1, 1, 1]);
}

#[test]
fn a_request_waits_for_the_answer_and_counts_with_it() {
    let (limiter, upstream) = (frozen(1), Upstream::default());
    let layer = RateLimitLayer::builder(limiter.any()).key(by("k")).build();
    let mut service = layer.layer(upstream.clone());
    limiter.set_silent(true);
    let mut responses = [1, 1].map(|key| Box::pin(service.call(of(key))));
    assert!(responses.iter_mut().all(|response| poll(response).is_pending()));
    assert_eq!((limiter.waiting(), upstream.calls(), layer.stats().granted), (2, 0, 0));
    limiter.set_silent(false);
    let statuses = responses.map(|mut response| answer(&mut response));
    assert_eq!((statuses, limiter.waiting()), ([200, 429], 0));
    assert_eq!((upstream.calls(), layer.stats().granted, layer.stats().refused), (1, 1, 1));
}

/// Returns the status of a response that is there.
pub(super) fn answer<F, B, E>(response: &mut std::pin::Pin<Box<F>>) -> u16
where
    F: Future<Output = Result<Response<B>, E>>,
{
    match poll(response) {
        std::task::Poll::Ready(Ok(response)) => status(&response),
        _ => panic!("the response is not there"),
    }
}

#[test]
fn limiters_are_asked_at_the_same_time() {
    let limiters = [frozen(1), frozen(1), frozen(1)];
    let [first, second, third] = &limiters;
    let limit = |limiter: &Shared| LimitBy::new(limiter.any()).key(by("k"));
    let layer = RateLimitLayer::builder(first.any()).key(by("k"));
    let layer = layer.and(limit(second)).and(limit(third)).build();
    let mut service = layer.layer(Upstream::default());
    limiters.iter().for_each(|limiter| limiter.set_silent(true));
    let mut response = Box::pin(service.call(of(1)));
    assert!(poll(&mut response).is_pending());
    assert_eq!(limiters.each_ref().map(Shared::waiting), [1, 1, 1]);
    for limiter in &limiters {
        assert!(poll(&mut response).is_pending());
        limiter.set_silent(false);
    }
    assert_eq!(answer(&mut response), 200);
}

#[test]
fn a_limiter_is_asked_as_soon_as_its_key_is_found() {
    let limiter = frozen(1);
    let (found, search) = tokio::sync::oneshot::channel();
    let search = std::sync::Mutex::new(Some(search));
    let find = move |_: tollgate_http::Head<'_>| {
        let search = search.lock().unwrap().take().expect("there is one request");
        async { search.await.ok() }
    };
    let layer = RateLimitLayer::builder(limiter.any()).key_async(find).build();
    let mut service = layer.layer(Upstream::default());
    let mut response = Box::pin(service.call(of(1)));
    assert!(poll(&mut response).is_pending());
    assert!(limiter.questions().is_empty());
    found.send(5).unwrap();
    assert_eq!((answer(&mut response), limiter.questions()), (200, vec![one(5)]));
}

#[test]
fn a_plan_and_another_quota_are_asked_for_and_reported() {
    let limiter = frozen(4);
    let (gold, chosen) = (Quota::per_hour(9), Arc::<AtomicU64>::default());
    let count = chosen.clone();
    let choose = move |head: tollgate_http::Head<'_>| {
        count.fetch_add(1, Relaxed);
        head.headers.contains_key("gold").then_some(LayerPlan::from(AnyRule::from(gold)))
    };
    let layer = RateLimitLayer::builder(limiter.any()).key(by("k")).plan(choose).build();
    let mut service = layer.layer(Upstream::default());
    let policy = |response: &Response<()>| response.headers()["ratelimit-policy"].clone();
    let response = call(&mut service, asks("/", &[("k", "1"), ("gold", "")]));
    assert_eq!(policy(&response), "\"default\";q=9;w=3600");
    assert_eq!(limiter.questions(), [Asked { plan: Some(gold), ..one(1) }]);
    let response = call(&mut service, of(2));
    assert_eq!(
        (policy(&response), limiter.questions()),
        ("\"default\";q=4;w=3600".parse().unwrap(), vec![one(2)])
    );
    limiter.set_quota(Quota::per_hour(6));
    assert_eq!(policy(&call(&mut service, of(2))), "\"default\";q=6;w=3600");
    assert_eq!(chosen.load(Relaxed), 3, "once for each request");
}

#[test]
fn a_limiter_at_hand_refuses_a_plan_of_one_that_is_asked() {
    let plan = LayerPlan::from(AnyRule::from(Quota::per_second(5)));
    let reason = Arc::<Mutex<Option<Reason>>>::default();
    for others in [0, 1] {
        let note = reason.clone();
        let layer = RateLimitLayer::builder(hourly(1)).key(by("k")).plan(move |_| Some(plan));
        let layer = layer.on_decision(move |_, decision| {
            *note.lock().unwrap() = decision.result().err().map(|denied| denied.reason());
        });
        let layer = if others > 0 { layer.and(LimitBy::new(hourly(9)).key(by("k"))) } else { layer };
        assert_eq!(status(&call(&mut layer.build().layer(Upstream::default()), of(1))), 429);
        assert_eq!(reason.lock().unwrap().take(), Some(Reason::ForeignPlan), "{others} others");
    }
}

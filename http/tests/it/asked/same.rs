// promise: layer
//! A layer on a limiter that is asked does the same as one on a limiter at hand: the two are given
//! the same random requests, and each response and each count is compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::header::HeaderMap;
use http::{Method, Request};
use tollgate::{AnyRule, Clock, MockClock, Quota, RateLimiter};
use tollgate_http::{
    AnyLimiter, Cost, Exempt, Headers, LayerBuilder, LayerPlan, LayerStats, LimitBy, OnMissingKey, Problem,
    RateLimitLayer,
};
use tower_layer::Layer;

use super::store::{Fixed, shared};
use crate::limits::{Upstream, asks, buckets, by, status};
use crate::serving::call;
use tollgate_testing::{Random, size};

/// Makes limiters of one kind.
struct Make {
    asks: bool,
    clock: Clock,
}

impl Make {
    fn limiter(&self, quota: Quota) -> AnyLimiter<u64> {
        self.with_plan(quota, quota).0
    }

    /// Returns a limiter, and a plan of it.
    fn with_plan(&self, quota: Quota, plan: Quota) -> (AnyLimiter<u64>, LayerPlan) {
        if self.asks {
            return (shared(quota, &self.clock).any(), LayerPlan::from(AnyRule::from(plan)));
        }
        let builder = RateLimiter::<u64>::builder(quota).hasher(Fixed::default()).clock(self.clock.clone());
        let limiter = builder.headroom(Quota::per_second(1_000)).expect("there is room").build();
        let plan = limiter.plan(plan).expect("there is room");
        (limiter.into(), plan.into())
    }

    fn limit(&self, quota: Quota, name: &str) -> LimitBy<u64> {
        LimitBy::new(self.limiter(quota)).key(by("other")).name(name).expect("it is a name")
    }

    fn builder(&self, quota: Quota) -> LayerBuilder<u64> {
        RateLimitLayer::builder(self.limiter(quota)).key(by("k"))
    }
}

type Build = fn(&Make) -> LayerBuilder<u64>;

const FOUR: Quota = Quota::per_second(4);

/// Layers with each option, and with several.
const LAYERS: &[(&str, Build)] = &[
    ("no option", |make| make.builder(FOUR)),
    ("headers", |make| make.builder(FOUR).headers(Headers::Both).only_below(60)),
    ("waits", |make| make.builder(Quota::per_minute(4)).spread_retries(Duration::from_secs(5))),
    ("a name and a response", |make| {
        make.builder(FOUR).name("four").expect("it is a name").reject_as(Problem::QUOTA_EXCEEDED)
    }),
    ("cost", |make| make.builder(FOUR).cost(|head| head.uri.path().len() as u64 - 1)),
    ("shared", |make| RateLimitLayer::builder(make.limiter(FOUR)).shared()),
    ("share a bucket", |make| make.builder(FOUR).on_missing_key(OnMissingKey::Share)),
    ("allow without a key", |make| make.builder(FOUR).on_missing_key(OnMissingKey::Allow)),
    ("shadow", |make| make.builder(FOUR).enforce(0).tell_upstream()),
    ("enforced for a part", |make| make.builder(FOUR).enforce(50).tell_upstream()),
    ("exempt", |make| {
        make.builder(FOUR).exempt(Exempt::methods([Method::PUT])).when(|head| head.uri.path() != "/201")
    }),
    ("some requests", |make| make.builder(Quota::per_second(1)).when(|head| head.method == Method::PUT)),
    ("ban", |make| {
        let ban = make.builder(FOUR).ban_after(3, Duration::from_secs(2));
        ban.for_(Duration::from_secs(3)).expect("it is in bounds")
    }),
    ("refund", |make| make.builder(FOUR).refund_on(|status| status.is_server_error())),
    ("settle", |make| {
        make.builder(FOUR).settle_on(|answer| Cost::tokens(u64::from(answer.status.as_u16()) % 100 / 2))
    }),
    ("a key that takes time", |make| {
        let key = |head: tollgate_http::Head<'_>| {
            let key = head.headers.get("k").and_then(|key| key.to_str().ok()?.parse().ok());
            std::future::ready(key)
        };
        RateLimitLayer::builder(make.limiter(FOUR)).key_async(key)
    }),
    ("a plan", |make| {
        let (limiter, plan) = make.with_plan(FOUR, Quota::per_second(9));
        let choose = move |head: tollgate_http::Head<'_>| (head.method == Method::PUT).then_some(plan);
        RateLimitLayer::builder(limiter).key(by("k")).plan(choose)
    }),
    ("before one at hand", |make| {
        let other = LimitBy::new(buckets(Quota::per_second(3), &make.clock)).key(by("other"));
        make.builder(FOUR).and(other.name("other").expect("it is a name"))
    }),
    ("behind one at hand", |make| {
        let first = RateLimitLayer::builder(buckets(Quota::per_second(3), &make.clock)).key(by("k"));
        first.and(make.limit(FOUR, "other"))
    }),
    ("two that are asked", |make| make.builder(FOUR).and(make.limit(Quota::per_second(3), "other"))),
    ("one in shadow mode", |make| {
        make.builder(FOUR).and(make.limit(Quota::per_second(2), "silent").enforce(0)).tell_upstream()
    }),
    ("the first in shadow mode", |make| {
        let first = RateLimitLayer::builder(buckets(Quota::per_second(3), &make.clock)).key(by("k"));
        let silent = make.limit(Quota::per_second(2), "silent").enforce(30);
        first.and(silent.on_missing_key(OnMissingKey::Share)).tell_upstream()
    }),
    ("many", |make| {
        let ban = make.limit(FOUR, "banning").ban_after(2, Duration::from_secs(2));
        let ban = ban.for_(Duration::from_secs(1)).expect("it is in bounds");
        let silent = make.limit(Quota::per_second(1), "silent").enforce(0);
        let layer = make.builder(Quota::per_second(6)).cost(|head| head.uri.path().len() as u64 - 1);
        let layer = layer.refund_on(|status| status.is_server_error()).enforce(70);
        layer.settle_on(|_| Cost::tokens(2)).and(ban.on_missing_key(OnMissingKey::Allow)).and(silent)
    }),
];

/// A layer of one kind, its time, and the decisions that its hook saw.
struct Side {
    layer: RateLimitLayer<u64>,
    mock: MockClock,
    seen: Arc<AtomicU64>,
}

impl Side {
    fn new(asks: bool, build: Build) -> Side {
        let (clock, mock) = Clock::mock();
        let seen = Arc::<AtomicU64>::default();
        let note = seen.clone();
        let layer = build(&Make { asks, clock }).on_decision(move |_, decision| {
            let said = match decision.result() {
                Ok(granted) => granted.remaining(),
                Err(denied) => 1_000 + denied.remaining(),
            };
            note.fetch_add(said * 10_000 + 1, Relaxed);
        });
        Side { layer: layer.build(), mock, seen }
    }

    /// Returns all that a request shows, but its moment.
    fn ask(&self, request: Request<()>, upstream: &Upstream) -> (u16, HeaderMap, LayerStats, u64, usize) {
        let response = call(&mut self.layer.layer(upstream.clone()), request);
        let seen = self.seen.load(Relaxed);
        let stats = without_keys(self.layer.stats());
        (status(&response), response.headers().clone(), stats, seen, upstream.calls())
    }
}

/// A limiter that was asked, and was given its tokens back, knows the key.
fn without_keys(mut stats: LayerStats) -> LayerStats {
    stats.keys = 0;
    stats.limits.iter_mut().for_each(|limit| limit.keys = 0);
    stats
}

/// Returns a request with or without each of the keys, one of few paths and methods.
fn request(random: &mut Random) -> impl Fn() -> Request<()> + use<> {
    let path = ["/", "/1", "/20", "/201", "/204", "/503"][random.below(6) as usize];
    let (k, other) = (random.below(5), random.below(4));
    let put = random.below(3) == 0;
    move || {
        let mut request = asks(path, &[]);
        if put {
            *request.method_mut() = Method::PUT;
        }
        for (name, value, none) in [("k", k, 4), ("other", other, 3)] {
            if value != none {
                request.headers_mut().insert(name, value.into());
            }
        }
        request
    }
}

#[test]
fn a_limiter_that_is_asked_decides_counts_and_reports_as_one_at_hand() {
    for (name, build) in LAYERS {
        let mut random = Random(7);
        let sides = [Side::new(false, *build), Side::new(true, *build)];
        let upstreams = [Upstream::default(), Upstream::default()];
        let mut statuses = [0; 2];
        for step in 0..size(1_500, 2_000) {
            if random.below(3) == 0 {
                let time = Duration::from_millis(random.below(150));
                sides.iter().for_each(|side| side.mock.advance(time));
            }
            let request = request(&mut random);
            let [at_hand, asked] = [0, 1].map(|side| sides[side].ask(request(), &upstreams[side]));
            assert_eq!(at_hand, asked, "{name}, step {step}");
            statuses[usize::from(at_hand.0 == 429)] += 1;
        }
        let stats = sides[1].layer.stats();
        let refused = stats.refused + stats.banned + stats.shadow_refused;
        assert!(stats.granted > 20 && refused > 20, "{name}: {statuses:?} {stats:?}");
    }
}

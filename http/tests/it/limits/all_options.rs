// promise: layer
//! A layer with all options.

use super::found_later::{Busy, found_in, searched};
use super::*;

/// A static assertion: the parts of a layer cross threads if the inner service does.
const _: () = {
    const fn crosses<T: Send + Sync>() {}
    crosses::<RateLimitLayer<u64>>();
    crosses::<BoxRateLimitLayer>();
    crosses::<LayerBuilder<u64>>();
    crosses::<LimitBy<u64>>();
    crosses::<RateLimit<Upstream>>();
    crosses::<ResponseFuture<Upstream, ()>>();
    crosses::<ResponseFuture<Busy, ()>>();
    crosses::<DelayLayer>();
    crosses::<tollgate_http::ResponseBody<Bytes>>();
    crosses::<Decision>();
};

/// A timer by the time of the test.
struct Sleep {
    until: u64,
    now: Arc<AtomicU64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.now.load(Relaxed) >= self.until { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Returns a layer with all of its options, and the number of decisions that its hook saw.
fn everything(clock: &Clock) -> (RateLimitLayer<u64>, Arc<AtomicU64>) {
    let builder =
        RateLimiter::<u64>::builder(Quota::per_second(2)).hasher(Fixed::default()).clock(clock.clone());
    let limiter = builder.headroom(Quota::per_second(100)).unwrap().build();
    let gold = limiter.plan(Quota::per_second(20)).unwrap();
    let window = Window::per_minute(30).sliding();
    let minutely = RateLimiter::<u64, _>::builder(window).hasher(Fixed::default()).clock(clock.clone());
    let minutely = minutely.headroom(window.with_limit(1_000).unwrap()).unwrap().build();
    let cap = minutely.plan(window.with_limit(600).unwrap()).unwrap();
    let seen = Arc::<AtomicU64>::default();
    let count = seen.clone();
    let limit = LimitBy::new(minutely)
        .key(by("k1"))
        .name("minute")
        .unwrap()
        .on_missing_key(OnMissingKey::Allow)
        .plan(move |head| head.headers.contains_key("gold").then_some(cap))
        .enforce(50)
        .ban_after(20, Duration::from_secs(5))
        .for_(Duration::from_secs(1))
        .unwrap();
    let shadow = LimitBy::new(buckets(Quota::per_minute(6), clock))
        .key_async(found_in::<2>(&Arc::default()))
        .name("silent")
        .unwrap()
        .on_missing_key(OnMissingKey::Share)
        .when(|head| head.method == Method::POST)
        .enforce(0);
    let layer = RateLimitLayer::builder(limiter)
        .key_async(found_in::<1>(&Arc::default()))
        .name("second")
        .unwrap()
        .plan(move |head| head.headers.contains_key("gold").then_some(gold))
        .on_missing_key(OnMissingKey::Reject)
        .cost(|head| 1 + u64::from(head.method == Method::POST))
        .exempt(Exempt::paths(["/exempt"]).unwrap())
        .exempt(Exempt::methods([Method::TRACE]))
        .exempt(Exempt::preflights())
        .exempt(Exempt::when(|head| head.headers.contains_key("exempt")))
        .when(|head| head.method != Method::DELETE && head.uri.path() != "/skipped")
        .ban_after(6, Duration::from_secs(2))
        .for_(Duration::from_secs(3))
        .unwrap()
        .settle_on(|answer| match answer.status.as_u16() {
            201 => Cost::bytes(),
            202 => Cost::tokens(3),
            203 => Cost::trailer(HeaderName::from_static("cost")),
            204 => Cost::of_body(4, |last| Some(last.len() as u64)),
            _ => Cost::ESTIMATE,
        })
        .refund_on(|status| status.is_server_error())
        .tell_upstream()
        .expose_headers()
        .enforce(80)
        .headers(Headers::Both)
        .only_below(90)
        .spread_retries(Duration::from_secs(2))
        .silence(Check::NoPeer)
        .reject_as(Problem::QUOTA_EXCEEDED)
        .on_decision(move |_, _| _ = count.fetch_add(1, Relaxed))
        .and(limit)
        .and(shadow);
    #[cfg(feature = "tracing")]
    let layer = layer.log_refusals(Quota::per_second(5)).record_in_span();
    #[cfg(feature = "metrics")]
    let layer = layer.measure_waits();
    (layer.build(), seen)
}

#[test]
fn a_layer_with_all_options_decides_each_request_once() {
    let ((clock, mock), now) = (Clock::mock(), Arc::<AtomicU64>::default());
    let (layer, seen) = everything(&clock);
    let delay = DelayLayer::by_timer(Duration::from_millis(300), {
        let now = now.clone();
        move |delay| Sleep { until: now.load(Relaxed) + delay.as_nanos() as u64, now: now.clone() }
    });
    let delay = delay.max_waiting(4);
    let upstream = Upstream::default();
    // The outer layer has counted each request by the same limiters, so the inner one skips it.
    let mut service = delay.layer(layer.boxed().layer(layer.layer(upstream.clone())));
    let mut random = Random(7);
    let mut open = Vec::new();
    let (mut given_up, mut dropped) = (0, 0);
    let mut statuses = [0; 600];
    for asked in 1..=1_000 {
        let paths = ["/201", "/202", "/203", "/204", "/500", "/302", "/", "/skipped", "/exempt"];
        let mut request = asks(paths[random.below(9) as usize], &[("k1", &random.below(6).to_string())]);
        let methods =
            [Method::GET, Method::GET, Method::POST, Method::DELETE, Method::TRACE, Method::OPTIONS];
        *request.method_mut() = methods[random.below(6) as usize].clone();
        for header in ["gold", "exempt", "origin", EXCEEDED, "access-control-request-method"] {
            if random.below(8) == 0 {
                request.headers_mut().insert(header, 1.into());
            }
        }
        if random.below(9) == 0 {
            request.headers_mut().remove("k1");
        }
        let (one, two) = (searched::<1>(&mut request), searched::<2>(&mut request));
        let before = requests(&layer.stats()) - upstream.calls() as u64;
        let mut response = Box::pin(service.call(request));
        let mut keep = |response: &mut Pin<Box<ResponseFuture<RateLimit<Upstream>, ()>>>| {
            let Poll::Ready(response) = poll(response) else { return true };
            statuses[usize::from(status(&response.unwrap()))] += 1;
            false
        };
        if keep(&mut response) {
            // It waits for its keys.
            assert_eq!(requests(&layer.stats()) - upstream.calls() as u64, before);
            if random.below(20) == 0 {
                given_up += 1;
                drop(response);
            } else {
                let mut key = || (random.below(6) > 0).then(|| random.below(5));
                // The search of a limit that does not apply was not begun.
                let _ = (one.send(key()), two.send(key()));
                open.push(response);
            }
        }
        let pause = random.below(30) * 1_000_000;
        now.fetch_add(pause, Relaxed);
        mock.advance(Duration::from_nanos(pause));
        open.retain_mut(|response| {
            let waits = keep(response);
            let drops = waits && random.below(10) == 0;
            dropped += u64::from(drops);
            waits && !drops
        });
        let stats = layer.stats();
        assert!(stats.waiting <= 4 && stats.waiting == open.len(), "{stats:?}");
        // A request is counted when its wait ends.
        let (counted, waiting) = (requests(&stats) - upstream.calls() as u64, stats.waiting as u64);
        assert_eq!(counted + waiting + dropped, asked - given_up, "{stats:?}");
    }
    now.fetch_add(1_000_000_000, Relaxed);
    for mut response in open {
        let Poll::Ready(Ok(response)) = poll(&mut response) else { panic!("the turn has come") };
        statuses[usize::from(status(&response))] += 1;
    }
    let stats = layer.stats();
    assert_eq!(stats.waiting, 0);
    assert_eq!(statuses[429], stats.refused + stats.banned);
    assert_eq!(statuses[400], stats.rejected);
    assert_eq!(statuses.iter().sum::<u64>() + given_up + dropped, 1_000);
    assert_eq!(seen.load(Relaxed), stats.granted + stats.refused + stats.banned + stats.shadow_refused);
    let LayerStats { granted, refused, banned, shadow_refused, skipped, exempt, rejected, .. } = stats;
    let LayerStats { delayed, bans, keyless, refunded, .. } = stats;
    let rare = [granted, refused, banned, shadow_refused, skipped, exempt, rejected];
    assert!(rare.iter().chain(&[delayed, bans, keyless, refunded]).all(|count| *count > 5), "{stats:?}");
    assert!(given_up > 5 && dropped > 5, "{given_up} {dropped}");
    assert!(stats.limits.iter().all(|limit| limit.shadow_refused > 0), "{stats:?}");
}

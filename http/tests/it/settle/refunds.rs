// promise: layer
//! Refunds: at most the tokens that were taken, once, and of the limit that took them.

use super::*;

/// The way of a request through a layer of two limits of 1,000 tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Granted,
    Exempt,
    Keyless(OnMissingKey),
    /// The first limit is in shadow mode, and grants or refuses.
    Shadow(bool),
    /// The whole layer is in shadow mode, and grants or refuses.
    ShadowLayer(bool),
    RefusedByThis,
    RefusedByAnother,
    Banned,
    /// An outer layer has the limiter of the first limit.
    CountedBefore,
}

/// Returns the tokens that a request of 100 takes at both limits, and the status of its answer.
fn by(way: Way) -> ([i64; 2], u16) {
    match way {
        Way::Granted | Way::Shadow(true) | Way::ShadowLayer(true) => ([100, 100], 404),
        Way::Keyless(OnMissingKey::Allow) | Way::Shadow(false) => ([0, 100], 404),
        Way::Keyless(OnMissingKey::Share) => ([0, 100], 404),
        Way::Exempt | Way::ShadowLayer(false) => ([0, 0], 404),
        // The outer layer takes, and does not refund.
        Way::CountedBefore => ([100, 100], 404),
        Way::Keyless(_) => ([0, 0], 400),
        Way::RefusedByThis | Way::RefusedByAnother | Way::Banned => ([0, 0], 429),
    }
}

/// Returns the tokens that are gone at both limits by one request, and the status of its answer.
fn run(way: Way, refunds: Option<u16>, settles: Option<u64>) -> ([i64; 2], u16) {
    let (clock, _mock) = Clock::mock();
    let limiter = || RateLimiter::<u64>::builder(BYTES).clock(clock.clone()).build();
    let (first, second) = (limiter(), limiter());
    let no_key = matches!(way, Way::Keyless(_));
    let mut layer = RateLimitLayer::builder(first.clone())
        .key(key_fn(move |head| key(head).filter(|_| !no_key)))
        .ban_after(1, ns(SECOND))
        .for_(ns(SECOND))
        .unwrap();
    if let Way::Keyless(missing) = way {
        layer = layer.on_missing_key(missing);
    }
    if way == Way::Exempt {
        layer = layer.exempt(Exempt::when(|_| true));
    }
    if let Way::ShadowLayer(_) = way {
        layer = layer.enforce(0);
    }
    let other = LimitBy::new(second.clone()).key(key_fn(key)).name("other").unwrap();
    let first_of_layer = LimitBy::new(first.clone()).key(key_fn(key)).enforce(0);
    let mut layer = match way {
        Way::Shadow(_) => LayerBuilder::from(first_of_layer).and(other),
        _ => layer.and(other),
    };
    layer = layer.cost(estimate);
    if let Some(status) = refunds {
        layer = layer.refund_on(move |answer| answer == status);
    }
    if let Some(tokens) = settles {
        layer = layer.settle_on(move |_| Cost::tokens(tokens));
    }
    let layer = layer.build();
    if way == Way::Banned {
        let refused = ask(&mut layer.layer(Mirror), Estimate(2_000), Ok(brings([]))).unwrap();
        assert_eq!((refused.status().as_u16(), layer.stats().bans), (429, 1));
    }
    match way {
        Way::Shadow(false) | Way::ShadowLayer(false) | Way::RefusedByThis => {
            _ = first.try_acquire_n(&KEY, 950)
        }
        Way::RefusedByAnother => _ = second.try_acquire_n(&KEY, 950),
        _ => {}
    }
    let left = || [&first, &second].map(|limiter| limiter.peek(&KEY).remaining() as i64);
    let before = left();
    let mut answer = brings([]);
    *answer.status_mut() = StatusCode::NOT_FOUND;
    let outer = RateLimitLayer::builder(first.clone()).key(key_fn(key)).cost(estimate).build();
    let status = match way {
        Way::CountedBefore => {
            let mut service = outer.layer(layer.layer(Mirror));
            ask(&mut service, ESTIMATE, Ok(answer)).unwrap().status()
        }
        _ => ask(&mut layer.layer(Mirror), ESTIMATE, Ok(answer)).unwrap().status(),
    };
    let now = left();
    ([before[0] - now[0], before[1] - now[1]], status.as_u16())
}

#[test]
fn a_refund_gives_back_the_tokens_of_the_limits_that_took_them() {
    let missing = [OnMissingKey::Allow, OnMissingKey::Share, OnMissingKey::Reject];
    let ways = [
        Way::Granted,
        Way::Exempt,
        Way::Shadow(true),
        Way::Shadow(false),
        Way::ShadowLayer(true),
        Way::ShadowLayer(false),
        Way::RefusedByThis,
        Way::RefusedByAnother,
        Way::Banned,
        Way::CountedBefore,
    ];
    for way in ways.into_iter().chain(missing.map(Way::Keyless)) {
        let (taken, status) = by(way);
        // The limit that an outer layer counts is that layer's to settle.
        let own = |tokens: i64| {
            if way == Way::CountedBefore { [100, tokens] } else { taken.map(|taken| taken * tokens / 100) }
        };
        for (refunds, settles, tokens) in [
            (None, None, 100),
            (Some(404), None, 0),
            (Some(429), None, 100),
            (Some(404), Some(30), 0),
            (Some(429), Some(30), 30),
            (Some(429), Some(0), 0),
            (Some(404), Some(500), 0),
            (Some(429), Some(500), 500),
        ] {
            let found = run(way, refunds, settles);
            assert_eq!(found, (own(tokens), status), "{way:?} {refunds:?} {settles:?}");
        }
    }
}

/// The tokens of a window that has ended are there again. A client that holds its answers back gets
/// no second limit in the next window.
#[test]
fn an_answer_gives_nothing_back_to_a_later_window() {
    let window = Window::per_minute(10);
    for window in [window, window.utc(), window.sliding(), window.weighted()] {
        for (late, back) in [(0, 5), (1, 5), (121, 0)] {
            for by_status in [true, false] {
                let (clock, mock) = Clock::mock();
                mock.advance(ns(30 * SECOND));
                let limiter = RateLimiter::<u64, _>::builder(window).clock(clock).build();
                let layer = RateLimitLayer::builder(limiter.clone()).key(key_fn(key)).cost(estimate);
                let layer = match by_status {
                    true => layer.refund_on(|status| status.is_success()).build(),
                    false => layer.settle_on(|_| Cost::tokens(0)).build(),
                };
                let mut service = layer.layer(Later);
                let mut answer = Box::pin(service.call(request(Estimate(5), Ok(brings([])))));
                let mut poll = || answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(poll().is_pending());
                mock.advance(ns(late * SECOND));
                let room = if late > 60 { 10 } else { 5 };
                assert!(limiter.try_acquire_n(&KEY, room).is_ok());
                assert!(poll().is_ready());
                assert_eq!(limiter.peek(&KEY).remaining(), back, "{window} {late} {by_status}");
            }
        }
    }
}

/// A service whose response comes at the second poll.
#[derive(Clone)]
struct Later;

impl Service<Request<Brought>> for Later {
    type Response = Response<Frames>;
    type Error = Failed;
    type Future = LaterFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Brought>) -> LaterFuture {
        LaterFuture(Some(request.into_body()), false)
    }
}

struct LaterFuture(Option<Brought>, bool);

impl Future for LaterFuture {
    type Output = Brought;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Brought> {
        if !std::mem::replace(&mut self.1, true) {
            return Poll::Pending;
        }
        Poll::Ready(self.0.take().expect("it is polled twice"))
    }
}

// promise: layer
//! The waits of bans.

use super::*;

#[test]
fn a_bans_wait_is_spread_as_the_other_waits_are() {
    let (limiter, mock) = limiter::<IpAddr>(Quota::per_hour(1));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer());
    let layer = layer.spread_retries(100 * SECOND).ban_after(2, MINUTE).for_(2 * HOUR).unwrap().build();
    let mut service = layer.layer(Echo::default());
    let mut shares = Vec::new();
    for n in 0..50 {
        let peer = format!("198.51.100.{n}");
        let mut wait = || -> Option<u64> {
            says(&call(&mut service, from(&peer, "/")), "retry-after").map(|wait| wait.parse().unwrap())
        };
        assert_eq!(wait(), None);
        let share = wait().unwrap() - 3_600;
        assert!(share <= 100, "{share}");
        assert_eq!([wait(), wait()], [Some(7_200 + share); 2], "the share of a key is one");
        assert_eq!(layer.banned(&ip(&peer)), Some(2 * HOUR));
        shares.push(share);
    }
    assert_eq!((layer.stats().bans, layer.stats().banned), (50, 50));
    shares.sort_unstable();
    shares.dedup();
    assert!(shares.len() > 20, "{shares:?}");
    mock.advance(2 * HOUR);
    assert_eq!(layer.banned(&ip("198.51.100.7")), None);
}

#[test]
fn a_response_can_tell_a_ban_from_another_refusal() {
    let (builder, _mock) = one_an_hour();
    let reject = |refusal: &Refusal<'_>| -> Response<Bytes> {
        match refusal.is_ban() {
            true => Problem::ABNORMAL_USAGE_DETECTED.reject(refusal),
            false => Problem::QUOTA_EXCEEDED.reject(refusal),
        }
    };
    let layer = builder.ban_after(2, MINUTE).for_(HOUR).unwrap().reject_with(reject).build();
    let mut service = layer.layer(Echo::default());
    let mut told = |request: Request<()>| {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut context) else {
            panic!("it is ready")
        };
        let of = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let pushback = of("grpc-retry-pushback-ms");
        let mut body = Bytes::new();
        response.into_body().into_inner_or_else(|bytes| body = bytes);
        (String::from_utf8(body.to_vec()).unwrap(), pushback)
    };
    let plain = || from(A, "/");
    assert_eq!(told(plain()), (String::new(), None));
    let problem =
        |(body, pushback): (String, Option<String>), kind: &str| body.contains(kind) && pushback.is_none();
    assert!(problem(told(plain()), "#quota-exceeded"));
    for _ in 0..3 {
        assert!(problem(told(plain()), "#abnormal-usage-detected"));
    }
    // To a client of gRPC a ban is a longer wait.
    assert_eq!(told(crate::serving::grpc(plain())), (String::new(), Some("3600000".to_owned())));
}

/// A timer of the mock clock: ready once the clock has passed its time.
fn timer(now: Arc<AtomicU64>) -> impl Fn(Duration) -> Timer + Send + Sync + 'static {
    move |delay| Timer { due: now.load(Relaxed) + delay.as_nanos() as u64, now: now.clone() }
}

struct Timer {
    due: u64,
    now: Arc<AtomicU64>,
}

impl Future for Timer {
    type Output = ();

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.now.load(Relaxed) >= self.due { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[test]
fn a_request_that_waits_for_its_turn_is_no_refusal() {
    let (limiter, mock) = limiter::<IpAddr>(Quota::per_second(10).burst(1));
    let now = Arc::new(AtomicU64::new(0));
    let advance = |by: Duration| {
        mock.advance(by);
        now.fetch_add(by.as_nanos() as u64, Relaxed);
    };
    let layer = RateLimitLayer::builder(limiter)
        .key(ClientIp::peer())
        .ban_after(2, MINUTE)
        .for_(10 * MINUTE)
        .unwrap()
        .reject_with(reject)
        .build();
    let delay = DelayLayer::by_timer(150 * MS, timer(now.clone()));
    let mut service = delay.layer(layer.layer(Echo::default()));
    let mut context = Context::from_waker(Waker::noop());
    let counts = || {
        let stats = layer.stats();
        (stats.granted, stats.delayed, stats.refused, stats.banned, stats.bans, stats.ban_keys)
    };
    assert_eq!(status(&call(&mut service, from(A, "/"))), 200);
    // More requests wait than refusals ban.
    for n in 1..=10 {
        let mut waits = pin!(service.call(from(A, "/")));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        assert_eq!(counts(), (n, n, 0, 0, 0, 0));
        advance(100 * MS);
        let Poll::Ready(Ok(response)) = waits.as_mut().poll(&mut context) else {
            panic!("its turn has come")
        };
        assert_eq!(response.status(), 200);
    }
    // The next one waits, and two more would wait too long: these are refusals.
    let mut waits = pin!(service.call(from(A, "/")));
    assert!(waits.as_mut().poll(&mut context).is_pending());
    let first = call(&mut service, from(A, "/"));
    assert_eq!((status(&first), is_ban(&first), counts()), (429, Some(false), (11, 11, 1, 0, 0, 1)));
    let second = call(&mut service, from(A, "/"));
    assert_eq!((status(&second), is_ban(&second), counts()), (429, Some(true), (11, 11, 2, 0, 1, 2)));
    assert_eq!(says(&second, "retry-after"), Some("600"));
    // A banned key does not wait, and its refusals count once each.
    for n in 1..=5 {
        let refused = call(&mut service, from(A, "/"));
        assert_eq!((status(&refused), is_ban(&refused), counts()), (429, Some(true), (11, 11, 2, n, 1, 2)));
        assert_eq!((layer.top_refused(9), layer.stats().waiting), (vec![(ip(A), n + 2)], 1));
    }
    // The request that waits keeps its turn.
    advance(100 * MS);
    let Poll::Ready(Ok(response)) = waits.as_mut().poll(&mut context) else { panic!("its turn has come") };
    assert_eq!((response.status().as_u16(), layer.stats().waiting), (200, 0));
    advance(10 * MINUTE);
    assert_eq!(status(&call(&mut service, from(A, "/"))), 200);
    assert_eq!(requests(&layer.stats()), 20);
}

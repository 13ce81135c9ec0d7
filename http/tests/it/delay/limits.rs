// promise: layer
//! Waits at several limits, and at those that do not wait.

use super::*;

/// A second limit, whose bucket is empty.
fn slower(clock: &Clock) -> (RateLimiter<u64>, LimitBy<u64>) {
    let limiter: RateLimiter<u64> = RateLimiter::builder(Quota::per_second(5)).clock(clock.clone()).build();
    assert!(limiter.try_acquire_n(&0, 5).is_ok());
    (limiter.clone(), LimitBy::new(limiter).key(|_: Head<'_>| Some(0_u64)).name("slower").unwrap())
}

fn next_of(limiter: &RateLimiter<u64>) -> u64 {
    u64::try_from(limiter.key(&0).reserve().unwrap().delay().as_nanos()).unwrap()
}

#[test]
fn a_request_waits_for_its_slowest_limit() {
    let mut second = None;
    let mut scene = Scene::with(SECOND, |layer, clock| {
        let (limiter, limit) = slower(clock);
        second = Some(limiter);
        layer.and(limit)
    });
    let second = second.unwrap();
    let mut one = scene.waits();
    let two = scene.waits();
    assert_eq!((scene.next(), next_of(&second)), (3 * TOKEN, 6 * TOKEN));
    drop(two);
    assert_eq!((scene.next(), next_of(&second)), (2 * TOKEN, 4 * TOKEN));
    scene.advance(2 * TOKEN - 1);
    assert!(poll(&mut one).is_none());
    scene.advance(1);
    assert_eq!(poll(&mut one).as_ref().and_then(told), Some("ratelimit;dur=200"));
    assert_eq!(scene.passed(), [(1, 2 * TOKEN)]);
}

#[test]
fn a_limit_gives_its_place_back_if_another_one_refuses() {
    for swap in [false, true] {
        let mut second = None;
        let mut scene = Scene::with(4 * TOKEN, |layer, clock| {
            let (limiter, limit) = slower(clock);
            second = Some(limiter);
            if swap {
                let first = limit;
                let limiter: RateLimiter<u64> = RateLimiter::builder(TEN).clock(clock.clone()).build();
                return layer.when(|_| false).and(first).and(LimitBy::new(limiter).key(key_fn(key)));
            }
            layer.and(limit)
        });
        let second = second.unwrap();
        let line: Vec<_> = (0..2).map(|_| scene.waits()).collect();
        let before = (scene.next(), next_of(&second));
        for _ in 0..3 {
            assert_eq!(scene.is_refused(), 1);
            assert_eq!((scene.next(), next_of(&second)), before);
        }
        assert_eq!((before.1, scene.waiting()), (6 * TOKEN, 2));
        drop(line);
    }
}

#[test]
fn a_request_over_a_window_is_refused_and_takes_no_place() {
    let mut window = None;
    let mut scene = Scene::with(SECOND, |layer, clock| {
        let limiter = RateLimiter::<u64, _>::builder(Window::per_hour(2)).clock(clock.clone()).build();
        window = Some(limiter.clone());
        layer.and(LimitBy::new(limiter).key(|_: Head<'_>| Some(0_u64)).name("window").unwrap())
    });
    let left = || window.as_ref().unwrap().peek(&0).remaining();
    let one = scene.waits();
    assert_eq!((left(), scene.next()), (1, 2 * TOKEN));
    let mut two = scene.waits();
    assert_eq!((left(), scene.next()), (0, 3 * TOKEN));
    for _ in 0..3 {
        assert!(scene.is_refused() > 3_000);
        assert_eq!((left(), scene.next(), scene.waiting()), (0, 3 * TOKEN, 2));
    }
    // The window gets its token back from a request that goes away.
    drop(one);
    assert_eq!((left(), scene.next()), (1, 2 * TOKEN));
    scene.advance(2 * TOKEN);
    assert!(poll(&mut two).is_some());
    assert_eq!((left(), scene.waiting()), (1, 0));
}

#[test]
fn a_layer_of_windows_refuses() {
    let (clock, _mock) = Clock::mock();
    let limiter = RateLimiter::<u64, _>::builder(Window::per_hour(1)).clock(clock).build();
    let timers = Timers::default();
    let sleep = timers.clone();
    let layer = RateLimitLayer::builder(limiter).key(key_fn(key)).build();
    let delay = DelayLayer::by_timer(Duration::MAX, move |delay| sleep.sleep(delay));
    let mut service = delay.layer(layer.layer(Noting::default()));
    for status in [200, 429, 429] {
        let mut request = Request::new(0);
        request.extensions_mut().insert(KEY);
        let response = poll(&mut Box::pin(service.call(request))).unwrap();
        assert_eq!(response.status(), status);
    }
    assert_eq!((timers.made.load(Relaxed), layer.stats().delayed), (0, 0));
}

#[test]
fn a_layer_in_shadow_mode_never_waits() {
    let mut scene = Scene::with(SECOND, |layer, _| layer.enforce(0));
    for _ in 0..3 {
        let response = poll(&mut scene.call()).unwrap();
        assert_eq!((response.status().as_u16(), response.headers().len()), (200, 0));
    }
    let stats = scene.layer.stats();
    assert_eq!((stats.shadow_refused, stats.delayed, stats.waiting), (3, 0, 0));
    assert_eq!((scene.timers.made.load(Relaxed), scene.next()), (0, TOKEN));
}

#[test]
fn a_limit_in_shadow_mode_never_waits() {
    let mut second = None;
    let mut scene = Scene::with(SECOND, |layer, clock| {
        let (limiter, limit) = slower(clock);
        second = Some(limiter);
        layer.and(limit.enforce(0))
    });
    let second = second.unwrap();
    // The enforced limit decides on the wait; the other one is over.
    let mut asked = scene.waits();
    assert_eq!((scene.next(), next_of(&second)), (2 * TOKEN, 2 * TOKEN));
    scene.advance(TOKEN);
    assert_eq!(poll(&mut asked).as_ref().and_then(told), Some("ratelimit;dur=100"));
    assert_eq!(scene.layer.stats().shadow_refused, 1);
    // Without an enforced limit no request waits.
    let mut scene = Scene::with(SECOND, |layer, clock| layer.when(|_| false).and(slower(clock).1.enforce(0)));
    assert_eq!(poll(&mut scene.call()).unwrap().status(), 200);
    let stats = scene.layer.stats();
    assert_eq!((stats.shadow_refused, stats.delayed, scene.timers.made.load(Relaxed)), (1, 0, 0));
}

#[test]
fn a_layer_without_headers_tells_the_wait_to_the_service_alone() {
    for form in [Headers::None, Headers::RetryAfterOnly, Headers::Legacy, Headers::Both, Headers::Ietf] {
        let mut scene = Scene::with(SECOND, |layer, _| layer.headers(form));
        let mut asked = scene.waits();
        scene.advance(TOKEN);
        let response = poll(&mut asked).unwrap();
        let expected = (form != Headers::None).then_some("ratelimit;dur=100");
        assert_eq!((told(&response), response.status().as_u16()), (expected, 200));
        assert_eq!(scene.passed(), [(1, TOKEN)]);
    }
}

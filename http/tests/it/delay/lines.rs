// promise: layer
//! The line of the requests that wait.

use super::*;

#[test]
fn the_place_of_the_last_in_line_is_given_back() {
    let mut scene = Scene::new(SECOND);
    let first = scene.waits();
    let last = scene.waits();
    assert_eq!((scene.waiting(), scene.next()), (2, 3 * TOKEN));
    drop(last);
    assert_eq!((scene.waiting(), scene.next(), scene.timers.alive()), (1, 2 * TOKEN, 1));
    // The next one gets its time.
    let mut next = scene.waits();
    scene.advance(2 * TOKEN - 1);
    assert!(poll(&mut next).is_none());
    scene.advance(1);
    assert_eq!(poll(&mut next).as_ref().and_then(told), Some("ratelimit;dur=200"));
    assert_eq!(scene.passed(), [(3, 2 * TOKEN)]);
    drop(first);
    assert_eq!((scene.waiting(), scene.timers.alive()), (0, 0));
}

/// The delay that a request tells is its own: the place of one that goes away is a wait less.
#[test]
fn a_place_in_the_middle_goes_to_the_later_ones() {
    let mut scene = Scene::new(SECOND);
    let mut line: Vec<_> = (0..4).map(|_| scene.waits()).collect();
    drop(line.remove(1));
    assert_eq!((scene.waiting(), scene.next()), (3, 4 * TOKEN));
    for (index, number, waited) in [(0, 1, 1), (1, 3, 2), (2, 4, 3)] {
        // Each is polled when its task is woken.
        line[index..].iter_mut().for_each(|asked| assert!(poll(asked).is_none()));
        scene.advance(TOKEN - 1);
        assert!(poll(&mut line[index]).is_none());
        scene.advance(1);
        let response = poll(&mut line[index]).expect("its turn has come");
        assert_eq!(told(&response), Some(&*format!("ratelimit;dur={}", 100 * waited)));
        assert_eq!(scene.passed().last(), Some(&(number, waited * TOKEN)));
    }
    assert_eq!((scene.waiting(), scene.next()), (0, TOKEN));
}

/// Each of the busy keys has an eighth of the line at most, so there is room for another one.
#[test]
fn no_key_fills_the_line_of_a_layer() {
    let quota = Quota::per_second(100).burst(200);
    let limiter: RateLimiter<u64> = RateLimiter::builder(quota).clock(Clock::mock().0).build();
    let build = |set: fn(DelayLayer) -> DelayLayer| {
        let layer = RateLimitLayer::builder(limiter.clone()).key(key_fn(key)).build();
        (layer, set(DelayLayer::by_timer(ns(5 * SECOND), |_| std::future::pending())))
    };
    let refused = |(layer, delay): &(RateLimitLayer<u64>, DelayLayer),
                   key: u64,
                   requests: usize,
                   line: &mut Vec<Asked>| {
        let mut refused = 0;
        for _ in 0..requests {
            let mut request = Request::new(0);
            request.extensions_mut().insert(key);
            let mut asked: Asked = Box::pin(delay.layer(layer.layer(Noting::default())).call(request));
            match poll(&mut asked) {
                Some(response) => refused += usize::from(response.status() == 429),
                None => line.push(asked),
            }
        }
        refused
    };
    let (layer, mut line) = (build(|layer| layer), Vec::new());
    for busy in 1..=6 {
        assert_eq!(refused(&layer, busy, 1_000, &mut line), 1_000 - 200 - 128);
    }
    assert_eq!(refused(&layer, KEY, 240, &mut line), 0, "{} wait", layer.0.stats().waiting);
    drop(line);
    // A refusal tells the bound, and when the first in line is served.
    let denied = limiter.key(&1).reserve().map(drop);
    assert!(denied.is_ok(), "all places came back: {denied:?}");
    for layer in [
        build(|layer| layer.max_waiting(64).max_waiting_per_key(3)),
        build(|layer| layer.max_waiting_per_key(3).max_waiting(64)),
    ] {
        let mut line = Vec::new();
        assert_eq!((refused(&layer, 8, 210, &mut line), layer.0.stats().waiting), (7, 3));
        drop(line);
        assert!(limiter.remove(&8));
    }
}

/// A key has a line at each limit, so a limit by the same key leaves its bound as it is. A request
/// without a key has the bound of the layer alone.
#[test]
fn the_bound_of_a_key_is_of_each_limit_and_not_of_requests_without_a_key() {
    let empty = |clock: &Clock| {
        let limiter: RateLimiter<u64> = RateLimiter::builder(TEN).clock(clock.clone()).build();
        assert!(limiter.try_acquire_n(&KEY, 10).is_ok());
        limiter
    };
    for most in [0, 3] {
        let line = |delay: DelayLayer| delay.max_waiting_per_key(most);
        let mut scene = Scene::in_line(SECOND, line, |layer, clock| {
            layer.and(LimitBy::new(empty(clock)).key(key_fn(key)).name("same").unwrap())
        });
        let line: Vec<_> = (0..most).map(|_| scene.waits()).collect();
        assert_eq!((scene.is_refused(), scene.waiting()), (1, most));
        drop(line);
    }
    let (clock, _mock) = Clock::mock();
    let limiter = empty(&clock);
    assert!(limiter.shared().n(10).try_acquire().is_ok());
    let layer = RateLimitLayer::builder(limiter).shared().build();
    let delay = DelayLayer::by_timer(ns(SECOND), |_| std::future::pending()).max_waiting_per_key(0);
    let mut asked: Asked = Box::pin(delay.layer(layer.layer(Noting::default())).call(Request::new(0)));
    assert!(poll(&mut asked).is_none());
}

#[test]
fn a_refusal_by_a_full_line_has_its_reason() {
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let seen = reasons.clone();
    let line = |delay: DelayLayer| delay.max_waiting(1);
    let mut scene = Scene::in_line(SECOND, line, |layer, _| {
        layer.on_decision(move |_, decision| {
            seen.lock().unwrap().extend(decision.result().err().map(|denied| denied.reason()));
        })
    });
    let one = scene.waits();
    assert_eq!(scene.is_refused(), 1);
    drop(one);
    drop(scene.waits());
    assert_eq!(*reasons.lock().unwrap(), [Reason::Line]);
}

/// Two lines of one layer have one bound.
#[test]
fn the_services_of_a_layer_have_one_line() {
    let (clock, _mock) = Clock::mock();
    let limiter: RateLimiter<u64> = RateLimiter::builder(TEN).clock(clock).build();
    assert!(limiter.try_acquire_n(&KEY, 10).is_ok());
    let layer = RateLimitLayer::builder(limiter).key(key_fn(key)).build();
    let delay = DelayLayer::by_timer(ns(SECOND), |_| std::future::pending()).max_waiting(2);
    let mut line = Vec::new();
    for waits in [true, true, false] {
        let mut request = Request::new(0);
        request.extensions_mut().insert(KEY);
        let mut asked: Asked = Box::pin(delay.layer(layer.layer(Noting::default())).call(request));
        assert_eq!(poll(&mut asked).is_none(), waits);
        line.push(asked);
    }
}

#[test]
fn a_line_that_goes_away_from_its_end_gives_all_places_back() {
    let mut scene = Scene::new(SECOND);
    let mut line: Vec<_> = (0..7).map(|_| scene.waits()).collect();
    for left in (0..7).rev() {
        drop(line.pop());
        assert_eq!((scene.waiting() as u64, scene.next()), (left, (left + 1) * TOKEN));
    }
    // A future that was never polled has a place as well.
    let unpolled = scene.call();
    assert_eq!((scene.waiting(), scene.next()), (1, 2 * TOKEN));
    drop(unpolled);
    assert_eq!((scene.waiting(), scene.next(), scene.timers.polls.load(Relaxed)), (0, TOKEN, 15));
}

#[test]
fn a_timer_is_dropped_with_its_request_and_not_polled_again() {
    let mut scene = Scene::new(SECOND);
    let mut one = scene.waits();
    let two = scene.waits();
    drop(two);
    let polls = scene.timers.polls.load(Relaxed);
    assert_eq!(scene.timers.alive(), 1);
    scene.advance(SECOND);
    assert_eq!(scene.timers.polls.load(Relaxed), polls);
    // The service within is busy, so the future is polled after the timer is over.
    scene.inner.busy.store(true, Relaxed);
    assert!(poll(&mut one).is_none() && poll(&mut one).is_none());
    assert_eq!((scene.timers.polls.load(Relaxed), scene.timers.alive()), (polls + 1, 0));
}

#[test]
fn a_request_that_had_its_turn_is_out_of_the_line_while_the_service_is_busy() {
    let mut scene = Scene::new(SECOND);
    let mut asked = scene.waits();
    scene.inner.busy.store(true, Relaxed);
    scene.advance(TOKEN);
    assert!(poll(&mut asked).is_none());
    assert_eq!((scene.waiting(), scene.timers.alive(), scene.next()), (0, 0, TOKEN));
    scene.inner.busy.store(false, Relaxed);
    assert_eq!(poll(&mut asked).as_ref().and_then(told), Some("ratelimit;dur=100"));
    // The tokens of a request are spent at its turn.
    scene.inner.busy.store(true, Relaxed);
    let mut asked = scene.waits();
    scene.advance(TOKEN);
    assert!(poll(&mut asked).is_none());
    drop(asked);
    assert_eq!((scene.next(), scene.passed()), (TOKEN, vec![(1, TOKEN)]));
}

#[test]
fn at_most_max_waiting_requests_are_in_line() {
    for max in [0, 1, 3] {
        let mut scene = Scene::in_line(SECOND, |delay| delay.max_waiting(max), |layer, _| layer);
        let mut line: Vec<_> = (0..max).map(|_| scene.waits()).collect();
        for _ in 0..3 {
            assert_eq!((scene.is_refused(), scene.waiting()), (1, max));
        }
        assert_eq!(scene.timers.made.load(Relaxed), max);
        if line.pop().is_some() {
            line.push(scene.waits());
            assert_eq!((scene.is_refused(), scene.waiting()), (1, max));
        }
        // A request within its limits needs no place.
        drop(line);
        scene.advance(SECOND);
        assert_eq!(poll(&mut scene.call()).unwrap().status(), 200);
    }
}

#[test]
fn max_waiting_is_exact_among_threads() {
    const MAX: usize = 100;
    let (clock, mock) = Clock::mock();
    let limiter: RateLimiter<u64> = RateLimiter::builder(Quota::per_second(1_000)).clock(clock).build();
    let timers = Timers::default();
    let layer = RateLimitLayer::builder(limiter.clone()).key(key_fn(key)).build();
    let delay = DelayLayer::by_timer(ns(SECOND), {
        let timers = timers.clone();
        move |delay| timers.sleep(delay)
    });
    let delay = delay.max_waiting(MAX).max_waiting_per_key(MAX);
    let call = || -> Asked {
        let mut request = Request::new(0);
        request.extensions_mut().insert(KEY);
        Box::pin(delay.layer(layer.layer(Noting::default())).call(request))
    };
    let fill = || {
        let mut line: Vec<Asked> = (0..MAX).map(|_| call()).collect();
        line.retain_mut(|asked| poll(asked).is_none());
        line
    };
    // Places that are left and taken at the same time are never more.
    let churn = |mut line: Vec<Asked>| {
        while line.pop().is_some() {
            let asked = call();
            assert!(layer.stats().waiting <= MAX);
            drop(asked);
        }
    };
    for _ in 0..200 {
        // All places were given back.
        mock.advance(ns(SECOND));
        assert!(limiter.try_acquire_n(&KEY, 1_000).is_ok());
        // Both threads fill the line.
        let [one, two] =
            thread::scope(|scope| [(); 2].map(|()| scope.spawn(fill)).map(|thread| thread.join().unwrap()));
        assert_eq!((one.len() + two.len(), layer.stats().waiting, timers.alive()), (MAX, MAX, MAX));
        assert!(poll(&mut call()).is_some_and(|response| response.status() == 429));
        thread::scope(|scope| {
            for line in [one, two] {
                scope.spawn(|| churn(line));
            }
        });
        assert_eq!((layer.stats().waiting, timers.alive()), (0, 0));
    }
}

/// One client makes up keys, of which each has used its burst, and another one arrives. With an
/// address as the owner, the newcomer has a place as long as one is free.
#[test]
fn a_client_that_makes_up_keys_leaves_places_for_others() {
    let quota = Quota::per_second(1).burst(1);
    let limiter: RateLimiter<u64> = RateLimiter::builder(quota).clock(Clock::mock().0).build();
    let layer = RateLimitLayer::builder(limiter).key(key_fn(key)).build();
    let by_timer = || DelayLayer::by_timer(ns(60 * SECOND), |_| std::future::pending());
    // The client behind a proxy.
    let by_header =
        key_fn(|head: Head<'_>| head.headers.get("x-client").map(|value| value.as_bytes().to_vec()));
    let peer = |last: u8, request: &mut Request<u64>| {
        request.extensions_mut().insert(IpAddr::from([192, 0, 2, last]));
    };
    let header = |last: u8, request: &mut Request<u64>| {
        request.extensions_mut().insert(IpAddr::from([192, 0, 2, 1]));
        request.headers_mut().insert("x-client", u16::from(last).into());
    };
    type Mark = fn(u8, &mut Request<u64>);
    let marks: [(DelayLayer, Mark, [usize; 3]); 4] = [
        (by_timer(), peer, [512, 256, 128]),
        (by_timer().max_waiting(100), peer, [50, 25, 13]),
        (by_timer().owner(by_header), header, [512, 256, 128]),
        // Without an owner there is one bound, which the first one takes.
        (by_timer(), |_, _| (), [1_024, 0, 0]),
    ];
    let mut made_up = 0_u64;
    for (delay, mark, places) in marks {
        let mut line = Vec::new();
        for (client, places) in (1..).zip(places) {
            let before = line.len();
            for _ in 0..1_100 {
                made_up += 1;
                for is_second in [false, true] {
                    let mut request = Request::new(0);
                    request.extensions_mut().insert(made_up);
                    mark(client, &mut request);
                    let mut asked: Asked =
                        Box::pin(delay.layer(layer.layer(Noting::default())).call(request));
                    match poll(&mut asked) {
                        Some(response) => {
                            assert_eq!(response.status(), if is_second { 429 } else { 200 }, "{made_up}")
                        }
                        None => line.push(asked),
                    }
                }
            }
            assert_eq!(line.len() - before, places, "client {client}");
        }
        assert_eq!(layer.stats().waiting, line.len());
        line.clear();
        assert_eq!(layer.stats().waiting, 0, "all places came back");
    }
}

// promise: layer
//! Costs at several limits, and at those in shadow mode.

use super::*;

#[test]
fn a_window_takes_the_tokens_that_are_left() {
    let (clock, mock) = Clock::mock();
    let limiter = RateLimiter::<u64, _>::builder(Window::per_minute(1_000)).clock(clock).build();
    let layer = RateLimitLayer::builder(limiter.clone()).key(key_fn(key)).cost(estimate);
    let mut service = layer.settle_on(|_| Cost::bytes()).build().layer(Mirror);
    let left = || limiter.peek(&KEY).remaining();
    let mut granted = |steps: &[usize]| {
        let response = ask(&mut service, ESTIMATE, Ok(brings(steps.iter().copied().map(data)))).unwrap();
        (response.status().as_u16(), response.into_body())
    };
    // An excess is refunded, and a shortfall is taken.
    for (bytes, expected) in [(30, 970), (200, 770)] {
        let (status, mut body) = granted(&[bytes]);
        read(&mut body);
        drop(body);
        assert_eq!((status, left()), (200, expected));
    }
    let (_, mut body) = granted(&[700, 700, 700]);
    for expected in [70, 0, 0] {
        assert!(pull(&mut body).unwrap().is_ok());
        assert_eq!(left(), expected);
    }
    drop(body);
    assert_eq!((left(), granted(&[]).0), (0, 429));
    // A window owes nothing to the next one.
    let wait = limiter.try_acquire(&KEY).unwrap_err().retry_after().unwrap();
    mock.advance(wait - ns(1));
    assert_eq!((left(), granted(&[]).0), (0, 429));
    mock.advance(ns(1));
    assert_eq!((left(), granted(&[]).0), (1_000, 200));
}

/// Three answers of 9,000 at once, or ten of 100,000, at 10,000 a minute and estimates of 100. The
/// wait that is told once is enough, and at most the time of a burst and a token.
#[test]
fn a_large_answer_blocks_its_key_for_the_time_of_its_debt_at_most() {
    let bucket = Quota::per_minute(10_000);
    let fixed = Window::per_minute(10_000);
    let windows = [fixed, fixed.utc(), fixed.granularity(ns(30 * SECOND)).unwrap()];
    let rules = [AnyRule::from(bucket)].into_iter().chain(windows.map(AnyRule::from));
    for rule in rules {
        for (answers, tokens) in [(3, 9_000), (10, 100_000)] {
            let (clock, mock) = Clock::mock();
            mock.advance(ns(30 * SECOND));
            let of_quota = |quota| RateLimiter::<u64>::builder(quota).clock(clock.clone()).build();
            let of_window = |window| RateLimiter::<u64, _>::builder(window).clock(clock.clone()).build();
            let limiter: AnyLimiter<u64> = match rule {
                AnyRule::Quota(quota) => of_quota(quota).into(),
                AnyRule::Window(window) => of_window(window).into(),
            };
            let layer = RateLimitLayer::builder(limiter).key(key_fn(key)).cost(estimate);
            let mut service = layer.settle_on(|_| Cost::bytes()).build().layer(Mirror);
            let mut asks = |n, brought| ask(&mut service, Estimate(n), Ok(brought)).unwrap();
            // All are granted before the first answer tells its cost.
            let mut open: Vec<_> =
                (0..answers).map(|_| asks(100, brings([data(tokens)])).into_body()).collect();
            open.iter_mut().for_each(|body| _ = read(body));
            drop(open);
            let refused = asks(1, brings([]));
            assert_eq!(refused.status(), 429);
            let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
            // A sliding window counts a part of 30 s beyond the minute.
            assert!((1..=92).contains(&wait) && (wait <= 61 || rule == windows[2].into()), "{rule}: {wait}");
            mock.advance(ns(wait * SECOND));
            assert_eq!(asks(1, brings([])).status(), 200, "{rule}");
        }
    }
}

#[test]
fn a_cost_is_settled_under_the_plan_of_its_request() {
    let (clock, mock) = Clock::mock();
    let gold = Quota::per_second(10_000);
    let limiter = RateLimiter::builder(BYTES).headroom(gold).unwrap().clock(clock).build();
    let plan = limiter.plan(gold).unwrap();
    let mut scene =
        Scene::of(limiter, mock, move |layer| layer.plan(move |_| Some(plan)).settle_on(of_header));
    let left = |scene: &Scene| scene.limiter.key(&KEY).under(&plan).peek().remaining();
    let response = scene.ask(costs(4_000));
    assert_eq!((left(&scene), reported(&response)), (6_000, 6_000));
    scene.ask(costs(10));
    assert_eq!(left(&scene), 5_990);
    scene.ask(costs(5_990 + 500));
    let denied = scene.limiter.key(&KEY).under(&plan).try_acquire().unwrap_err();
    // A charge is rounded up, to at most a token of the plan.
    let (exact, token) = (501 * MILLISECOND / 10, MILLISECOND / 10);
    let wait = u64::try_from(denied.retry_after().unwrap().as_nanos()).unwrap();
    assert!((exact..exact + token).contains(&wait), "{wait}");
    let refused = ask(&mut scene.service, Estimate(1), Ok(brings([]))).unwrap();
    assert_eq!(refused.status(), 429);
    scene.mock.advance(ns(wait - 1));
    assert_eq!(ask(&mut scene.service, Estimate(1), Ok(brings([]))).unwrap().status(), 429);
    scene.mock.advance(ns(1));
    assert_eq!(ask(&mut scene.service, Estimate(1), Ok(brings([]))).unwrap().status(), 200);
}

/// A limit for all requests, beside that of the scene.
fn shared(quota: Quota, clock: &Clock) -> (RateLimiter<u64>, LimitBy<u64>) {
    let limiter = RateLimiter::builder(quota).clock(clock.clone()).build();
    let limit = LimitBy::new(limiter.clone()).key(|_: Head<'_>| Some(0)).name("all").unwrap();
    (limiter, limit)
}

#[test]
fn a_cost_is_settled_at_each_limit_or_at_none() {
    let (clock, mock) = Clock::mock();
    let (all, by_all) = shared(Quota::per_second(2_000), &clock);
    let limiter = RateLimiter::builder(BYTES).clock(clock).build();
    let mut scene =
        Scene::of(limiter, mock, |layer| layer.and(by_all).settle_on(|_| Cost::bytes().at_least(0)));
    let left = |scene: &Scene| (scene.left(), all.peek(&0).remaining());
    let mut body = scene.body([data(300), data(100)]);
    assert_eq!(left(&scene), (900, 1_900));
    for expected in [(700, 1_700), (600, 1_600)] {
        assert!(pull(&mut body).unwrap().is_ok());
        assert_eq!(left(&scene), expected);
    }
    drop(body);
    drop(scene.body([data(10)]));
    assert_eq!(left(&scene), (600, 1_600), "a body that is not polled costs nothing");
    // The first limit owes, so no request takes from the second one.
    read(&mut scene.body([data(1_100)]));
    assert_eq!(left(&scene), (0, 500));
    scene.is_refused(501 * MILLISECOND);
    assert_eq!(left(&scene), (0, 500));
    scene.mock.advance(ns(501 * MILLISECOND));
    assert_eq!(left(&scene), (1, 500 + 1_002));
    // The second limit owes, so no request takes from the first one.
    let all_owes = all.key(&0).n(0).hold().unwrap().settle(1_502 + 100);
    assert_eq!((all_owes, left(&scene)), (0, (1, 0)));
    let refused = ask(&mut scene.service, Estimate(1), Ok(brings([]))).unwrap();
    assert_eq!((refused.status().as_u16(), left(&scene)), (429, (1, 0)));
    scene.mock.advance(ns(MILLISECOND * 101 / 2));
    scene.estimate = Estimate(1);
    let response = scene.ask(brings([data(7)]));
    assert_eq!(left(&scene), (1 + 50 - 1, 0));
    drop(response);
    assert_eq!(left(&scene), (51, 1));
}

#[test]
fn a_layer_without_keys_settles_with_its_one_bucket() {
    let (clock, mock) = Clock::mock();
    let limiter: RateLimiter<u64> = RateLimiter::builder(BYTES).clock(clock).build();
    let layer = RateLimitLayer::builder(limiter.clone()).shared().cost(estimate);
    let mut service = layer.settle_on(of_header).build().layer(Mirror);
    let mut asks = |estimate, brought| ask(&mut service, Estimate(estimate), Ok(brought)).unwrap();
    // The first take of the bucket is one of no token.
    assert_eq!(reported(&asks(0, costs(40))), 960);
    assert_eq!(reported(&asks(100, costs(10))), 950);
    assert_eq!(reported(&asks(100, costs(100))), 850);
    assert_eq!(reported(&asks(100, costs(850 + 500))), 0);
    for wait in [501 * MILLISECOND, 1] {
        let refused = asks(1, costs(0));
        assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &1.into()));
        mock.advance(ns(if wait == 1 { 1 } else { wait - 1 }));
    }
    assert_eq!(asks(1, costs(1)).status(), 200);
    assert_eq!(asks(1, costs(1)).status(), 429);
    assert_eq!(limiter.len(), 0);
}

#[test]
fn a_limit_in_shadow_mode_settles_the_tokens_that_it_gave() {
    let (clock, mock) = Clock::mock();
    let (all, by_all) = shared(BYTES, &clock);
    let limiter = RateLimiter::builder(Quota::per_second(5_000)).clock(clock).build();
    let by_all = by_all.enforce(0);
    let mut scene = Scene::of(limiter, mock, |layer| layer.and(by_all).settle_on(of_header));
    let left = |scene: &Scene| (scene.left(), all.peek(&0).remaining());
    scene.ask(costs(30));
    assert_eq!(left(&scene), (4_970, 970));
    scene.ask(costs(970 + 200));
    assert_eq!(left(&scene), (3_800, 0));
    // It owes 200, so it gives no tokens, and none are settled there.
    scene.ask(costs(0));
    scene.ask(costs(300));
    assert_eq!(left(&scene), (3_500, 0));
    assert_eq!(all.try_acquire(&0).unwrap_err().retry_after(), Some(ns(201 * MILLISECOND)));
    assert_eq!(scene.layer.stats().shadow_refused, 2);
}

#[test]
fn a_limit_settles_its_tokens_beside_another_one_that_is_over() {
    // No limit that is enforced applies. One in shadow mode is over, and the other one gave tokens.
    for swap in [false, true] {
        let (clock, mock) = Clock::mock();
        let (small, by_small) = shared(Quota::per_second(10), &clock);
        let (large, by_large) = shared(Quota::per_second(1_000), &clock);
        let limiter = RateLimiter::builder(BYTES).clock(clock).build();
        let [one, two] = if swap { [by_large, by_small] } else { [by_small, by_large] };
        let (one, two) = (one.enforce(0), two.enforce(0));
        let mut scene =
            Scene::of(limiter, mock, |layer| layer.when(|_| false).and(one).and(two).settle_on(of_header));
        let response = scene.ask(costs(300));
        assert!(!response.headers().contains_key("ratelimit"));
        let left = [scene.left(), small.peek(&0).remaining(), large.peek(&0).remaining()];
        assert_eq!(left, [1_000, 10, 700], "{swap}");
        scene.ask(costs(0));
        assert_eq!(large.peek(&0).remaining(), 700, "{swap}");
        assert_eq!(scene.layer.stats().shadow_refused, 2);
    }
}

#[test]
fn a_layer_in_shadow_mode_settles_the_requests_within_its_limits() {
    let mut scene = Scene::with(BYTES, |layer| layer.enforce(0).settle_on(of_header));
    scene.ask(costs(300));
    assert_eq!(scene.left(), 700);
    scene.ask(costs(800));
    assert_eq!(scene.left(), 0);
    // A request over the limit takes no tokens, and settles none.
    scene.ask(costs(0));
    scene.ask(costs(500));
    assert_eq!(scene.limiter.try_acquire(&KEY).unwrap_err().retry_after(), Some(ns(101 * MILLISECOND)));
}

// promise: layer
//! Requests that wait for their turn, by a timer of the mock clock.

#[path = "delay/limits.rs"]
mod limits;
#[path = "delay/lines.rs"]
mod lines;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use http::{Request, Response};
use tollgate::{Clock, MockClock, Quota, RateLimiter, Reason, Window};
use tollgate_http::{
    Cost, Decision, DelayLayer, Head, Headers, LayerBuilder, LimitBy, RateLimit, RateLimitLayer,
    ResponseBody, ResponseFuture, key_fn,
};
use tower_layer::Layer;
use tower_service::Service;

use tollgate_testing::{SECOND, ns};

const MILLISECOND: u64 = 1_000_000;
const KEY: u64 = 7;
/// A token each 100 ms, and a burst of ten.
const TEN: Quota = Quota::per_second(10);
const TOKEN: u64 = 100 * MILLISECOND;

/// The time of a scene, and counts of its timers.
#[derive(Clone, Default)]
struct Timers {
    now: Arc<AtomicU64>,
    made: Arc<AtomicUsize>,
    alive: Arc<AtomicUsize>,
    polls: Arc<AtomicUsize>,
}

impl Timers {
    fn sleep(&self, delay: Duration) -> Sleep {
        self.made.fetch_add(1, Relaxed);
        self.alive.fetch_add(1, Relaxed);
        let delay = u64::try_from(delay.as_nanos()).unwrap();
        Sleep { timers: self.clone(), end: self.now.load(Relaxed) + delay, over: false }
    }

    fn alive(&self) -> usize {
        self.alive.load(Relaxed)
    }
}

/// A timer that is not polled again once it is over.
struct Sleep {
    timers: Timers,
    end: u64,
    over: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        assert!(!self.over, "the timer is over");
        self.timers.polls.fetch_add(1, Relaxed);
        self.over = self.timers.now.load(Relaxed) >= self.end;
        if self.over { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.timers.alive.fetch_sub(1, Relaxed);
    }
}

/// A service that notes each request with the delay of its decision.
#[derive(Clone, Default)]
struct Noting {
    calls: Arc<Mutex<Vec<(u64, Duration)>>>,
    busy: Arc<AtomicBool>,
}

impl Service<Request<u64>> for Noting {
    type Response = Response<u64>;
    type Error = Infallible;
    type Future = Ready<Result<Response<u64>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.busy.load(Relaxed) { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn call(&mut self, request: Request<u64>) -> Self::Future {
        let delay = request.extensions().get::<Decision>().map(Decision::delay);
        self.calls.lock().unwrap().push((*request.body(), delay.expect("the request was decided on")));
        ready(Ok(Response::new(request.into_body())))
    }
}

type Asked = Pin<Box<ResponseFuture<Noting, u64>>>;
type Answered = Response<ResponseBody<u64>>;

fn poll(asked: &mut Asked) -> Option<Answered> {
    match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(response) => Some(response.unwrap()),
        Poll::Pending => None,
    }
}

fn key(head: Head<'_>) -> Option<u64> {
    head.extensions.get::<u64>().copied()
}

/// Returns the milliseconds of a response's `Server-Timing`.
fn told(response: &Answered) -> Option<&str> {
    response.headers().get("server-timing").map(|value| value.to_str().unwrap())
}

struct Scene {
    limiter: RateLimiter<u64>,
    mock: MockClock,
    timers: Timers,
    inner: Noting,
    layer: RateLimitLayer<u64>,
    service: RateLimit<Noting>,
    asked: u64,
}

impl Scene {
    /// A layer of an empty bucket, whose requests wait for up to `max_delay` nanoseconds.
    fn new(max_delay: u64) -> Scene {
        Scene::with(max_delay, |layer, _| layer)
    }

    fn with(max_delay: u64, set: impl FnOnce(LayerBuilder<u64>, &Clock) -> LayerBuilder<u64>) -> Scene {
        Scene::in_line(max_delay, |delay| delay, set)
    }

    fn in_line(
        max_delay: u64,
        line: impl FnOnce(DelayLayer) -> DelayLayer,
        set: impl FnOnce(LayerBuilder<u64>, &Clock) -> LayerBuilder<u64>,
    ) -> Scene {
        let (clock, mock) = Clock::mock();
        let limiter: RateLimiter<u64> = RateLimiter::builder(TEN).clock(clock.clone()).build();
        let (timers, inner) = (Timers::default(), Noting::default());
        let sleep = timers.clone();
        let layer = set(RateLimitLayer::builder(limiter.clone()).key(key_fn(key)), &clock).build();
        let delay = line(DelayLayer::by_timer(ns(max_delay), move |delay| sleep.sleep(delay)));
        let service = delay.layer(layer.layer(inner.clone()));
        assert!(limiter.try_acquire_n(&KEY, 10).is_ok());
        Scene { limiter, mock, timers, inner, layer, service, asked: 0 }
    }

    fn advance(&self, nanos: u64) {
        self.mock.advance(ns(nanos));
        self.timers.now.fetch_add(nanos, Relaxed);
    }

    /// Begins a request, whose body is its number.
    fn call(&mut self) -> Asked {
        self.asked += 1;
        let mut request = Request::new(self.asked);
        request.extensions_mut().insert(KEY);
        let mut context = Context::from_waker(Waker::noop());
        assert!(self.service.poll_ready(&mut context).is_ready());
        Box::pin(self.service.call(request))
    }

    /// Begins a request that waits.
    fn waits(&mut self) -> Asked {
        let mut asked = self.call();
        assert!(poll(&mut asked).is_none());
        asked
    }

    /// Returns the `Retry-After` of a request that is refused at once.
    fn is_refused(&mut self) -> u64 {
        let response = poll(&mut self.call()).expect("it is refused");
        assert_eq!((response.status().as_u16(), told(&response)), (429, None));
        response.headers()["retry-after"].to_str().unwrap().parse().unwrap()
    }

    /// Returns the numbers of the requests that were passed on, and their delays in nanoseconds.
    fn passed(&self) -> Vec<(u64, u64)> {
        let calls = self.inner.calls.lock().unwrap();
        calls.iter().map(|(number, delay)| (*number, delay.as_nanos() as u64)).collect()
    }

    fn waiting(&self) -> usize {
        self.layer.stats().waiting
    }

    /// Returns the time in nanoseconds until the next token that no request has.
    fn next(&self) -> u64 {
        let reservation = self.limiter.key(&KEY).reserve().unwrap();
        u64::try_from(reservation.delay().as_nanos()).unwrap()
    }
}

#[test]
fn requests_are_passed_on_in_their_order_at_exactly_their_times() {
    let mut scene = Scene::new(SECOND);
    let mut asked: BTreeMap<u64, Asked> = (1..=5).map(|number| (number, scene.waits())).collect();
    assert_eq!((scene.waiting(), scene.layer.stats().delayed, scene.timers.alive()), (5, 5, 5));
    for number in 1..=5 {
        scene.advance(TOKEN - 1);
        // The later ones are polled first.
        asked.values_mut().rev().for_each(|asked| assert!(poll(asked).is_none()));
        scene.advance(1);
        let over: Vec<_> = asked.iter_mut().rev().filter_map(|(n, asked)| Some((*n, poll(asked)?))).collect();
        let [(passed, response)] = &over[..] else { panic!("one at a time, not {}", over.len()) };
        let timing = format!("ratelimit;dur={}", 100 * number);
        assert_eq!((*passed, told(response)), (number, Some(&*timing)));
        assert_eq!(response.status(), 200);
        asked.remove(&number);
        assert_eq!(scene.waiting(), 5 - number as usize);
        assert_eq!(scene.timers.alive(), 5 - number as usize);
    }
    assert_eq!(scene.passed(), [1, 2, 3, 4, 5].map(|number| (number, number * TOKEN)));
    let stats = scene.layer.stats();
    assert_eq!((stats.granted, stats.refused, stats.delayed, stats.waiting), (5, 0, 5, 0));
}

#[test]
fn a_request_within_its_limits_does_not_wait() {
    let mut scene = Scene::new(SECOND);
    scene.advance(TOKEN);
    let response = poll(&mut scene.call()).unwrap();
    assert_eq!((response.status().as_u16(), told(&response)), (200, None));
    assert_eq!((scene.passed(), scene.timers.made.load(Relaxed)), (vec![(1, 0)], 0));
    let stats = scene.layer.stats();
    assert_eq!((stats.granted, stats.delayed, stats.waiting), (1, 0, 0));
    drop(scene.waits());
    assert_eq!(scene.layer.stats().delayed, 1);
}

#[test]
fn a_request_that_would_wait_longer_is_refused_until_it_may_wait() {
    for (max_delay, room) in [(0, 0), (TOKEN - 1, 0), (TOKEN, 1), (3 * TOKEN - 1, 2), (3 * TOKEN, 3)] {
        let waits = Arc::new(Mutex::new(Vec::new()));
        let mut scene = Scene::with(max_delay, |layer, _| {
            let waits = waits.clone();
            layer.on_decision(move |_, decision| {
                waits.lock().unwrap().extend(decision.result().err().map(|denied| denied.retry_after()));
            })
        });
        let line: Vec<_> = (0..room).map(|_| scene.waits()).collect();
        for _ in 0..3 {
            assert_eq!(scene.is_refused(), 1);
        }
        let wait = (room + 1) * TOKEN - max_delay;
        assert_eq!(*waits.lock().unwrap(), [Some(ns(wait)); 3], "{max_delay}");
        assert_eq!((scene.waiting(), scene.next()), (line.len(), (room + 1) * TOKEN));
        let stats = scene.layer.stats();
        assert_eq!((stats.refused, stats.delayed), (3, room));
        // One nanosecond earlier it is refused.
        scene.advance(wait - 1);
        assert_eq!(scene.is_refused(), 1);
        scene.advance(1);
        assert_eq!(poll(&mut scene.call()).is_none(), max_delay > 0);
    }
}

#[test]
fn a_refusal_in_line_tells_the_seconds_until_it_may_wait() {
    let mut scene = Scene::with(25 * SECOND, |layer, clock| {
        let quota = Quota::every(ns(10 * SECOND)).burst(9);
        let slow: RateLimiter<u64> = RateLimiter::builder(quota).clock(clock.clone()).build();
        assert!(slow.try_acquire_n(&0, 9).is_ok());
        layer.and(LimitBy::new(slow).key(|_: Head<'_>| Some(0_u64)))
    });
    let _line = [scene.waits(), scene.waits()];
    assert_eq!(scene.is_refused(), 5);
    scene.advance(3 * SECOND);
    assert_eq!(scene.is_refused(), 2);
    scene.advance(2 * SECOND);
    drop(scene.waits());
}

#[test]
fn a_layer_without_keys_has_one_line() {
    let (clock, mock) = Clock::mock();
    let limiter: RateLimiter<u64> = RateLimiter::builder(Quota::per_second(10).burst(2)).clock(clock).build();
    let timers = Timers::default();
    let sleep = timers.clone();
    let layer = RateLimitLayer::builder(limiter).shared().build();
    let delay = DelayLayer::by_timer(ns(2 * TOKEN), move |delay| sleep.sleep(delay));
    let mut service = delay.layer(layer.layer(Noting::default()));
    let mut call = |number| -> Asked { Box::pin(service.call(Request::new(number))) };
    assert!(poll(&mut call(1)).is_some() && poll(&mut call(2)).is_some());
    let (mut three, mut four) = (call(3), call(4));
    assert!(poll(&mut three).is_none() && poll(&mut four).is_none());
    assert_eq!(poll(&mut call(5)).unwrap().status(), 429);
    // The last one goes away, and the next one has its place.
    drop(four);
    let mut six = call(6);
    assert!(poll(&mut six).is_none());
    for asked in [&mut three, &mut six] {
        mock.advance(ns(TOKEN));
        timers.now.fetch_add(TOKEN, Relaxed);
        assert_eq!(poll(asked).unwrap().status(), 200);
    }
    assert_eq!((layer.stats().waiting, timers.alive()), (0, 0));
}

#[test]
fn a_request_that_waited_is_settled_and_refunded() {
    let mut scene = Scene::with(SECOND, |layer, _| layer.settle_on(|_| Cost::tokens(4)));
    let mut asked = scene.waits();
    scene.advance(TOKEN);
    assert!(poll(&mut asked).is_some());
    assert_eq!(scene.next(), 4 * TOKEN);
    let mut scene = Scene::with(SECOND, |layer, _| layer.refund_on(|status| status.is_success()));
    let mut asked = scene.waits();
    scene.advance(TOKEN);
    assert!(poll(&mut asked).is_some());
    assert_eq!((scene.next(), scene.layer.stats().refunded), (0, 1));
}

#[test]
fn a_request_of_more_than_a_burst_is_refused_at_once() {
    let mut scene = Scene::with(u64::MAX, |layer, _| layer.cost(|_| 11));
    let response = poll(&mut scene.call()).unwrap();
    assert_eq!((response.status().as_u16(), scene.waiting()), (429, 0));
    assert_eq!((scene.timers.made.load(Relaxed), scene.next()), (0, TOKEN));
}

#[test]
fn a_refused_request_counts_once_for_a_ban() {
    let mut scene = Scene::with(0, |layer, _| layer.ban_after(3, ns(SECOND)).for_(ns(100 * SECOND)).unwrap());
    for retry in [1, 1, 100, 100] {
        assert_eq!(scene.is_refused(), retry);
    }
    let stats = scene.layer.stats();
    assert_eq!((stats.refused, stats.banned, stats.bans), (3, 1, 1));
    // A request that waits is not refused.
    let mut scene =
        Scene::with(2 * TOKEN, |layer, _| layer.ban_after(1, ns(SECOND)).for_(ns(100 * SECOND)).unwrap());
    let line = [scene.waits(), scene.waits()];
    assert_eq!(scene.layer.stats().bans, 0);
    assert_eq!(scene.is_refused(), 100);
    // A banned key has no place in line, and its requests in line keep theirs.
    assert_eq!(
        (scene.is_refused(), scene.waiting(), scene.layer.banned(&KEY)),
        (100, 2, Some(ns(100 * SECOND)))
    );
    scene.advance(2 * TOKEN);
    for mut asked in line {
        assert_eq!(poll(&mut asked).unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn the_timer_of_tokio_waits_for_the_delay() {
    let (clock, _mock) = Clock::mock();
    let limiter: RateLimiter<u64> = RateLimiter::builder(TEN).clock(clock).build();
    assert!(limiter.try_acquire_n(&KEY, 10).is_ok());
    let layer = RateLimitLayer::builder(limiter).key(key_fn(key)).build();
    let mut service = DelayLayer::new(ns(3 * TOKEN)).layer(layer.layer(Noting::default()));
    let start = tokio::time::Instant::now();
    let mut line = Vec::new();
    for number in 1..=4 {
        let mut request = Request::new(number);
        request.extensions_mut().insert(KEY);
        line.push(tokio::spawn(service.call(request)));
    }
    assert_eq!(layer.stats().waiting, 3);
    // The last of the three goes away.
    let (refused, last) = (line.pop().unwrap(), line.pop().unwrap());
    assert_eq!(refused.await.unwrap().unwrap().status(), 429);
    last.abort();
    assert!(last.await.unwrap_err().is_cancelled());
    assert_eq!((layer.stats().waiting, start.elapsed()), (2, Duration::ZERO));
    for (number, waited) in (1..).zip(line) {
        assert_eq!(waited.await.unwrap().unwrap().status(), 200);
        let (exact, late) = (ns(number * TOKEN), ns(2 * MILLISECOND));
        assert!((exact..exact + late).contains(&start.elapsed()), "{:?}", start.elapsed());
    }
    assert_eq!(layer.stats().waiting, 0);
}

/// Ten requests that wait for up to 10 s, at 1/s and a burst of 1: each waits for its turn.
#[tokio::test(start_paused = true)]
async fn a_line_is_as_long_as_its_longest_delay() {
    let start = tokio::time::Instant::now();
    let clock = Clock::from_fn(move || start.elapsed());
    let limiter = RateLimiter::<u64>::builder(Quota::per_second(1).burst(1)).clock(clock).build();
    let layer = RateLimitLayer::builder(limiter).key(key_fn(key)).build();
    let mut service = DelayLayer::new(Duration::from_secs(10)).layer(layer.layer(Noting::default()));
    let asked = (0..12).map(|number| {
        let mut request = Request::new(number);
        request.extensions_mut().insert(KEY);
        tokio::spawn(service.call(request))
    });
    let mut refused = 0;
    for response in asked.collect::<Vec<_>>() {
        refused += u64::from(response.await.unwrap().unwrap().status() == 429);
    }
    assert_eq!(refused, 1, "one at once, ten in their turn, and one would wait for 11 s");
}

// promise: layer
//! The layer of requests in flight: each admitted request holds one place, for as long as it says.

mod counts;
mod leaving;
mod refusals;

use std::fmt::Debug;
use std::future::Future;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use tollgate::{Clock, MockClock, Quota, RateLimiter};
use tollgate_adaptive::{
    Inflight, InflightLayer, InflightLayerStats, Outcome, Priority, Until, prometheus_inflight,
};
use tollgate_http::{ClientIp, Exempt, Problem, RateLimitLayer};
use tower_layer::Layer;
use tower_service::Service;

const TARGET: Duration = Duration::from_millis(300);

/// The result of a poll for a frame.
type FramePoll = Poll<Option<Result<(), ()>>>;

/// A stream of frames, each a byte, which the test feeds.
#[derive(Clone, Default)]
struct Frames {
    left: Arc<Mutex<Vec<FramePoll>>>,
}

impl Frames {
    /// Frames in the order of their polls.
    fn of(mut polls: Vec<FramePoll>) -> Frames {
        polls.reverse();
        Frames { left: Arc::new(Mutex::new(polls)) }
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = ();

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ()>>> {
        let next = self.left.lock().unwrap().pop().expect("a body that has ended is not polled");
        next.map(|frame| frame.map(|frame| frame.map(|()| Frame::data(Bytes::from("x")))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.lock().unwrap().is_empty()
    }
}

/// An upstream that answers when the test says so.
#[derive(Clone, Default)]
struct Upstream {
    state: Arc<UpstreamState>,
}

#[derive(Default)]
struct UpstreamState {
    polls: AtomicU64,
    calls: AtomicU64,
    /// Polls for readiness that find it busy.
    busy: AtomicUsize,
    /// Whether it is gone, by its readiness.
    is_gone: AtomicU64,
    /// Answers of requests in order; those without an answer wait.
    answers: Mutex<Vec<Said>>,
}

/// An answer of the upstream.
enum Said {
    Status(u16),
    Grpc(&'static str),
    Body(Frames),
    Error,
    PanicAtOnce,
    Panic,
}

/// An error of the upstream.
#[derive(Debug, PartialEq)]
struct Gone;

impl Upstream {
    fn says(&self, said: Said) {
        self.state.answers.lock().unwrap().insert(0, said);
    }

    fn calls(&self) -> u64 {
        self.state.calls.load(Relaxed)
    }
}

impl Service<Request<()>> for Upstream {
    type Response = Response<Frames>;
    type Error = Gone;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Frames>, Gone>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        self.state.polls.fetch_add(1, Relaxed);
        if self.state.busy.fetch_update(Relaxed, Relaxed, |busy| busy.checked_sub(1)).is_ok() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(if self.state.is_gone.load(Relaxed) == 0 { Ok(()) } else { Err(Gone) })
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        self.state.calls.fetch_add(1, Relaxed);
        let mut answers = self.state.answers.lock().unwrap();
        if let Some(at) = answers.iter().position(|said| matches!(said, Said::PanicAtOnce)) {
            answers.remove(at);
            drop(answers);
            panic!("the upstream panics in its call");
        }
        drop(answers);
        let state = self.state.clone();
        Box::pin(std::future::poll_fn(move |_| {
            let Some(said) = state.answers.lock().unwrap().pop() else { return Poll::Pending };
            let mut response = Response::new(Frames::default());
            match said {
                Said::Status(status) => *response.status_mut() = StatusCode::from_u16(status).unwrap(),
                Said::Grpc(code) => {
                    response.headers_mut().insert("grpc-status", HeaderValue::from_static(code));
                }
                Said::Body(frames) => *response.body_mut() = frames,
                Said::Error => return Poll::Ready(Err(Gone)),
                Said::PanicAtOnce | Said::Panic => panic!("the upstream panics"),
            }
            Poll::Ready(Ok(response))
        }))
    }
}

fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Polls a future once.
fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut noop())
}

fn done<T>(poll: Poll<T>) -> T {
    match poll {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("it waits"),
    }
}

/// Calls a service, which has to be ready, and boxes the future.
fn call<S, B>(service: &mut S, request: Request<()>) -> Pin<Box<S::Future>>
where
    S: Service<Request<()>, Response = Response<B>, Error: Debug>,
{
    done(service.poll_ready(&mut noop())).unwrap();
    Box::pin(service.call(request))
}

fn at(path: &str) -> Request<()> {
    Request::get(path).body(()).unwrap()
}

fn root() -> Request<()> {
    at("/")
}

fn adaptive(limit: u32) -> (Arc<Inflight>, MockClock) {
    let (clock, mock) = Clock::mock();
    let limit = Inflight::adaptive(TARGET, 1_000).start(limit).clock(clock).build().unwrap();
    (Arc::new(limit), mock)
}

fn outcomes(layer: &InflightLayer) -> [u64; 4] {
    let InflightLayerStats { answered, overloaded, failed, given_up, .. } = layer.stats();
    [answered, overloaded, failed, given_up]
}

#[test]
fn a_place_is_held_until_the_head() {
    let limit = Arc::new(Inflight::fixed(3));
    let layer = InflightLayer::new(limit.clone());
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    let mut first = call(&mut service, root());
    assert_eq!(limit.in_flight(), 1);
    let mut second = call(&mut service.clone(), root());
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    assert_eq!(limit.in_flight(), 2);
    upstream.says(Said::Body(Frames::of(vec![Poll::Pending])));
    let response = done(poll(&mut first)).unwrap();
    // The body goes on without a place.
    assert_eq!((response.status(), limit.in_flight()), (StatusCode::OK, 1));
    drop((first, response));
    assert_eq!((limit.in_flight(), outcomes(&layer)), (1, [1, 0, 0, 0]));
    drop(second);
    assert_eq!((limit.in_flight(), outcomes(&layer)), (0, [1, 0, 0, 1]));
}

#[test]
fn a_place_is_held_until_the_body_ends_or_is_dropped() {
    let frame = || Poll::Ready(Some(Ok(())));
    let ends = [
        ("at its end", vec![frame(), Poll::Pending, Poll::Ready(None)], 3),
        ("with its last frame", vec![frame(), frame()], 2),
        ("with an error", vec![frame(), Poll::Ready(Some(Err(()))), frame()], 2),
    ];
    for (end, polls, ends_after) in ends {
        let (limit, mock) = adaptive(10);
        let layer = InflightLayer::builder(limit.clone()).until(Until::Body).build();
        let upstream = Upstream::default();
        let mut service = layer.layer(upstream.clone());
        upstream.says(Said::Body(Frames::of(polls)));
        let mut future = call(&mut service, root());
        mock.advance(Duration::from_millis(20));
        let mut body = pin!(done(poll(&mut future)).unwrap().into_body());
        drop(future);
        for polled in 0..ends_after {
            assert_eq!(limit.in_flight(), 1, "{end}: after {polled} polls");
            mock.advance(Duration::from_secs(1));
            let _ = body.as_mut().poll_frame(&mut noop());
        }
        assert_eq!(limit.in_flight(), 0, "{end}");
        // The latency is that of the head.
        let stats = layer.stats();
        assert_eq!((stats.answered, stats.latency_sum), (1, Duration::from_millis(20)));
    }
    let limit = Arc::new(Inflight::fixed(10));
    let layer = InflightLayer::builder(limit.clone()).until(Until::Body).build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    let mut answer = || {
        upstream.says(Said::Body(Frames::of(vec![frame(), Poll::Pending])));
        done(poll(&mut call(&mut service, root()))).unwrap()
    };
    let (dropped, unwrapped, cloned) = (answer(), answer(), answer());
    assert_eq!(limit.in_flight(), 3);
    drop(dropped);
    assert_eq!(limit.in_flight(), 2);
    let inner = unwrapped.map(|body| body.into_inner_or_else(|_| unreachable!("it was admitted")));
    assert_eq!(limit.in_flight(), 1, "the inner body is not watched");
    let clone = cloned.body().clone();
    drop(cloned);
    assert_eq!(limit.in_flight(), 0, "a clone holds no place");
    drop((clone, inner));
    assert_eq!((limit.in_flight(), outcomes(&layer)), (0, [3, 0, 0, 0]));
}

#[test]
fn a_response_counts_by_its_status() {
    let limit = Arc::new(Inflight::fixed(10));
    for (said, outcome) in [
        (200, Outcome::Answered),
        (101, Outcome::Answered),
        (304, Outcome::Answered),
        (404, Outcome::Answered),
        (408, Outcome::Answered),
        (429, Outcome::Overloaded),
        (499, Outcome::Answered),
        (500, Outcome::Failed),
        (501, Outcome::Failed),
        (502, Outcome::Failed),
        (503, Outcome::Overloaded),
        (504, Outcome::Overloaded),
        (505, Outcome::Failed),
        (599, Outcome::Failed),
        (600, Outcome::Answered),
    ] {
        assert_eq!(outcome_of(&limit, Said::Status(said)), outcome, "{said}");
    }
    for (said, outcome) in [
        ("0", Outcome::Answered),
        ("1", Outcome::Answered),
        ("2", Outcome::Failed),
        ("3", Outcome::Answered),
        ("4", Outcome::Overloaded),
        ("5", Outcome::Answered),
        ("8", Outcome::Overloaded),
        ("12", Outcome::Answered),
        ("13", Outcome::Failed),
        ("14", Outcome::Overloaded),
        ("15", Outcome::Failed),
        ("16", Outcome::Answered),
    ] {
        assert_eq!(outcome_of(&limit, Said::Grpc(said)), outcome, "grpc-status {said}");
    }
    assert_eq!(outcome_of(&limit, Said::Error), Outcome::Overloaded);
    assert_eq!(limit.in_flight(), 0);
}

/// Returns the outcome of a request by the counts of a layer.
fn outcome_of(limit: &Arc<Inflight>, said: Said) -> Outcome {
    counted_outcome(InflightLayer::new(limit.clone()), said)
}

fn counted_outcome(layer: InflightLayer, said: Said) -> Outcome {
    let upstream = Upstream::default();
    upstream.says(said);
    let _ = done(poll(&mut call(&mut layer.layer(upstream), root())));
    match outcomes(&layer) {
        [1, 0, 0, 0] => Outcome::Answered,
        [0, 1, 0, 0] => Outcome::Overloaded,
        [0, 0, 1, 0] => Outcome::Failed,
        counts => panic!("{counts:?}"),
    }
}

#[test]
fn a_closure_says_which_responses_are_overloaded() {
    let limit = Arc::new(Inflight::fixed(10));
    let layer = || {
        InflightLayer::builder(limit.clone())
            .classify(|answer| match answer.status.as_u16() {
                420 => Outcome::Overloaded,
                503 => Outcome::Answered,
                _ => answer.into(),
            })
            .classify_errors(Outcome::Failed)
            .build()
    };
    for (said, outcome) in [
        (Said::Status(420), Outcome::Overloaded),
        (Said::Status(503), Outcome::Answered),
        (Said::Status(500), Outcome::Failed),
        (Said::Error, Outcome::Failed),
    ] {
        assert_eq!(counted_outcome(layer(), said), outcome);
    }
}

#[test]
fn samples_reach_the_controller() {
    use tollgate_adaptive::{Controller, Fraction, Next, Samples};
    /// Notes the windows, and changes nothing.
    struct Notes(Arc<Mutex<Vec<[u64; 3]>>>);
    impl Controller for Notes {
        fn next(&mut self, samples: &Samples, _: Fraction) -> Next {
            self.0.lock().unwrap().push([samples.answered(), samples.overloaded(), samples.failed()]);
            Next::Stay
        }
    }
    for until in [Until::Head, Until::Body] {
        let ((clock, mock), windows) = (Clock::mock(), Arc::new(Mutex::new(Vec::new())));
        let limit = Inflight::adaptive(TARGET, 100).clock(clock).controller(Notes(windows.clone()));
        let limit = Arc::new(limit.build().unwrap());
        let layer = InflightLayer::builder(limit.clone()).until(until).build();
        let upstream = Upstream::default();
        let mut service = layer.layer(upstream.clone());
        for said in [200, 404, 200, 503, 429, 500] {
            upstream.says(Said::Status(said));
            drop(done(poll(&mut call(&mut service, root()))).unwrap());
        }
        upstream.says(Said::Error);
        assert_eq!(done(poll(&mut call(&mut service, root()))).unwrap_err(), Gone);
        // The body of one takes longer than the target: its only sample is its head.
        upstream.says(Said::Body(Frames::of(vec![Poll::Pending])));
        let long = done(poll(&mut call(&mut service, root()))).unwrap();
        // One is given up at once, and one after more than the target.
        let (fast, slow) = (call(&mut service, root()), call(&mut service, root()));
        drop(fast);
        mock.advance(TARGET + Duration::from_millis(1));
        drop((slow, long));
        mock.advance(Duration::from_secs(1));
        drop(call(&mut service, root()));
        let sums = windows
            .lock()
            .unwrap()
            .iter()
            .fold([0; 3], |sums, window| std::array::from_fn(|at| sums[at] + window[at]));
        assert_eq!(sums, [4, 4, 1], "{until:?}");
        assert_eq!((outcomes(&layer), limit.in_flight()), ([4, 3, 1, 3], 0));
    }
}

#[test]
fn a_skipped_request_takes_no_place() {
    let limit = Arc::new(Inflight::fixed(1));
    let layer = InflightLayer::builder(limit.clone())
        .skip(|head| head.headers.contains_key("upgrade"))
        .exempt(Exempt::paths(["/health"]).unwrap())
        .build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    let full = limit.try_enter().unwrap();
    let mut socket = root();
    socket.headers_mut().insert("upgrade", HeaderValue::from_static("websocket"));
    for (request, busy) in [(socket, 0), (at("/health"), 0), (at("/health"), 2)] {
        upstream.state.busy.store(busy, Relaxed);
        upstream.says(Said::Status(503));
        let mut future = call(&mut service, request);
        let mut polled = poll(&mut future);
        if busy > 0 {
            assert!(polled.is_pending());
            polled = poll(&mut future);
        }
        assert_eq!(done(polled).unwrap().status(), 503);
        assert_eq!(limit.in_flight(), 1);
    }
    assert_eq!(done(poll(&mut call(&mut service, root()))).unwrap().status(), 503);
    let stats = layer.stats();
    assert_eq!((stats.skipped, stats.admitted, stats.refused, upstream.calls()), (3, 0, 1, 3));
    assert_eq!(outcomes(&layer), [0; 4]);
    drop(full);
}

#[test]
fn a_request_over_its_quota_takes_no_place() {
    let limit = Arc::new(Inflight::fixed(2));
    let inner = InflightLayer::new(limit.clone());
    let quota = Quota::per_hour(3);
    let rate = RateLimitLayer::builder(RateLimiter::new(quota)).key(ClientIp::peer()).build();
    let upstream = Upstream::default();
    let mut service = rate.layer(inner.layer(upstream.clone()));
    let request = || {
        let mut request = root();
        request.extensions_mut().insert(IpAddr::from([192, 0, 2, 1]));
        request
    };
    let (first, second) = (call(&mut service, request()), call(&mut service, request()));
    assert_eq!(limit.in_flight(), 2);
    // No place: the limit of requests in flight refuses, and the token is spent.
    assert_eq!(done(poll(&mut call(&mut service, request()))).unwrap().status(), 503);
    drop((first, second));
    for _ in 0..10 {
        let future = &mut call(&mut service, request());
        assert_eq!(limit.in_flight(), 0);
        assert_eq!(done(poll(future)).unwrap().status(), 429);
    }
    let stats = inner.stats();
    assert_eq!((stats.admitted, stats.refused, upstream.calls()), (2, 1, 2));
    assert_eq!((rate.stats().granted, rate.stats().refused), (3, 10));
}

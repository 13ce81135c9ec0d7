// promise: layer
//! The layer of requests in flight: each admitted request holds one place, for as long as it says.

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
use tollgate::http::{ClientIp, Exempt, Problem};
use tollgate::tower::{InflightLayer, InflightLayerStats, RateLimitLayer, Until, prometheus_inflight};
use tollgate::{Clock, Inflight, MockClock, Outcome, Priority, Quota, RateLimiter};
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
                _ => answer.outcome(),
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
    use tollgate::{Controller, Seen, Share, Verdict};
    /// Notes the windows, and changes nothing.
    struct Notes(Arc<Mutex<Vec<[u64; 3]>>>);
    impl Controller for Notes {
        fn next(&mut self, seen: &Seen, _: Share) -> Verdict {
            self.0.lock().unwrap().push([seen.answered(), seen.overloaded(), seen.failed()]);
            Verdict::Stay
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
fn the_lowest_priority_is_refused_first() {
    let limit = Arc::new(Inflight::fixed(16));
    let layer = InflightLayer::builder(limit.clone())
        .priority(|head| {
            let name = &head.uri.path()[1..];
            *Priority::ALL.iter().find(|priority| priority.name() == name).expect("it is a priority")
        })
        .build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    let mut held = Vec::new();
    // Half, three quarters, 230 of 256 and all of 16 places.
    for (priority, most) in Priority::ALL.into_iter().zip([8, 12, 14, 16]) {
        let request = || at(&format!("/{}", priority.name()));
        while limit.in_flight() < most {
            held.push(call(&mut service, request()));
        }
        let refused = done(poll(&mut call(&mut service, request()))).unwrap();
        assert_eq!((refused.status().as_u16(), limit.in_flight()), (503, most));
        // Each lower one is refused, too.
        for lower in Priority::ALL.into_iter().filter(|lower| *lower < priority) {
            let refused = done(poll(&mut call(&mut service, at(&format!("/{}", lower.name())))));
            assert_eq!(refused.unwrap().status(), 503, "{lower:?} beside {priority:?}");
        }
    }
    let stats = layer.stats();
    let by_priority = stats.priorities.map(|by| (by.priority, by.admitted, by.refused));
    let [background, sheddable, default, critical] = Priority::ALL;
    assert_eq!(by_priority, [(background, 8, 4), (sheddable, 4, 3), (default, 2, 2), (critical, 2, 1)]);
    assert_eq!((stats.admitted, stats.refused, upstream.calls()), (16, 10, 16));
    drop(held);
    assert_eq!(limit.in_flight(), 0);
}

#[test]
fn a_refusal_touches_no_inner_service_and_tells_the_wait() {
    let limit = Arc::new(Inflight::fixed(1));
    let layer = InflightLayer::new(limit.clone());
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    let first = call(&mut service, root());
    let before = (upstream.state.polls.load(Relaxed), upstream.calls());
    // Also while the inner service is busy, or gone.
    upstream.state.busy.store(usize::MAX, Relaxed);
    let mut refused = call(&mut service, root());
    let response = done(poll(&mut refused)).unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (503, &1.into()));
    assert_eq!(response.headers()["cache-control"], "no-store");
    assert_eq!((response.headers().len(), response.body().is_end_stream()), (2, true));
    assert_eq!((upstream.state.polls.load(Relaxed), upstream.calls()), before);
    assert_eq!((limit.in_flight(), layer.stats().refused), (1, 1));
    drop((first, refused));
    assert_eq!(limit.in_flight(), 0);
}

#[test]
fn a_refusal_is_made_as_the_closure_says() {
    let limit = Arc::new(Inflight::fixed(1));
    let full = limit.try_enter().unwrap();
    let problem = InflightLayer::builder(limit.clone())
        .reject_with(|refusal| refusal.problem(Problem::TEMPORARY_REDUCED_CAPACITY))
        .build();
    let text = InflightLayer::builder(limit.clone())
        .priority(|_| Priority::Sheddable)
        .reject_with(|refusal| {
            let text = format!("{:?} {}: {}", refusal.priority(), refusal.head().uri, refusal.overloaded());
            let mut response = refusal.response(text);
            response.headers_mut().insert("retry-after", 7.into());
            response
        })
        .build();
    let answer = |layer: &InflightLayer| {
        done(poll(&mut call(&mut layer.layer(Upstream::default()), at("/a")))).unwrap().map(|body| {
            let mut bytes = None;
            let _ = body.into_inner_or_else(|refusal| {
                bytes = Some(refusal);
                Frames::default()
            });
            bytes.expect("it is a refusal")
        })
    };
    let response = answer(&problem);
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.headers()["retry-after"], "1");
    let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(body["status"], 503);
    let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
    assert_eq!(body["type"], kind);
    let response = answer(&text);
    assert_eq!(response.headers()["retry-after"], "7");
    assert_eq!(response.body(), "Sheddable /a: 1 requests are in flight, and the limit is 1");
    drop(full);
    assert_eq!(limit.in_flight(), 0);
}

#[test]
fn a_refusal_of_grpc_is_unavailable_with_the_wait() {
    let limit = Arc::new(Inflight::fixed(1));
    let full = limit.try_enter().unwrap();
    let bare = InflightLayer::new(limit.clone());
    let problem = InflightLayer::builder(limit.clone())
        .reject_with(|refusal| refusal.problem(Problem::TEMPORARY_REDUCED_CAPACITY))
        .build();
    for layer in [bare, problem] {
        let mut service = layer.layer(Upstream::default());
        let response = done(poll(&mut call(&mut service, crate::serving::grpc(root())))).unwrap();
        assert_eq!((response.status().as_u16(), response.body().is_end_stream()), (200, true));
        let says = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap());
        assert_eq!(says("content-type"), Some("application/grpc"));
        assert_eq!(says("grpc-status"), Some("14"));
        assert_eq!(says("grpc-message"), Some("too many requests in flight"));
        assert_eq!(says("grpc-retry-pushback-ms"), Some("1000"));
        // Protobuf: the code is `08 0e`, and `RetryInfo` of one second is `0a 02 08 01` at the end.
        let details = says("grpc-status-details-bin").unwrap();
        assert!(details.starts_with("CA4") && details.ends_with("EgQKAggB"), "{details}");
        assert_eq!((says("retry-after"), says("cache-control")), (None, Some("no-store")));
        assert_eq!(response.headers().len(), 6);
    }
    drop(full);
}

#[test]
fn a_request_that_is_cancelled_leaves_at_every_stage() {
    let (limit, mock) = adaptive(10);
    let layer = InflightLayer::builder(limit.clone()).until(Until::Body).build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    // Called, but not polled.
    let future = call(&mut service, root());
    assert_eq!(limit.in_flight(), 1);
    drop(future);
    assert_eq!((limit.in_flight(), outcomes(&layer)), (0, [0, 0, 0, 1]));
    // It waits for the inner service.
    upstream.state.busy.store(3, Relaxed);
    let mut future = call(&mut service, root());
    assert!(poll(&mut future).is_pending());
    assert_eq!((limit.in_flight(), upstream.calls()), (1, 1), "it holds its place while it waits");
    drop(future);
    assert_eq!((limit.in_flight(), outcomes(&layer)), (0, [0, 0, 0, 2]));
    // It is passed on after a wait.
    upstream.state.busy.store(2, Relaxed);
    let mut future = call(&mut service, root());
    assert!(poll(&mut future).is_pending() && poll(&mut future).is_pending());
    assert_eq!((limit.in_flight(), upstream.calls()), (1, 2));
    drop(future);
    assert_eq!((limit.in_flight(), outcomes(&layer)), (0, [0, 0, 0, 3]));
    // Its answer is there, and not read.
    upstream.says(Said::Body(Frames::of(vec![Poll::Pending])));
    let mut future = call(&mut service, root());
    drop(done(poll(&mut future)).unwrap());
    assert_eq!(limit.in_flight(), 0, "a future that is done holds no place");
    assert_eq!(outcomes(&layer), [1, 0, 0, 3]);
    drop(future);
    // A refused one has none to leave.
    limit.set_limit(1).unwrap();
    let full = limit.try_enter().unwrap();
    drop(call(&mut service, root()));
    assert_eq!((limit.in_flight(), layer.stats().refused), (1, 1));
    drop(full);
    assert_eq!((limit.in_flight(), outcomes(&layer)), (0, [1, 0, 0, 3]));
    drop(mock);
}

#[test]
fn an_error_of_the_inner_service_leaves() {
    let limit = Arc::new(Inflight::fixed(10));
    let layer = InflightLayer::builder(limit.clone()).until(Until::Body).build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    upstream.says(Said::Error);
    assert_eq!(done(poll(&mut call(&mut service, root()))).unwrap_err(), Gone);
    assert_eq!((limit.in_flight(), outcomes(&layer)), (0, [0, 1, 0, 0]));
    // It is gone at once, and after a wait: its error is that of the response.
    upstream.state.is_gone.store(1, Relaxed);
    for busy in [0, 2] {
        upstream.state.busy.store(busy, Relaxed);
        let mut future = call(&mut service, root());
        if busy > 0 {
            assert!(poll(&mut future).is_pending());
        }
        assert_eq!(done(poll(&mut future)).unwrap_err(), Gone);
        assert_eq!(limit.in_flight(), 0);
    }
    assert_eq!((outcomes(&layer), upstream.calls()), ([0, 3, 0, 0], 1));
}

#[test]
fn a_panic_leaves() {
    let limit = Arc::new(Inflight::fixed(10));
    let upstream = Upstream::default();
    let classify = |_: tollgate::tower::Answer<'_>| -> Outcome { panic!("the closure panics") };
    let layers =
        [InflightLayer::new(limit.clone()), InflightLayer::builder(limit.clone()).classify(classify).build()];
    let says = [vec![Said::PanicAtOnce, Said::Panic], vec![Said::Status(200)]];
    for (layer, says) in layers.into_iter().zip(says) {
        let panics = says.len() as u64;
        for said in says {
            upstream.says(said);
            let mut service = layer.layer(upstream.clone());
            let caught = catch_unwind(AssertUnwindSafe(|| {
                let mut future = call(&mut service, root());
                assert_eq!(limit.in_flight(), 1);
                let _ = poll(&mut future);
            }));
            let text = *caught.unwrap_err().downcast::<&str>().unwrap();
            assert!(text.contains("panics"), "{text}");
            assert_eq!(limit.in_flight(), 0);
        }
        let stats = layer.stats();
        assert_eq!((stats.admitted, stats.answered + stats.overloaded + stats.failed), (panics, 0));
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

#[test]
fn clones_and_services_of_a_layer_count_together_and_layers_apart() {
    let limit = Arc::new(Inflight::fixed(2));
    let (one, other) = (InflightLayer::new(limit.clone()), InflightLayer::new(limit.clone()));
    let upstream = Upstream::default();
    let futures = [
        call(&mut one.layer(upstream.clone()), root()),
        call(&mut one.clone().layer(upstream.clone()).clone(), root()),
    ];
    assert_eq!(done(poll(&mut call(&mut other.layer(upstream), root()))).unwrap().status(), 503);
    assert_eq!((one.stats().admitted, one.stats().refused), (2, 0));
    assert_eq!((other.stats().admitted, other.stats().refused), (0, 1));
    assert_eq!((other.stats().inflight.in_flight, other.inflight().limit()), (2, 2));
    drop(futures);
}

/// The limit takes no notice of an answer that is no sample. A layer that counts on has the counts
/// of the one before.
#[test]
fn a_request_without_a_service_counts_as_one_of_the_layer() {
    let (limit, mock) = adaptive(20);
    let before = InflightLayer::new(limit);
    let layer = InflightLayer::builder(Inflight::fixed(4)).count_on(&before).build();
    let enter = |priority| before.try_enter(priority).unwrap();
    let requests = Priority::ALL.map(enter);
    mock.advance(Duration::from_millis(20));
    let [sample, no_sample, overloaded, given_up] = requests;
    let held = [
        sample.end(Outcome::Answered, true),
        no_sample.end(Outcome::Answered, false),
        overloaded.end(Outcome::Overloaded, false),
    ];
    assert_eq!(before.stats().inflight.in_flight, 4);
    drop((held, given_up));
    let stats = before.stats();
    assert_eq!((outcomes(&before), stats.inflight.in_flight), ([2, 1, 0, 1], 0));
    assert_eq!((stats.latencies.iter().sum::<u64>(), stats.latency_sum), (1, Duration::from_millis(20)));
    assert_eq!(stats.priorities.map(|by| by.admitted), [1; 4]);
    let held = [(); 2].map(|()| layer.try_enter(Priority::Background).unwrap());
    assert_eq!(layer.try_enter(Priority::Background).unwrap_err().in_flight(), 2);
    for stats in [layer.stats(), before.stats()] {
        assert_eq!(stats.priorities.map(|by| (by.admitted, by.refused)), [(3, 1), (1, 0), (1, 0), (1, 0)]);
    }
    assert_eq!((layer.stats().inflight.in_flight, before.stats().inflight.in_flight), (2, 0));
    drop(held);
}

#[test]
fn the_text_of_prometheus_has_bounded_labels_and_adds_up() {
    let (limit, mock) = adaptive(2);
    let layer = InflightLayer::builder(limit).name("a \"b\"").unwrap().build();
    let fixed = InflightLayer::builder(Inflight::fixed(7)).name("fixed").unwrap().build();
    let upstream = Upstream::default();
    let mut service = layer.layer(upstream.clone());
    for millis in [1, 20, 20, 11_000] {
        upstream.says(Said::Status(200));
        let mut future = call(&mut service, root());
        mock.advance(Duration::from_millis(millis));
        done(poll(&mut future)).unwrap();
    }
    let held = [call(&mut service, root()), call(&mut service, root())];
    for _ in 0..5 {
        assert_eq!(done(poll(&mut call(&mut service, root()))).unwrap().status(), 503);
    }
    let text = prometheus_inflight(&[layer.stats(), fixed.stats()]);
    for line in [
        r#"tollgate_inflight{name="a \"b\""} 2"#,
        r#"tollgate_inflight{name="fixed"} 0"#,
        r#"tollgate_inflight_limit{name="fixed"} 7"#,
        r#"tollgate_inflight_target_seconds{name="a \"b\""} 0.3"#,
        r#"tollgate_inflight_refused_total{name="a \"b\"",priority="default"} 5"#,
        r#"tollgate_inflight_refused_total{name="a \"b\"",priority="background"} 0"#,
        r#"tollgate_inflight_changes_total{name="a \"b\"",why="in_vain"} 0"#,
        r#"tollgate_answer_seconds_bucket{name="a \"b\"",le="0.001"} 1"#,
        r#"tollgate_answer_seconds_bucket{name="a \"b\"",le="0.01"} 1"#,
        r#"tollgate_answer_seconds_bucket{name="a \"b\"",le="0.025"} 3"#,
        r#"tollgate_answer_seconds_bucket{name="a \"b\"",le="10"} 3"#,
        r#"tollgate_answer_seconds_bucket{name="a \"b\"",le="+Inf"} 4"#,
        r#"tollgate_answer_seconds_sum{name="a \"b\""} 11.041"#,
        r#"tollgate_answer_seconds_count{name="a \"b\""} 4"#,
        "# TYPE tollgate_answer_seconds histogram",
        "# TYPE tollgate_inflight_limit gauge",
        "# TYPE tollgate_inflight_refused_total counter",
    ] {
        assert_eq!(text.lines().filter(|is| *is == line).count(), 1, "{line}\n{text}");
    }
    // A fixed limit has no target and no latencies, and a family stands together.
    assert!(!text.contains("target_seconds{name=\"fixed\"") && !text.contains("bucket{name=\"fixed\""));
    let families: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let mut unique = families.clone();
    unique.dedup();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(families.len(), unique.len());
    let series =
        |name: &str| text.lines().filter(|line| line.contains(name) && !line.starts_with('#')).count();
    assert_eq!((series("name=\"a"), series("name=\"fixed\"")), (36, 15));
    drop(held);
}

#[test]
fn a_name_out_of_bounds_is_an_error() {
    let name = |name: &str| InflightLayer::builder(Inflight::fixed(1)).name(name).map(|_| ());
    assert!(name("upstream-1").is_ok());
    assert_eq!(name("").unwrap_err().to_string(), "a name of 0 characters is out of the bounds of 1 and 64");
    assert!(name(&"x".repeat(65)).is_err() && name("a\nb").is_err());
}

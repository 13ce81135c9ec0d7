// promise: layer
//! Costs by the response: the tokens that a request has taken, after each frame of its body.

#[path = "settle/bodies.rs"]
mod bodies;
#[path = "settle/cut_short.rs"]
mod cut_short;
#[path = "settle/limits.rs"]
mod limits;
#[path = "settle/refunds.rs"]
mod refunds;
#[path = "settle/sums.rs"]
mod sums;

use std::collections::VecDeque;
use std::future::{Future, Ready, ready};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use tollgate::{AnyRule, Clock, MockClock, Quota, RateLimiter, Window};
use tollgate_http::{
    AnyLimiter, Cost, Exempt, Head, LayerBuilder, LimitBy, OnMissingKey, RateLimit, RateLimitLayer,
    ResponseBody, ResponseHead, key_fn,
};
use tower_layer::Layer;
use tower_service::Service;

use tollgate_testing::{Random, SECOND, ns, size};

/// The error of a body or a service that fails.
#[derive(Debug, PartialEq)]
struct Failed;

/// A body of given frames.
#[derive(Clone, Default)]
struct Frames(VecDeque<Step>);

#[derive(Clone)]
enum Step {
    Data(Bytes),
    Trailers(HeaderMap),
    Fail,
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        Poll::Ready(self.0.pop_front().map(|step| match step {
            Step::Data(bytes) => Ok(Frame::data(bytes)),
            Step::Trailers(trailers) => Ok(Frame::trailers(trailers)),
            Step::Fail => Err(Failed),
        }))
    }
}

fn data(bytes: usize) -> Step {
    Step::Data(Bytes::from(vec![b'x'; bytes]))
}

/// The response that a request brings along.
type Brought = Result<Response<Frames>, Failed>;

/// A service that answers with the response that the request brings.
#[derive(Clone)]
struct Mirror;

impl Service<Request<Brought>> for Mirror {
    type Response = Response<Frames>;
    type Error = Failed;
    type Future = Ready<Brought>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Brought>) -> Self::Future {
        ready(request.into_body())
    }
}

fn brings(steps: impl IntoIterator<Item = Step>) -> Response<Frames> {
    Response::new(Frames(steps.into_iter().collect()))
}

/// Returns a response with a header of a cost.
fn costs(tokens: u64) -> Response<Frames> {
    let mut response = brings([]);
    response.headers_mut().insert(COST, tokens.into());
    response
}

/// Returns the cost in a header.
fn of_header(answer: ResponseHead<'_>) -> Cost {
    let value = answer.headers.get(COST).and_then(|value| value.to_str().ok()?.parse().ok());
    value.map_or(Cost::ESTIMATE, Cost::tokens)
}

/// Returns trailers, or headers, of a cost in one value each.
fn with_values(values: &[&str]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for value in values {
        map.append(COST, HeaderValue::from_str(value).unwrap());
    }
    map
}

const COST: HeaderName = HeaderName::from_static("x-cost");
const KEY: u64 = 7;
const BYTES: Quota = Quota::per_second(1_000);
const MILLISECOND: u64 = 1_000_000;

/// The tokens that a request takes before its response is there.
#[derive(Clone, Copy)]
struct Estimate(u64);

const ESTIMATE: Estimate = Estimate(100);

fn key(head: Head<'_>) -> Option<u64> {
    head.extensions.get::<u64>().copied()
}

fn estimate(head: Head<'_>) -> u64 {
    head.extensions.get::<Estimate>().expect("each request has one").0
}

fn request(estimate: Estimate, brought: Brought) -> Request<Brought> {
    let mut request = Request::new(brought);
    request.extensions_mut().insert(KEY);
    request.extensions_mut().insert(estimate);
    request
}

/// A layer whose requests are estimated, with its limiter and clock.
struct Scene {
    limiter: RateLimiter<u64>,
    mock: MockClock,
    layer: RateLimitLayer<u64>,
    service: RateLimit<Mirror>,
    estimate: Estimate,
}

impl Scene {
    /// A limit of `quota`, whose requests cost `cost` by their response.
    fn new(quota: Quota, cost: impl Fn(ResponseHead<'_>) -> Cost + Send + Sync + 'static) -> Scene {
        Scene::with(quota, |layer| layer.settle_on(cost))
    }

    fn with(quota: Quota, set: impl FnOnce(LayerBuilder<u64>) -> LayerBuilder<u64>) -> Scene {
        let (clock, mock) = Clock::mock();
        Scene::of(RateLimiter::builder(quota).clock(clock).build(), mock, set)
    }

    fn of(
        limiter: RateLimiter<u64>,
        mock: MockClock,
        set: impl FnOnce(LayerBuilder<u64>) -> LayerBuilder<u64>,
    ) -> Scene {
        let layer = set(RateLimitLayer::builder(limiter.clone()).key(key_fn(key)).cost(estimate)).build();
        let service = layer.layer(Mirror);
        Scene { limiter, mock, layer, service, estimate: ESTIMATE }
    }

    fn left(&self) -> u64 {
        self.limiter.peek(&KEY).remaining()
    }

    /// Returns the response to a request that is granted.
    fn ask(&mut self, response: Response<Frames>) -> Response<ResponseBody<Frames>> {
        let response = ask(&mut self.service, self.estimate, Ok(response)).unwrap();
        assert_ne!(response.status(), 429);
        response
    }

    /// Returns the body of a granted request.
    fn body(&mut self, steps: impl IntoIterator<Item = Step>) -> ResponseBody<Frames> {
        self.ask(brings(steps)).into_body()
    }

    /// Asserts that a request of one token is refused, and is told `wait` nanoseconds.
    fn is_refused(&mut self, wait: u64) {
        let refused = ask(&mut self.service, Estimate(1), Ok(brings([]))).unwrap();
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()["retry-after"], wait.div_ceil(SECOND).to_string());
        assert_eq!(self.limiter.try_acquire(&KEY).unwrap_err().retry_after(), Some(ns(wait)));
    }

    /// Asserts that a request of one token is granted after exactly `wait` nanoseconds.
    fn is_granted_in(&mut self, wait: u64) {
        self.is_refused(wait);
        self.mock.advance(ns(wait - 1));
        self.is_refused(1);
        self.mock.advance(ns(1));
        self.estimate = Estimate(1);
        self.ask(brings([]));
    }
}

fn ask<S>(service: &mut S, estimate: Estimate, brought: Brought) -> Result<S::Response, S::Error>
where
    S: Service<Request<Brought>>,
{
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(service.poll_ready(&mut context), Poll::Ready(Ok(()))));
    match pin!(service.call(request(estimate, brought))).poll(&mut context) {
        Poll::Ready(response) => response,
        Poll::Pending => panic!("the service is ready"),
    }
}

/// Returns the next frame of a body.
fn pull(body: &mut ResponseBody<Frames>) -> Option<Result<Frame<Bytes>, Failed>> {
    match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(frame) => frame,
        Poll::Pending => panic!("all frames are there"),
    }
}

/// Pulls all frames, and returns the bytes and the trailers.
fn read(body: &mut ResponseBody<Frames>) -> (Vec<u8>, Option<HeaderMap>) {
    let (mut bytes, mut trailers) = (Vec::new(), None);
    while let Some(frame) = pull(body) {
        match frame.unwrap().into_data() {
            Ok(data) => bytes.extend_from_slice(&data),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    (bytes, trailers)
}

/// Returns the tokens left that a response reports.
fn reported<B>(response: &Response<B>) -> u64 {
    let field = response.headers()["ratelimit"].to_str().unwrap();
    let left = field.split(';').find_map(|part| part.strip_prefix("r="));
    left.expect("the field has the tokens left").parse().unwrap()
}

#[test]
fn a_cost_that_the_head_tells_is_settled_before_the_response() {
    for (actual, left) in [
        (0, 1_000),
        (1, 999),
        (99, 901),
        (100, 900),
        (101, 899),
        (1_000, 0),
        // A burst was there, and up to a burst is owed.
        (1_001, 0),
        (2_000, 0),
        (2_001, 0),
        (u64::MAX, 0),
    ] {
        let mut scene = Scene::new(BYTES, of_header);
        let response = scene.ask(costs(actual));
        assert_eq!((scene.left(), reported(&response)), (left, left), "{actual}");
        drop(response);
        assert_eq!(scene.left(), left, "{actual}");
        if actual >= 1_000 {
            scene.is_granted_in((actual.min(2_000) - 1_000 + 1) * MILLISECOND);
        }
    }
}

#[test]
fn the_closure_sees_the_head_of_the_response() {
    let mut scene = Scene::new(BYTES, |answer| {
        let n = answer.extensions.get::<u64>().copied().unwrap_or_default();
        Cost::tokens(u64::from(answer.status.as_u16()) + n + answer.headers.len() as u64)
    });
    let mut response = brings([]);
    *response.status_mut() = StatusCode::CREATED;
    response.extensions_mut().insert(30_u64);
    response.headers_mut().extend(with_values(&["a", "b"]));
    scene.ask(response);
    assert_eq!(scene.left(), 1_000 - 201 - 30 - 2);
}

#[test]
fn an_estimate_is_the_cost_unless_the_response_has_another_one() {
    let mut scene = Scene::new(BYTES, of_header);
    let mut body = scene.body([data(500), data(500)]);
    assert_eq!(scene.left(), 900);
    assert_eq!(read(&mut body).0.len(), 1_000);
    drop(body);
    assert_eq!(scene.left(), 900);
}

#[test]
fn a_debt_is_told_to_the_next_request_and_earned_to_the_nanosecond() {
    // The time of a token, in nanoseconds.
    for (quota, token) in [
        (Quota::per_second(1_000), MILLISECOND),
        (Quota::per_second(8).burst(1_000), 125 * MILLISECOND),
        (Quota::per_hour(1_000), 3_600 * MILLISECOND),
        (Quota::every(ns(7)).burst(1_000), 7),
    ] {
        for owed in [0, 1, 999, 1_000] {
            let mut scene = Scene::new(quota, of_header);
            scene.ask(costs(1_000 + owed));
            scene.is_granted_in((owed + 1) * token);
            assert_eq!(scene.left(), 0);
        }
    }
}

#[test]
fn a_refused_request_costs_nothing() {
    let mut scene = Scene::new(BYTES, of_header);
    scene.ask(costs(1_000));
    for _ in 0..9 {
        let refused = ask(&mut scene.service, ESTIMATE, Ok(costs(500))).unwrap();
        assert_eq!(refused.status(), 429);
        drop(refused);
        scene.is_refused(MILLISECOND);
    }
    scene.is_granted_in(MILLISECOND);
}

#[test]
fn a_debt_ends_at_its_bound() {
    for (bound, owed) in [(0, 0), (1, 1), (50, 50), (5_000, 4_000)] {
        for by_head in [true, false] {
            let cost =
                move |answer: ResponseHead<'_>| if by_head { of_header(answer) } else { Cost::bytes() };
            let (clock, mock) = Clock::mock();
            let limiter = RateLimiter::builder(BYTES).max_debt(bound).unwrap().clock(clock).build();
            let mut scene = Scene::of(limiter, mock, |layer| layer.settle_on(cost));
            let response = scene.ask(costs(5_000).map(|_| brings([data(700), data(4_300)]).into_body()));
            read(&mut response.into_body());
            scene.is_granted_in((owed + 1) * MILLISECOND);
        }
    }
}

#[test]
fn a_status_that_refunds_makes_the_cost_nothing() {
    let mut scene = Scene::with(BYTES, |layer| {
        layer.refund_on(|status| status.is_server_error()).settle_on(|answer| {
            assert!(!answer.status.is_server_error());
            Cost::bytes()
        })
    });
    let mut response = brings([data(500)]);
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    let response = scene.ask(response);
    assert_eq!((scene.left(), reported(&response)), (1_000, 1_000));
    read(&mut response.into_body());
    assert_eq!((scene.left(), scene.layer.stats().refunded), (1_000, 1));
    read(&mut scene.body([data(500)]));
    assert_eq!((scene.left(), scene.layer.stats().refunded), (500, 1));
}

#[test]
fn a_key_that_was_forgotten_is_charged_on_its_next_bucket() {
    for remove in [false, true] {
        for used in [0, 500] {
            let mut scene = Scene::new(BYTES, |_| Cost::bytes());
            let mut body = scene.body([data(350), data(2_000)]);
            if remove {
                assert!(scene.limiter.remove(&KEY));
            } else {
                scene.mock.advance(ns(10 * SECOND));
                assert_eq!(scene.limiter.evict_idle(), 1);
            }
            assert_eq!(scene.limiter.len(), 0);
            assert!(used == 0 || scene.limiter.try_acquire_n(&KEY, used).is_ok());
            // 100 of these bytes were taken as the estimate.
            assert!(pull(&mut body).unwrap().is_ok());
            assert_eq!((scene.left(), scene.limiter.len()), (1_000 - used - 250, 1));
            assert!(pull(&mut body).unwrap().is_ok());
            drop(body);
            let owed = (used + 2_250 - 1_000).min(1_000);
            scene.is_granted_in((owed + 1) * MILLISECOND);
        }
    }
}

#[test]
fn a_refund_to_a_key_that_was_forgotten_makes_no_bucket() {
    let mut scene = Scene::new(BYTES, |_| Cost::bytes());
    let body = scene.body([data(1)]);
    assert!(scene.limiter.remove(&KEY));
    drop(body);
    assert_eq!((scene.left(), scene.limiter.len()), (1_000, 0));
}

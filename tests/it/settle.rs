// promise: layer
//! Costs by the response: the tokens that a request has taken, after each frame of its body.

use std::collections::VecDeque;
use std::future::{Future, Ready, ready};
use std::num::NonZeroU64;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use tollgate::http::{Head, key_fn};
use tollgate::tower::{Answer, Cost, LayerBuilder, LimitBy, RateLimit, RateLimitLayer, ResponseBody};
use tollgate::{Clock, MockClock, Quota, RateLimiter, Window, WindowLimiter};
use tower_layer::Layer;
use tower_service::Service;

use super::InStore;
use crate::support::{Random, SECOND, ns};

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
fn of_header(answer: Answer<'_>) -> Cost {
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
    fn new(quota: Quota, cost: impl Fn(Answer<'_>) -> Cost + Send + Sync + 'static) -> Scene {
        Scene::with(quota, |layer| layer.settle_on(cost))
    }

    fn with(quota: Quota, set: impl FnOnce(LayerBuilder<u64>) -> LayerBuilder<u64>) -> Scene {
        let (clock, mock) = Clock::mock();
        Scene::of(RateLimiter::stored(quota).clock(clock).build(), mock, set)
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
fn each_byte_costs_a_token_as_its_frame_passes() {
    let mut scene = Scene::new(BYTES, |_| Cost::bytes());
    let response = scene.ask(brings([50, 50, 0, 1, 899, 500].map(data)));
    assert_eq!((scene.left(), reported(&response)), (900, 900));
    let mut body = response.into_body();
    for left in [900, 900, 900, 899, 0, 0] {
        assert!(pull(&mut body).unwrap().is_ok());
        assert_eq!(scene.left(), left);
    }
    // The last frame is owed before the body ends.
    scene.is_refused(501 * MILLISECOND);
    assert!(pull(&mut body).is_none());
    drop(body);
    scene.is_granted_in(501 * MILLISECOND);
}

#[test]
fn bytes_below_the_estimate_are_refunded_when_the_body_ends() {
    let mut scene = Scene::new(BYTES, |_| Cost::bytes());
    let mut body = scene.body([data(10), Step::Trailers(with_values(&["500"])), data(20)]);
    assert_eq!(read(&mut body).0.len(), 30);
    assert_eq!(scene.left(), 900);
    drop(body);
    assert_eq!(scene.left(), 970);
}

#[test]
fn a_response_without_bytes_costs_a_token_or_the_floor_that_is_set() {
    const UNIT: NonZeroU64 = NonZeroU64::new(1_000).unwrap();
    let status = |status: u16| {
        let mut response = brings([]);
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    };
    for (cost, floor) in [
        (Cost::bytes(), 1),
        (Cost::bytes_each(UNIT), 1),
        (Cost::bytes().at_least(40), 40),
        (Cost::bytes_each(UNIT).at_least(700), 700),
        // Without one, these cost nothing, as before.
        (Cost::bytes().at_least(0), 0),
        (Cost::bytes_each(UNIT).at_least(0), 0),
    ] {
        for estimate in [0, 1, 100] {
            // To HEAD, a 304, a body of no bytes, and one that the client does not read.
            for response in [status(200), status(304), brings([data(0), data(0)]), brings([data(500)])] {
                let is_unread = !response.body().0.is_empty();
                let cost = cost.clone();
                let mut scene = Scene::new(BYTES, move |_| cost.clone());
                scene.estimate = Estimate(estimate);
                let mut body = scene.ask(response).into_body();
                while !is_unread && pull(&mut body).is_some() {}
                drop(body);
                assert_eq!(scene.left(), 1_000 - floor, "{floor} {estimate}");
            }
        }
    }
}

#[test]
fn a_floor_is_the_least_of_any_cost() {
    let of = |estimate, cost: Cost, brought: Response<Frames>| {
        let mut scene = Scene::new(BYTES, move |_| cost.clone());
        scene.estimate = Estimate(estimate);
        drop(scene.ask(brought).into_body());
        1_000 - scene.left()
    };
    for (estimate, floor, expected) in [(100, 30, 100), (100, 300, 300), (0, 1, 1)] {
        assert_eq!(of(estimate, Cost::ESTIMATE.at_least(floor), brings([])), expected);
        assert_eq!(of(estimate, Cost::trailer(COST).at_least(floor), brings([])), expected);
        assert_eq!(of(estimate, Cost::of_body(9, |_| None).at_least(floor), brings([])), expected);
        assert_eq!(of(estimate, Cost::tokens(5).at_least(floor), brings([])), floor.max(5));
        assert_eq!(of(estimate, Cost::of_body(9, |_| Some(5)).at_least(floor), brings([])), floor.max(5));
    }
    // These have no floor unless it is set: the inner service tells the number.
    assert_eq!(of(100, Cost::tokens(0), brings([])), 0);
    assert_eq!(of(100, Cost::of_body(9, |_| Some(0)), brings([])), 0);
}

#[test]
fn a_begun_unit_of_bytes_costs_a_token() {
    for (frames, tokens) in [
        (&[][..], 1),
        (&[0], 1),
        (&[1], 1),
        (&[999], 1),
        (&[1_000], 1),
        (&[1_001], 2),
        (&[500, 500], 1),
        (&[500, 501], 2),
        (&[1; 1_001], 2),
        (&[2_000, 0, 1], 3),
        (&[700_000], 700),
    ] {
        let mut scene = Scene::new(BYTES, |_| Cost::bytes_each(NonZeroU64::new(1_000).unwrap()));
        for estimate in [0, 1, 100] {
            scene.limiter.remove(&KEY);
            scene.estimate = Estimate(estimate);
            let mut body = scene.body(frames.iter().copied().map(data));
            let mut bytes = 0;
            while let Some(frame) = pull(&mut body) {
                bytes += frame.unwrap().into_data().unwrap().len() as u64;
                let so_far = bytes.div_ceil(1_000).max(estimate);
                assert_eq!(scene.left(), 1_000 - so_far, "{frames:?} {estimate}");
            }
            drop(body);
            assert_eq!(scene.left(), 1_000 - tokens, "{frames:?} {estimate}");
        }
    }
}

#[test]
fn a_cut_body_costs_the_bytes_that_passed() {
    let steps = || [data(300), data(5), Step::Fail, data(600)];
    // Dropped after each number of frames.
    for (frames, cost) in [(0, 1), (1, 300), (2, 305)] {
        let mut scene = Scene::new(BYTES, |_| Cost::bytes());
        let mut body = scene.body(steps());
        (0..frames).for_each(|_| assert!(pull(&mut body).unwrap().is_ok()));
        drop(body);
        assert_eq!(scene.left(), 1_000 - cost, "{frames}");
    }
    let mut scene = Scene::new(BYTES, |_| Cost::bytes());
    let mut body = scene.body(steps());
    let passed: Vec<_> = (0..3).map(|_| pull(&mut body).unwrap().is_ok()).collect();
    assert_eq!((passed, scene.left()), (vec![true, true, false], 695));
    drop(body);
    assert_eq!(scene.left(), 695);
}

#[test]
fn one_number_in_a_trailer_is_the_cost_when_the_body_ends() {
    for (values, cost) in [
        (&["250"][..], 250),
        (&["0"], 0),
        (&[" 7 "], 7),
        // The estimate, for want of one number.
        (&[], 100),
        (&["3", "4"], 100),
        (&["3", "3"], 100),
        (&["x"], 100),
        (&[""], 100),
        (&["-1"], 100),
        (&["1.5"], 100),
        (&["18446744073709551616"], 100),
    ] {
        let mut scene = Scene::new(BYTES, |_| Cost::trailer(COST));
        let mut trailers = with_values(values);
        trailers.insert("x-other", 9.into());
        let mut body = scene.body([data(400), Step::Trailers(trailers.clone())]);
        let (bytes, seen) = read(&mut body);
        assert_eq!((bytes.len(), seen), (400, Some(trailers)), "the frames pass unchanged");
        assert_eq!(scene.left(), 900, "{values:?}");
        drop(body);
        assert_eq!(scene.left(), 1_000 - cost, "{values:?}");
    }
}

#[test]
fn a_body_that_is_cut_before_its_trailer_costs_the_estimate() {
    for pulled in 0..3 {
        let mut scene = Scene::new(BYTES, |_| Cost::trailer(COST));
        let mut body = scene.body([data(400), data(400), Step::Trailers(with_values(&["250"]))]);
        (0..pulled).for_each(|_| assert!(pull(&mut body).unwrap().is_ok()));
        drop(body);
        assert_eq!(scene.left(), 900, "{pulled}");
    }
    let mut scene = Scene::new(BYTES, |_| Cost::trailer(COST));
    drop(scene.body([]));
    assert_eq!(scene.left(), 900);
}

/// Returns the tokens of a model.
fn tokens_of_json(body: &[u8]) -> Option<u64> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    answer["usage"]["total_tokens"].as_u64()
}

#[test]
fn a_number_in_the_body_is_the_cost_when_it_ends() {
    let json = r#"{"choices":["hello"],"usage":{"total_tokens":250}}"#;
    let no_number = r#"{"usage":{"total_tokens":"many"}}"#;
    for (text, keep, cost) in [
        (json, 1_000, 250),
        (json, json.len(), 250),
        (json, usize::MAX, 250),
        // The last bytes alone are no JSON.
        (json, json.len() - 1, 100),
        (json, 0, 100),
        (no_number, 1_000, 100),
        ("no json", 1_000, 100),
        ("", 1_000, 100),
    ] {
        for size in [1, 7, 1_000] {
            let mut scene = Scene::new(BYTES, move |_| Cost::of_body(keep, tokens_of_json));
            let frames = text.as_bytes().chunks(size).map(|bytes| Step::Data(Bytes::copy_from_slice(bytes)));
            let trailers = with_values(&["9"]);
            let mut body = scene.body(frames.chain([Step::Trailers(trailers.clone())]));
            assert_eq!(read(&mut body), (text.as_bytes().to_vec(), Some(trailers)));
            assert_eq!(scene.left(), 900);
            drop(body);
            assert_eq!(scene.left(), 1_000 - cost, "{text} {keep} {size}");
        }
    }
}

#[test]
fn the_last_bytes_that_passed_are_shown_once() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut random = Random(1);
    for round in 0..500 {
        let keep = random.below(50) as usize;
        let whole: Vec<u8> = (0..random.below(200)).map(|_| random.below(256) as u8).collect();
        let mut frames = Vec::new();
        let mut rest = &whole[..];
        while !rest.is_empty() {
            let (frame, after) = rest.split_at((random.below(40) as usize).min(rest.len()));
            frames.push(Step::Data(Bytes::copy_from_slice(frame)));
            rest = after;
        }
        let pulled = random.below(frames.len() as u64 + 2) as usize;
        let mut scene = Scene::new(BYTES, {
            let seen = seen.clone();
            move |_| {
                let seen = seen.clone();
                Cost::of_body(keep, move |last| {
                    seen.lock().unwrap().push(last.to_vec());
                    Some(last.len() as u64)
                })
            }
        });
        let mut body = scene.body(frames);
        let mut passed = Vec::new();
        for _ in 0..pulled {
            let frame = pull(&mut body);
            passed.extend(frame.into_iter().flat_map(|frame| frame.unwrap().into_data().unwrap()));
        }
        assert!(seen.lock().unwrap().is_empty());
        drop(body);
        assert_eq!(passed, whole[..passed.len()]);
        let last = passed.split_off(passed.len().saturating_sub(keep));
        assert_eq!(scene.left(), 1_000 - last.len() as u64);
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [last], "{round}");
    }
}

#[test]
fn a_panic_beside_a_body_costs_the_bytes_that_passed_or_the_estimate() {
    let costs = [|| Cost::bytes(), || Cost::of_body(9, |_| panic!("it is not called"))];
    for (cost, left) in costs.into_iter().zip([700, 900]) {
        let mut scene = Scene::new(BYTES, move |_| cost());
        let mut body = scene.body([data(300), data(300)]);
        let thread = thread::spawn(move || {
            assert!(pull(&mut body).unwrap().is_ok());
            panic!("a task fails");
        });
        assert!(thread.join().is_err());
        assert_eq!(scene.left(), left);
    }
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
            let cost = move |answer: Answer<'_>| if by_head { of_header(answer) } else { Cost::bytes() };
            let (clock, mock) = Clock::mock();
            let limiter = RateLimiter::stored(BYTES).max_debt(bound).unwrap().clock(clock).build();
            let mut scene = Scene::of(limiter, mock, |layer| layer.settle_on(cost));
            let response = scene.ask(costs(5_000).map(|_| brings([data(700), data(4_300)]).into_body()));
            read(&mut response.into_body());
            scene.is_granted_in((owed + 1) * MILLISECOND);
        }
    }
}

#[test]
fn a_window_takes_the_tokens_that_are_left() {
    let (clock, mock) = Clock::mock();
    let limiter = WindowLimiter::<u64>::builder(Window::per_minute(1_000)).clock(clock).build();
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

#[test]
fn a_cost_is_settled_under_the_plan_of_its_request() {
    let (clock, mock) = Clock::mock();
    let gold = Quota::per_second(10_000);
    let limiter = RateLimiter::stored(BYTES).headroom(gold).unwrap().clock(clock).build();
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
    let limiter = RateLimiter::stored(quota).clock(clock.clone()).build();
    let limit = LimitBy::new(limiter.clone()).key(|_: Head<'_>| Some(0)).name("all").unwrap();
    (limiter, limit)
}

#[test]
fn a_cost_is_settled_at_each_limit_or_at_none() {
    let (clock, mock) = Clock::mock();
    let (all, by_all) = shared(Quota::per_second(2_000), &clock);
    let limiter = RateLimiter::stored(BYTES).clock(clock).build();
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
    let all_owes = all.hold(&0, 0).unwrap().settle(1_502 + 100);
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
    let limiter: RateLimiter<u64> = RateLimiter::stored(BYTES).clock(clock).build();
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
    let limiter = RateLimiter::stored(Quota::per_second(5_000)).clock(clock).build();
    let by_all = by_all.shadow(true);
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
        let limiter = RateLimiter::stored(BYTES).clock(clock).build();
        let [one, two] = if swap { [by_large, by_small] } else { [by_small, by_large] };
        let (one, two) = (one.shadow(true), two.shadow(true));
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
    let mut scene = Scene::with(BYTES, |layer| layer.shadow(true).settle_on(of_header));
    scene.ask(costs(300));
    assert_eq!(scene.left(), 700);
    scene.ask(costs(800));
    assert_eq!(scene.left(), 0);
    // A request over the limit takes no tokens, and settles none.
    scene.ask(costs(0));
    scene.ask(costs(500));
    assert_eq!(scene.limiter.try_acquire(&KEY).unwrap_err().retry_after(), Some(ns(101 * MILLISECOND)));
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

/// A service whose response never comes.
#[derive(Clone)]
struct Silent;

impl Service<Request<Brought>> for Silent {
    type Response = Response<Frames>;
    type Error = Failed;
    type Future = std::future::Pending<Brought>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Brought>) -> Self::Future {
        std::future::pending()
    }
}

#[test]
fn a_request_without_a_response_costs_the_estimate() {
    let mut scene = Scene::new(BYTES, |_| Cost::bytes());
    assert_eq!(ask(&mut scene.service, ESTIMATE, Err(Failed)).unwrap_err(), Failed);
    assert_eq!(scene.left(), 900);
    let mut silent = scene.layer.layer(Silent);
    for (polls, left) in [(0, 800), (1, 700), (5, 600)] {
        let mut response = Box::pin(silent.call(request(ESTIMATE, Err(Failed))));
        for _ in 0..polls {
            assert!(response.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(response);
        assert_eq!(scene.left(), left);
    }
}

#[test]
fn a_body_that_is_taken_out_leaves_the_estimate_or_the_bytes_that_passed() {
    for (frames, cost) in [(0, 100), (1, 100), (2, 500)] {
        let mut scene = Scene::new(BYTES, |_| Cost::bytes());
        let mut body = scene.body([data(50), data(450), data(450)]);
        (0..frames).for_each(|_| assert!(pull(&mut body).unwrap().is_ok()));
        let inner = body.into_inner_or_else(|_| panic!("it is no refusal"));
        assert_eq!((inner.0.len(), scene.left()), (3 - frames, 1_000 - cost));
        drop(inner);
        assert_eq!(scene.left(), 1_000 - cost);
    }
    let mut scene = Scene::new(BYTES, |_| Cost::of_body(9, |_| panic!("it is not called")));
    drop(scene.body([data(50)]).into_inner_or_else(|_| panic!("it is no refusal")));
    assert_eq!(scene.left(), 900);
}

#[test]
fn a_clone_of_a_body_costs_nothing() {
    let mut scene = Scene::new(BYTES, |_| Cost::bytes());
    let mut body = scene.body([data(300), data(400)]);
    assert!(pull(&mut body).unwrap().is_ok());
    let mut clone = body.clone();
    assert_eq!((read(&mut clone).0.len(), scene.left()), (400, 700));
    drop(clone);
    assert_eq!(scene.left(), 700);
    read(&mut body);
    drop(body);
    assert_eq!(scene.left(), 300);
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

#[test]
fn tokens_left_and_costs_are_all_the_tokens() {
    let kind = |answer: Answer<'_>| {
        let kind = answer.headers.get("kind")?.to_str().ok()?;
        KINDS.into_iter().find(|known| *known == kind)
    };
    // More than all requests cost, and less: then a part is owed.
    for capacity in [1 << 30, 8_000_000] {
        let quota = Quota::per_second(1_000).burst(capacity);
        let mut random = Random(capacity);
        let mut scene = Scene::new(quota, move |answer| match kind(answer) {
            Some("bytes") => Cost::bytes(),
            Some("units") => Cost::bytes_each(NonZeroU64::new(16).unwrap()),
            Some("trailer") => Cost::trailer(COST),
            Some("body") => Cost::of_body(8, |last| last.first().map(|first| u64::from(*first) * 10)),
            Some("header") => of_header(answer),
            _ => Cost::ESTIMATE,
        });
        let (mut costs, mut owing) = (0, 0);
        // Bodies that are read later, in any order.
        let mut open: Vec<(ResponseBody<Frames>, Sum)> = Vec::new();
        for _ in 0..10_000 {
            let sum = Sum::random(&mut random);
            scene.estimate = Estimate(sum.estimate);
            let response = ask(&mut scene.service, scene.estimate, Ok(sum.response())).unwrap();
            if response.status() == 429 {
                owing += 1;
            } else {
                open.push((response.into_body(), sum));
            }
            while open.len() > random.below(20) as usize {
                let (mut body, mut sum) = open.swap_remove(random.below(open.len() as u64) as usize);
                let pulled = random.below(sum.frames.len() as u64 + 2) as usize;
                (0..pulled).for_each(|_| drop(pull(&mut body)));
                sum.frames.truncate(pulled);
                drop(body);
                costs += sum.cost();
                let taken: u64 = open.iter().map(|(_, sum)| sum.at_once()).sum();
                let left = capacity.saturating_sub(costs + taken);
                assert_eq!(scene.left(), left);
            }
        }
        for (body, mut sum) in open {
            drop(body);
            sum.frames.clear();
            costs += sum.cost();
        }
        assert_eq!(scene.left(), capacity.saturating_sub(costs));
        assert_eq!(owing > 0, capacity < costs, "{costs}");
        if capacity < costs {
            assert!(owing > 1_000 && costs < 2 * capacity, "{owing} {costs}");
            scene.is_granted_in((costs - capacity + 1) * MILLISECOND);
        }
    }
}

const KINDS: [&str; 6] = ["bytes", "units", "trailer", "body", "header", "estimate"];

/// A random response, and the sum of its costs.
struct Sum {
    kind: &'static str,
    estimate: u64,
    header: u64,
    frames: Vec<Result<Vec<u8>, u64>>,
}

impl Sum {
    fn random(random: &mut Random) -> Sum {
        let mut frames = Vec::new();
        for _ in 0..random.below(5) {
            frames.push(Ok((0..random.below(2_000)).map(|_| random.below(256) as u8).collect()));
        }
        if random.below(2) == 0 {
            frames.push(Err(random.below(4_000)));
        }
        Sum {
            kind: KINDS[random.below(KINDS.len() as u64) as usize],
            estimate: random.below(3_000),
            header: random.below(4_000),
            frames,
        }
    }

    fn response(&self) -> Response<Frames> {
        let steps = self.frames.iter().map(|frame| match frame {
            Ok(bytes) => Step::Data(Bytes::from(bytes.clone())),
            Err(trailer) => Step::Trailers(with_values(&[&trailer.to_string()])),
        });
        let mut response = brings(steps);
        response.headers_mut().insert("kind", HeaderValue::from_static(self.kind));
        response.headers_mut().insert(COST, self.header.into());
        response
    }

    /// Returns the cost of a body that is not read yet.
    fn at_once(&self) -> u64 {
        if self.kind == "header" { self.header } else { self.estimate }
    }

    /// Returns the cost of the frames, all of which have passed.
    fn cost(&self) -> u64 {
        let bytes: Vec<u8> = self.frames.iter().flatten().flatten().copied().collect();
        let all = bytes.len() as u64;
        let last = &bytes[bytes.len().saturating_sub(8)..];
        match self.kind {
            "bytes" => all.max(1),
            "units" => (all / 16 + u64::from(!all.is_multiple_of(16))).max(1),
            "trailer" => {
                self.frames.iter().find_map(|frame| frame.as_ref().err().copied()).unwrap_or(self.estimate)
            }
            "body" => last.first().map_or(self.estimate, |first| u64::from(*first) * 10),
            _ => self.at_once(),
        }
    }
}

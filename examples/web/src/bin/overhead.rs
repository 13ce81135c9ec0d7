//! Requests through a layer, to be counted by callgrind: 20,000 of one kind, in a loop in a
//! function of its own. `scripts/instructions layer` counts them.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Bytes};
use tollgate::{AnyRule, Clock, Granted, Quota, RateLimiter, Stats};
use tollgate_http::{
    Answer, AnyLimiter, ClientIp, Cost, DelayLayer, Exempt, Headers, InvalidBan, LayerBuilder, LayerLimiter,
    LayerPlan, LayerRequest, LimitBy, RateLimitLayer, ResponseBody,
};
use tollgate_testing::Nothing;
use tower::{Layer, Service};

const REQUESTS: u64 = 20_000;

/// The address of each counted request, and another one.
const PEER: [u8; 4] = [192, 0, 2, 1];
const OTHER: [u8; 4] = [192, 0, 2, 2];

/// A service whose response has a body of one frame of 1,000 bytes.
#[derive(Clone, Copy)]
struct Frame;

impl Service<Request<()>> for Frame {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Full<Bytes>>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Full::from(&[b'x'; 1_000][..]))))
    }
}

/// Sends a request of a peer, as a server makes it.
#[inline(always)]
fn send<S, B>(service: &mut S, peer: [u8; 4], context: &mut Context<'_>) -> Response<B>
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut request = Request::new(());
    request.extensions_mut().insert(IpAddr::from(peer));
    assert!(service.poll_ready(context).is_ready());
    match pin!(service.call(black_box(request))).poll(context) {
        Poll::Ready(Ok(response)) => response,
        Poll::Pending | Poll::Ready(Err(_)) => panic!("no request waits or fails"),
    }
}

/// The counted part: requests, the service, and the responses. Returns the number of responses with
/// the status.
#[inline(never)]
fn requests<S, B>(service: &mut S, status: StatusCode, read: impl Fn(B, &mut Context<'_>)) -> u64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut context = Context::from_waker(Waker::noop());
    let mut right = 0;
    for _ in 0..REQUESTS {
        let response = black_box(send(service, PEER, &mut context));
        right += u64::from(response.status() == status);
        read(response.into_body(), &mut context);
    }
    right
}

/// Drops a body.
fn unread<B>(_: B, _: &mut Context<'_>) {}

/// Reads a body to its end.
fn all<B: Body>(body: B, context: &mut Context<'_>) {
    let mut body = pin!(body);
    while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(context) {
        let _ = black_box(frame);
    }
}

type Builder = LayerBuilder<IpAddr>;

/// Requests behind a limit by address, with its options.
fn behind(quota: Quota, status: StatusCode, set: impl FnOnce(Builder) -> Builder) -> u64 {
    let limiter = RateLimiter::new(quota);
    let _ = limiter.try_acquire(&IpAddr::from(PEER));
    let layer = set(RateLimitLayer::builder(limiter).key(ClientIp::peer())).build();
    requests(&mut layer.layer(Nothing), status, unread)
}

/// Requests behind a limit with bans, of which one of another address has begun.
fn after_a_ban() -> Result<u64, InvalidBan> {
    let quota = Quota::every(HOUR).burst(10 * REQUESTS);
    let limiter = Arc::new(RateLimiter::new(quota));
    let layer =
        RateLimitLayer::builder(limiter.clone()).key(ClientIp::peer()).ban_after(1, MINUTE).for_(HOUR)?;
    let mut service = layer.build().layer(Nothing);
    limiter.try_acquire_n(&IpAddr::from(OTHER), quota.capacity()).expect("it is full");
    let status = send(&mut service, OTHER, &mut Context::from_waker(Waker::noop())).status();
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    Ok(requests(&mut service, StatusCode::OK, unread))
}

/// Requests whose responses have a body that is read.
fn with_bodies(quota: Quota, set: impl FnOnce(Builder) -> Builder) -> u64 {
    let layer = set(RateLimitLayer::builder(RateLimiter::new(quota)).key(ClientIp::peer())).build();
    requests(&mut layer.layer(Frame), StatusCode::OK, all::<ResponseBody<Full<Bytes>>>)
}

/// Requests whose key is searched for, and found at once.
fn with_a_search(quota: Quota) -> u64 {
    let found = || ready(Some(IpAddr::from(PEER)));
    let layer = RateLimitLayer::builder(RateLimiter::new(quota)).key_async(move |_| found()).build();
    requests(&mut layer.layer(Nothing), StatusCode::OK, unread)
}

/// A limiter that is asked, and replies at once.
struct Replies(RateLimiter<IpAddr>);

impl LayerLimiter<IpAddr> for Replies {
    fn id(&self) -> usize {
        1
    }

    fn rule(&self, _: Option<&LayerPlan>) -> AnyRule {
        self.0.rule().into()
    }

    fn clock(&self) -> Clock {
        Clock::new()
    }

    fn stats(&self) -> Stats {
        self.0.stats()
    }

    fn take(&self, request: LayerRequest<'_, IpAddr>) -> Answer {
        let key = request.key.expect("each has an address");
        Answer::Later(Box::pin(ready(self.0.try_acquire_n(key, request.n))))
    }

    fn refund(&self, _: LayerRequest<'_, IpAddr>) {}

    fn charge(&self, _: LayerRequest<'_, IpAddr>) {}

    fn peek(&self, _: LayerRequest<'_, IpAddr>) -> Granted {
        unreachable!("no request is settled")
    }
}

/// Requests whose limiter is asked.
fn with_a_question(quota: Quota) -> u64 {
    let limiter = AnyLimiter::of(Replies(RateLimiter::new(quota)));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
    requests(&mut layer.layer(Nothing), StatusCode::OK, unread)
}

/// Requests that may wait, and do not.
fn with_delay(quota: Quota) -> u64 {
    let layer = RateLimitLayer::builder(RateLimiter::new(quota)).key(ClientIp::peer()).build();
    let delay = DelayLayer::by_timer(MINUTE, |_| ready(()));
    requests(&mut delay.layer(layer.layer(Nothing)), StatusCode::OK, unread)
}

/// Requests under a plan or after a change of the quota.
fn under_another(quota: Quota, as_plan: bool) -> u64 {
    let builder = RateLimiter::<IpAddr>::builder(Quota::per_second(500_000)).headroom(quota);
    let limiter = Arc::new(builder.expect("there is room").build());
    let plan = as_plan.then(|| limiter.plan(quota).expect("it can be held"));
    let layer = RateLimitLayer::builder(limiter.clone()).key(ClientIp::peer()).plan(move |_| plan).build();
    if !as_plan {
        limiter.set_rule(quota).expect("it can be held");
    }
    requests(&mut layer.layer(Nothing), StatusCode::OK, unread)
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (plenty, none) = (Quota::per_second(1_000_000_000), Quota::per_hour(1));
    let kind = std::env::args().nth(1).expect("the kind of requests");
    // Until then, a decision takes other instructions.
    Clock::new().warm();
    let granted = |set: fn(Builder) -> Builder| behind(plenty, StatusCode::OK, set);
    let refused = |set: fn(Builder) -> Builder| behind(none, StatusCode::TOO_MANY_REQUESTS, set);
    let ban =
        |layer: Builder, refusals| layer.ban_after(refusals, MINUTE).for_(HOUR).expect("it is in bounds");
    let another = || LimitBy::new(RateLimiter::new(Quota::per_second(500_000_000))).key(ClientIp::peer());
    let right = match kind.as_str() {
        "bare" => requests(&mut Nothing, StatusCode::OK, unread),
        "granted" => granted(|layer| layer),
        "granted-silent" => granted(|layer| layer.headers(Headers::None)),
        "granted-plan" => under_another(Quota::per_second(1_000_000), true),
        "granted-changed" => under_another(Quota::per_second(1_000_000), false),
        "refused" => refused(|layer| layer),
        "refused-silent" => refused(|layer| layer.headers(Headers::None)),
        "exempt" => granted(|layer| layer.exempt(Exempt::paths(["/", "/static/*"]).expect("they are paths"))),
        "not-exempt" => {
            granted(|layer| layer.exempt(Exempt::paths(["/health", "/static/*"]).expect("they are paths")))
        }
        "ban" => behind(plenty, StatusCode::OK, |layer| ban(layer, 100)),
        "ban-begun" => after_a_ban()?,
        "ban-counted" => behind(none, StatusCode::TOO_MANY_REQUESTS, |layer| ban(layer, 2 * REQUESTS)),
        "banned" => behind(none, StatusCode::TOO_MANY_REQUESTS, |layer| ban(layer, 1)),
        "settle-head" => granted(|layer| layer.settle_on(|_| Cost::tokens(2))),
        "delay-none" => with_delay(plenty),
        "asked" => with_a_question(plenty),
        "async-key" => with_a_search(plenty),
        "when" => granted(|layer| layer.when(|_| true)),
        "two-limits" => behind(plenty, StatusCode::OK, |layer| layer.and(another())),
        "shadow-limit" => behind(plenty, StatusCode::OK, |layer| layer.and(another().enforce(0))),
        "upstream" => granted(LayerBuilder::tell_upstream),
        "expose" => granted(LayerBuilder::expose_headers),
        "span-off" => granted(LayerBuilder::record_in_span),
        "log-off" => refused(|layer| layer.log_refusals(Quota::per_second(1))),
        "log-suppressed" | "log-written" => {
            tracing_subscriber::fmt().with_writer(std::io::sink).init();
            let quota = if kind == "log-written" { plenty } else { none };
            behind(none, StatusCode::TOO_MANY_REQUESTS, |layer| layer.log_refusals(quota))
        }
        // The kinds after a bare one are compared with it.
        "bare-body" => requests(&mut Frame, StatusCode::OK, all::<Full<Bytes>>),
        "granted-body" => with_bodies(plenty, |layer| layer),
        "settle-bytes" => with_bodies(plenty, |layer| layer.settle_on(|_| Cost::bytes())),
        _ => panic!("no such kind: {kind}"),
    };
    assert_eq!(right, REQUESTS, "each is as its kind says");
    Ok(())
}

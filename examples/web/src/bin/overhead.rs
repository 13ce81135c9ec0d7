//! Requests through a layer, to be counted by callgrind: 20,000 of one kind, in a loop in a function of its own.
//! `scripts/layer-instructions` counts them.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::{Request, Response, StatusCode};
use tollgate::http::{ClientIp, Headers};
use tollgate::tower::RateLimitLayer;
use tollgate::{Clock, Quota, RateLimiter};
use tower::{Layer, Service};

const REQUESTS: u64 = 20_000;

/// Answers at once.
#[derive(Clone, Copy)]
struct Nothing;

impl Service<Request<()>> for Nothing {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(())))
    }
}

/// What is counted: a request with its peer's address, as a server makes it, the service, and the response. How many have the
/// status.
#[inline(never)]
fn requests<S, B>(service: &mut S, status: StatusCode) -> u64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut context = Context::from_waker(Waker::noop());
    let mut right = 0;
    for _ in 0..REQUESTS {
        let mut request = Request::new(());
        request.extensions_mut().insert(IpAddr::from([192, 0, 2, 1]));
        assert!(service.poll_ready(&mut context).is_ready());
        let Poll::Ready(Ok(response)) = pin!(service.call(black_box(request))).poll(&mut context) else {
            panic!("nothing is waited for");
        };
        right += u64::from(black_box(response).status() == status);
    }
    right
}

/// Behind a limit by address that grants all of them, or none.
fn limited(quota: Quota, headers: Headers, status: StatusCode) -> u64 {
    let limiter = RateLimiter::new(quota);
    let _ = limiter.try_acquire(&IpAddr::from([192, 0, 2, 1]));
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).headers(headers).build();
    requests(&mut layer.layer(Nothing), status)
}

/// The same with headers, under a plan or after a change of the quota.
fn under_another(quota: Quota, as_plan: bool) -> u64 {
    let builder = RateLimiter::<IpAddr>::builder(Quota::per_second(500_000)).headroom(quota);
    let limiter = Arc::new(builder.expect("there is room").build());
    let plan = as_plan.then(|| limiter.plan(quota).expect("it can be held"));
    let layer = RateLimitLayer::builder(limiter.clone()).key(ClientIp::peer()).plan(move |_| plan).build();
    if !as_plan {
        limiter.set_quota(quota).expect("it can be held");
    }
    requests(&mut layer.layer(Nothing), StatusCode::OK)
}

fn main() {
    let (plenty, none) = (Quota::per_second(1_000_000_000), Quota::per_hour(1));
    let kind = std::env::args().nth(1).expect("the kind of requests");
    // Until then, a decision takes other instructions.
    Clock::new().warm();
    let right = match kind.as_str() {
        "bare" => requests(&mut Nothing, StatusCode::OK),
        "granted" => limited(plenty, Headers::Ietf, StatusCode::OK),
        "granted-silent" => limited(plenty, Headers::None, StatusCode::OK),
        "granted-plan" => under_another(Quota::per_second(1_000_000), true),
        "granted-changed" => under_another(Quota::per_second(1_000_000), false),
        "refused" => limited(none, Headers::Ietf, StatusCode::TOO_MANY_REQUESTS),
        "refused-silent" => limited(none, Headers::None, StatusCode::TOO_MANY_REQUESTS),
        _ => panic!("no such kind: {kind}"),
    };
    assert_eq!(right, REQUESTS, "each is what it says");
}

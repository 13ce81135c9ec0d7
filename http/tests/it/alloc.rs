// promise: layer
//! The allocations of a request that a layer decides on.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use http::{Request, Response};
use tollgate::{Clock, Quota, RateLimiter};
use tollgate_http::{ClientIp, Head, Headers, RateLimitLayer, Verdict};
use tower_layer::Layer;
use tower_service::Service;

use tollgate_testing::Nothing;

/// Returns the allocations of a request, from its making to the drop of its response.
fn allocations<S, B>(service: &mut S) -> u64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut context = Context::from_waker(Waker::noop());
    let counted = measure(|| {
        let mut request = Request::new(());
        request.extensions_mut().insert(IpAddr::from([192, 0, 2, 1]));
        assert!(service.poll_ready(&mut context).is_ready());
        assert!(pin!(service.call(request)).poll(&mut context).is_ready());
    });
    counted.count_total
}

#[test]
fn a_request_allocates_its_decision_alone() {
    let limiter = RateLimiter::<IpAddr>::builder(Quota::per_hour(3)).clock(Clock::mock().0).build();
    assert!(limiter.try_acquire(&IpAddr::from([192, 0, 2, 1])).is_ok());
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).headers(Headers::None).build();
    let mut service = layer.layer(Nothing);
    let bare = allocations(&mut Nothing);
    // Two requests are granted, with their decision among the extensions. The later ones are
    // refused.
    let _first = allocations(&mut service);
    assert_eq!(allocations(&mut service), bare + 1);
    let _first = allocations(&mut service);
    // A refusal has the two parts of a header map, for `no-store`.
    assert_eq!(allocations(&mut service), bare + 2);
}

#[test]
fn a_decision_on_a_head_allocates_nothing() {
    let limiter = RateLimiter::<IpAddr>::builder(Quota::per_hour(9)).clock(Clock::mock().0).build();
    let peer = IpAddr::from([192, 0, 2, 1]);
    assert!(limiter.try_acquire(&peer).is_ok());
    let layer = RateLimitLayer::builder(limiter).key(ClientIp::peer()).build();
    let (head, ()) = Request::new(()).into_parts();
    let mut context = Context::from_waker(Waker::noop());
    let counted = measure(|| {
        let decided = pin!(layer.decide(Head::from(&head).with_peer(peer))).poll(&mut context);
        assert!(matches!(decided, Poll::Ready(Verdict::Passed(_))));
    });
    assert_eq!(counted.count_total, 0);
}

// promise: layer
//! The layer and the readiness of the inner service: a refusal takes no part of it, and does not
//! wait for it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use http::{Request, Response, StatusCode};
use tollgate::{Clock, Quota, RateLimiter};
use tollgate_http::RateLimitLayer;
use tower_layer::Layer;
use tower_service::Service;

/// Permits for concurrent requests, and the tasks that wait for one.
#[derive(Default)]
struct Permits {
    left: AtomicUsize,
    tasks: Mutex<Vec<Waker>>,
    clones: AtomicUsize,
}

/// A permit in use.
struct Permit(Arc<Permits>);

impl Permit {
    fn take(permits: &Arc<Permits>) -> Option<Permit> {
        let taken = permits.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        taken.ok().map(|_| Permit(permits.clone()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Relaxed);
        self.0.tasks.lock().unwrap().drain(..).for_each(Waker::wake);
    }
}

/// A service that reserves a permit when it gets ready, as `ConcurrencyLimit` of tower does.
struct Reserving {
    permits: Arc<Permits>,
    permit: Option<Permit>,
}

impl Reserving {
    fn new(permits: usize) -> Reserving {
        let permits = Permits { left: AtomicUsize::new(permits), ..Permits::default() };
        Reserving { permits: Arc::new(permits), permit: None }
    }
}

impl Clone for Reserving {
    fn clone(&self) -> Reserving {
        self.permits.clones.fetch_add(1, Relaxed);
        Reserving { permits: self.permits.clone(), permit: None }
    }
}

impl Service<Request<()>> for Reserving {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<()>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.permit.is_none() {
            self.permit = Permit::take(&self.permits);
        }
        if self.permit.is_none() {
            self.permits.tasks.lock().unwrap().push(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let permit = self.permit.take().expect("it was ready");
        Box::pin(async move {
            let _permit = permit;
            Ok(Response::new(()))
        })
    }
}

/// A waker that counts its wakes.
#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn layer(tokens: u64) -> RateLimitLayer<u64> {
    let (clock, _mock) = Clock::mock();
    RateLimitLayer::builder(RateLimiter::<u64>::builder(Quota::per_hour(tokens)).clock(clock).build())
        .shared()
        .build()
}

/// Returns the status of a response, or `None` if the service or the response is pending.
fn status<S, B>(service: &mut S) -> Option<StatusCode>
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut context = Context::from_waker(Waker::noop());
    if service.poll_ready(&mut context).is_pending() {
        return None;
    }
    match pin!(service.call(Request::new(()))).poll(&mut context) {
        Poll::Ready(Ok(response)) => Some(response.status()),
        Poll::Pending => None,
    }
}

const SERVED: Option<StatusCode> = Some(StatusCode::OK);
const REFUSED: Option<StatusCode> = Some(StatusCode::TOO_MANY_REQUESTS);

#[test]
fn refused_connections_hold_nothing_of_the_service_within() {
    let layer = layer(1);
    let within = Reserving::new(2);
    // Each connection has a service, and keeps it.
    let mut connections: Vec<_> = (0..8).map(|_| layer.layer(within.clone())).collect();
    let mut statuses = Vec::new();
    for connection in &mut connections {
        statuses.push(status(connection));
    }
    let expected = [&[SERVED][..], &[REFUSED; 7]].concat();
    assert_eq!((statuses, within.permits.left.load(Relaxed)), (expected, 2));
}

#[test]
fn a_refusal_does_not_wait_for_a_busy_service() {
    let layer = layer(1);
    let within = Reserving::new(1);
    let mut service = layer.layer(within.clone());
    assert_eq!(status(&mut service), SERVED);
    let _busy = Permit::take(&within.permits).unwrap();
    assert_eq!(status(&mut service), REFUSED);
}

#[test]
fn a_granted_request_waits_for_the_service_within_in_its_response() {
    let layer = layer(9);
    let within = Reserving::new(1);
    let mut service = layer.layer(within.clone());
    let busy = Permit::take(&within.permits).unwrap();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    assert!(service.poll_ready(&mut context).is_ready());
    let mut response = pin!(service.call(Request::new(())));
    assert!(response.as_mut().poll(&mut context).is_pending());
    drop(busy);
    assert_eq!(woken.0.load(Relaxed), 1);
    let Poll::Ready(Ok(response)) = response.poll(&mut context) else { panic!("it was woken for nothing") };
    assert!(response.headers().contains_key("ratelimit"));
    assert_eq!((response.status(), within.permits.left.load(Relaxed)), (StatusCode::OK, 1));
}

#[test]
fn a_dropped_response_leaves_nothing_reserved() {
    let layer = layer(2);
    let within = Reserving::new(1);
    let mut service = layer.layer(within.clone());
    let busy = Permit::take(&within.permits).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_ready());
    let mut response = Box::pin(service.call(Request::new(())));
    assert!(response.as_mut().poll(&mut context).is_pending());
    drop((busy, response));
    assert_eq!(within.permits.left.load(Relaxed), 1);
    // The dropped response has spent its token: one of two is left.
    assert_eq!([(); 2].map(|()| status(&mut service)), [SERVED, REFUSED]);
}

#[test]
fn a_ready_service_is_called_without_a_clone() {
    let within = Reserving::new(1);
    let mut service = layer(3).layer(within.clone());
    let before = within.permits.clones.load(Relaxed);
    assert_eq!([(); 3].map(|()| status(&mut service)), [SERVED; 3]);
    assert_eq!(within.permits.clones.load(Relaxed), before);
}

/// A service that never gets ready.
#[derive(Clone)]
struct Broken;

impl Service<Request<()>> for Broken {
    type Response = Response<()>;
    type Error = &'static str;
    type Future = std::future::Pending<Result<Response<()>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Err("closed"))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        panic!("it is not ready")
    }
}

#[test]
fn an_error_of_readiness_is_that_of_the_response() {
    let mut service = layer(1).layer(Broken);
    let mut context = Context::from_waker(Waker::noop());
    let mut ask = || {
        assert!(matches!(service.poll_ready(&mut context), Poll::Ready(Ok(()))));
        let Poll::Ready(response) = pin!(service.call(Request::new(()))).poll(&mut context) else {
            panic!("nothing is waited for")
        };
        response.map(|response| response.status())
    };
    assert_eq!(ask(), Err("closed"));
    // A broken service makes no difference to a refusal.
    assert_eq!(ask(), Ok(StatusCode::TOO_MANY_REQUESTS));
}

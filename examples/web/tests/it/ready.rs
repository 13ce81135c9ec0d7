// promise: layer
//! The layer before services that reserve something when they get ready, with a service for each
//! connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tollgate::{Quota, RateLimiter};
use tollgate_http::RateLimitLayer;
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};

const PATIENCE: Duration = Duration::from_secs(5);
const CONNECTIONS: usize = 8;

/// A layer that grants some requests an hour.
fn limit(requests: u64) -> RateLimitLayer<u64> {
    RateLimitLayer::builder(RateLimiter::<u64>::new(Quota::per_hour(requests))).shared().build()
}

/// The status of a request's response, through the connection's own service. `None` if it hangs.
async fn status<S, B>(service: &mut S) -> Option<Result<StatusCode, BoxError>>
where
    S: Service<Request<()>, Response = Response<B>, Error: Into<BoxError>>,
{
    let answer = async { service.ready().await?.call(Request::new(())).await };
    let answer = timeout(PATIENCE, answer).await.ok()?;
    Some(answer.map(|response| response.status()).map_err(Into::into))
}

/// Sends requests of each connection in turn, twice over: the first of all is granted, and none of
/// them hangs.
async fn one_is_served_and_none_hangs<T, B>(within: T)
where
    T: Service<Request<()>, Response = Response<B>, Error: Into<BoxError>> + Clone,
{
    let layer = limit(1);
    let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| layer.layer(within.clone())).collect();
    let mut statuses = Vec::new();
    for _ in 0..2 {
        for connection in &mut connections {
            statuses.push(status(connection).await.map(|answer| answer.unwrap().as_u16()));
            assert_ne!(statuses.last(), Some(&None), "it hangs after {statuses:?}");
        }
    }
    assert_eq!(statuses[0], Some(200));
    assert!(statuses[1..].iter().all(|status| *status == Some(429)), "{statuses:?}");
    // The service within is as it was: a connection without a limit is served at once.
    let mut free = within;
    assert_eq!(status(&mut free).await.unwrap().unwrap(), StatusCode::OK);
}

async fn hello(_: Request<()>) -> Result<Response<()>, Infallible> {
    Ok(Response::new(()))
}

#[tokio::test(start_paused = true)]
async fn refusals_leave_the_permits_of_a_concurrency_limit() {
    one_is_served_and_none_hangs(
        ServiceBuilder::new().layer(ConcurrencyLimitLayer::new(2)).service(service_fn(hello)),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn refusals_leave_the_places_of_a_buffer() {
    one_is_served_and_none_hangs(ServiceBuilder::new().layer(BufferLayer::new(2)).service(service_fn(hello)))
        .await;
}

#[tokio::test(start_paused = true)]
async fn refusals_leave_the_permits_behind_load_shedding() {
    one_is_served_and_none_hangs(
        ServiceBuilder::new()
            .layer(LoadShedLayer::new())
            .layer(ConcurrencyLimitLayer::new(2))
            .service(service_fn(hello)),
    )
    .await;
}

/// A service that answers when a gate is opened.
fn gated(
    gate: &Arc<Semaphore>,
) -> impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send> + Clone + use<> {
    let gate = gate.clone();
    service_fn(move |_: Request<()>| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.expect("it is never closed").forget();
            Ok(Response::new(()))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_answered_while_the_service_within_is_busy() {
    let gate = Arc::new(Semaphore::new(0));
    let within = ServiceBuilder::new().layer(ConcurrencyLimitLayer::new(1)).service(gated(&gate));
    let layer = limit(2);
    let connect = || layer.layer(within.clone());
    let (mut one, mut two, mut three) = (connect(), connect(), connect());
    let first = tokio::spawn(async move { status(&mut one).await.unwrap().unwrap() });
    tokio::task::yield_now().await;
    // Granted, and it waits for the permit of the first.
    let second = tokio::spawn(async move { status(&mut two).await.unwrap().unwrap() });
    tokio::task::yield_now().await;
    assert_eq!(status(&mut three).await.unwrap().unwrap(), StatusCode::TOO_MANY_REQUESTS);
    assert!(!first.is_finished() && !second.is_finished());
    gate.add_permits(2);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (StatusCode::OK, StatusCode::OK));
}

#[tokio::test(start_paused = true)]
async fn a_granted_request_that_is_dropped_leaves_its_place_in_the_queue() {
    let gate = Arc::new(Semaphore::new(0));
    let within = ServiceBuilder::new().layer(ConcurrencyLimitLayer::new(1)).service(gated(&gate));
    let layer = limit(3);
    let connect = || layer.layer(within.clone());
    let (mut one, mut two, mut three) = (connect(), connect(), connect());
    let first = tokio::spawn(async move { status(&mut one).await.unwrap().unwrap() });
    tokio::task::yield_now().await;
    // Its response is dropped when the patience is over; the connection stays.
    assert!(timeout(Duration::from_millis(1), status(&mut two)).await.is_err());
    gate.add_permits(2);
    assert_eq!(first.await.unwrap(), StatusCode::OK);
    assert_eq!(status(&mut three).await.unwrap().unwrap(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn load_shedding_within_sheds_what_is_granted() {
    let gate = Arc::new(Semaphore::new(0));
    let within = ServiceBuilder::new()
        .layer(LoadShedLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(gated(&gate));
    let layer = limit(2);
    let connect = || layer.layer(within.clone());
    let (mut one, mut two, mut three) = (connect(), connect(), connect());
    let first = tokio::spawn(async move { status(&mut one).await.unwrap().unwrap() });
    tokio::task::yield_now().await;
    let shed = status(&mut two).await.unwrap().unwrap_err();
    assert!(shed.is::<tower::load_shed::error::Overloaded>(), "{shed}");
    assert_eq!(status(&mut three).await.unwrap().unwrap(), StatusCode::TOO_MANY_REQUESTS);
    gate.add_permits(1);
    assert_eq!(first.await.unwrap(), StatusCode::OK);
}

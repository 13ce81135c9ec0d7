// promise: layer
//! The layer of requests in flight among real services: a million requests leave no place taken.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use tokio::sync::oneshot;
use tollgate_adaptive::{Inflight, Priority};
use tollgate_adaptive::{InflightLayer, Until};
use tollgate_testing::Random;
use tonic::Code;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::timeout::TimeoutLayer;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::support::{self, Client, says, status};

type Answered = Response<Full<Bytes>>;

/// An upstream that answers, fails, panics, or hangs for longer than the timeout, by the path.
async fn upstream(request: Request<()>) -> Result<Answered, Infallible> {
    let mut response = Response::new(Full::from("hello"));
    match request.uri().path() {
        "/yield" => tokio::task::yield_now().await,
        "/500" => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
        "/503" => *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
        "/panic" => panic!("the upstream panics"),
        "/hang" => tokio::time::sleep(Duration::from_secs(60)).await,
        _ => {}
    }
    Ok(response)
}

type Inner = BoxCloneSyncService<Request<()>, Answered, BoxError>;

/// The services within, each with queues or permits of its own.
fn stacks() -> Vec<(&'static str, Inner)> {
    const SOON: Duration = Duration::from_millis(2);
    let service = || service_fn(upstream);
    let timeout = ServiceBuilder::new().layer(TimeoutLayer::new(SOON)).service(service());
    let limited = ServiceBuilder::new()
        .layer(TimeoutLayer::new(SOON))
        .layer(ConcurrencyLimitLayer::new(5))
        .service(service());
    let buffered =
        ServiceBuilder::new().layer(BufferLayer::new(4)).layer(TimeoutLayer::new(SOON)).service(service());
    let shed = ServiceBuilder::new()
        .layer(LoadShedLayer::new())
        .layer(ConcurrencyLimitLayer::new(5))
        .layer(TimeoutLayer::new(SOON))
        .service(service());
    vec![
        ("Timeout", BoxCloneSyncService::new(timeout)),
        ("ConcurrencyLimit", BoxCloneSyncService::new(limited)),
        ("Buffer", BoxCloneSyncService::new(buffered)),
        ("LoadShed", BoxCloneSyncService::new(shed)),
    ]
}

/// Ends of requests, as their callers saw them.
#[derive(Default)]
struct Ends {
    answers: AtomicU64,
    errors: AtomicU64,
    refused: AtomicU64,
    /// Dropped by the caller, or panicked.
    cut: AtomicU64,
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}

/// A future that is dropped after a number of polls.
struct CutAfter<F>(Option<Pin<Box<F>>>, u64);

impl<F: Future> Future for CutAfter<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.1 == 0 {
            self.0 = None;
            return Poll::Ready(None);
        }
        self.1 -= 1;
        let future = self.0.as_mut().expect("it is not polled when it is ready");
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // The next poll cuts it, whether it was woken or not.
            Poll::Pending if self.1 == 0 => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Sends requests in turn, of which some are cut, and some bodies are read.
async fn send<S, B>(mut service: S, requests: u64, seed: u64, ends: &Ends)
where
    S: Service<Request<()>, Response = Response<B>, Error = BoxError>,
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let mut random = Random(seed);
    for _ in 0..requests {
        // Panics and hangs are rare: each costs the test an unwinding, or the time of the timeout.
        let path = match random.below(1_000) {
            0 => "/panic",
            1 => "/hang",
            2..300 => "/yield",
            300..340 => "/500",
            340..360 => "/503",
            _ => "/",
        };
        let request = Request::get(path).body(()).unwrap();
        let polls = if random.below(20) == 0 { random.below(3) } else { u64::MAX };
        service.ready().await.unwrap();
        let future = AssertUnwindSafe(CutAfter(Some(Box::pin(service.call(request))), polls));
        match catch(future).await {
            None | Some(None) => add(&ends.cut),
            Some(Some(Err(_))) => add(&ends.errors),
            Some(Some(Ok(response))) if response.headers().contains_key("retry-after") => add(&ends.refused),
            Some(Some(Ok(response))) => {
                add(&ends.answers);
                if random.below(2) == 0 {
                    assert_eq!(response.into_body().frame().await.map(|frame| frame.is_ok()), Some(true));
                }
            }
        }
    }
}

/// Catches a panic of a poll, as a server does for each request. `None` is a panic.
async fn catch<F: Future + Unpin>(mut future: AssertUnwindSafe<F>) -> Option<F::Output> {
    std::future::poll_fn(move |context| {
        let poll = std::panic::catch_unwind(AssertUnwindSafe(|| Pin::new(&mut future.0).poll(context)));
        match poll {
            Ok(poll) => poll.map(Some),
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}

const TASKS: u64 = 16;
const REQUESTS: u64 = 1_000_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_million_requests_leak_no_place() {
    std::panic::set_hook(Box::new({
        let before = std::panic::take_hook();
        move |info| {
            if info.payload().downcast_ref::<&str>().is_none_or(|text| *text != "the upstream panics") {
                before(info);
            }
        }
    }));
    let runs: Vec<_> =
        stacks().into_iter().flat_map(|stack| [(stack.clone(), Until::Head), (stack, Until::Body)]).collect();
    let each = REQUESTS / (runs.len() as u64 * TASKS) + 1;
    let mut sent = 0;
    for (run, ((name, inner), until)) in runs.into_iter().enumerate() {
        let target = Duration::from_millis(20);
        let limit = Arc::new(Inflight::adaptive(target, 12).start(9).floor(4).build().unwrap());
        let layer = InflightLayer::builder(limit.clone())
            .until(until)
            .priority(|head| match head.uri.path() {
                "/yield" => Priority::Sheddable,
                _ => Priority::Default,
            })
            .build();
        let ends = Arc::new(Ends::default());
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (service, ends) = (layer.layer(inner.clone()), ends.clone());
                tokio::spawn(async move { send(service, each, task + 100 * run as u64, &ends).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        sent += each * TASKS;
        let (stats, of) = (layer.stats(), |count: &AtomicU64| count.load(Relaxed));
        let name = format!("{name}, {until:?}: {stats:?}");
        assert_eq!(limit.in_flight(), 0, "{name}");
        let ends = [&ends.answers, &ends.errors, &ends.refused, &ends.cut].map(of);
        let [answers, errors, refused, cut] = ends;
        // Each count is that of the callers, but for refusals that a caller cut.
        assert_eq!(answers + errors + refused + cut, each * TASKS, "{name}");
        assert_eq!(stats.admitted + stats.refused, each * TASKS, "{name}");
        assert_eq!(stats.answered + stats.overloaded + stats.failed, answers + errors, "{name}");
        assert_eq!(stats.admitted, answers + errors + stats.given_up, "{name}");
        assert!(stats.refused >= refused && stats.given_up <= cut, "{name}");
        assert_eq!(stats.latencies.iter().sum::<u64>(), stats.answered, "{name}");
        assert!((4..=12).contains(&stats.inflight.limit), "{name}");
        // The run had each of them.
        assert!(answers > 0 && cut > 0 && stats.failed > 0 && stats.overloaded > 0, "{name}");
        // All places are free: a request is served. The services within are as they were.
        let mut service = layer.layer(inner);
        let request = Request::get("/").body(()).unwrap();
        assert_eq!(service.ready().await.unwrap().call(request).await.unwrap().status(), 200, "{name}");
    }
    assert!(sent >= REQUESTS);
}

#[tokio::test]
async fn the_example_has_a_limit_for_each_upstream() {
    let server = support::Server::start(env!("CARGO_BIN_EXE_inflight"));
    let mut client = Client::connect(&server.address).await;
    let found = client.get("/search").await;
    assert_eq!((status(&found), found.body().as_ref()), (200, &b"found\n"[..]));
    assert!(says(&found, "ratelimit").is_some());
    // Twenty places, of which the default priority has seventeen; two workers.
    let address = server.address.clone();
    let flood: Vec<_> = (0..60)
        .map(|_| {
            let address = address.clone();
            tokio::spawn(async move {
                let response = Client::connect(&address).await.get("/search").await;
                (status(&response), says(&response, "retry-after").map(str::to_owned))
            })
        })
        .collect();
    let paid = client.get("/pay").await;
    assert_eq!(status(&paid), 200);
    for response in flood {
        match response.await.unwrap() {
            (200, None) => {}
            (503, Some(wait)) => assert_eq!(wait, "1"),
            other => panic!("{other:?}"),
        }
    }
    let text = client.get("/metrics").await;
    let text = std::str::from_utf8(text.body()).unwrap();
    for line in [
        "tollgate_inflight{name=\"search\"} 0",
        "tollgate_inflight_refused_total{name=\"pay\",priority=\"default\"} 0",
        "tollgate_answer_seconds_count{name=\"pay\"} 1",
    ] {
        assert!(text.lines().any(|is| is == line), "{line}\n{text}");
    }
    drop(client);
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn a_server_and_a_client_of_tonic_have_a_limit_each() {
    let (server_limit, client_limit) = (Arc::new(Inflight::fixed(1)), Arc::new(Inflight::fixed(1)));
    let (_, health) = tonic_health::server::health_reporter();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().layer(InflightLayer::new(server_limit.clone())).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let layer = InflightLayer::new(client_limit.clone());
    let channel = layer.layer(endpoint.connect().await.unwrap());
    let mut client = HealthClient::new(channel);
    client.check(HealthCheckRequest::default()).await.unwrap();
    for limit in [&server_limit, &client_limit] {
        let full = limit.try_enter().unwrap();
        let refused = client.check(HealthCheckRequest::default()).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::Unavailable, "too many requests in flight"));
        let wait = refused.get_details_retry_info().unwrap().retry_delay;
        assert_eq!(wait, Some(Duration::from_secs(1)));
        drop(full);
    }
    client.check(HealthCheckRequest::default()).await.unwrap();
    // The client's layer sees the refusal of the server in the head: it is overloaded.
    let stats = layer.stats();
    assert_eq!((stats.answered, stats.overloaded, stats.refused), (2, 1, 1));
    assert_eq!((server_limit.in_flight(), client_limit.in_flight()), (0, 0));
}

/// A body of one part, which the test lets go.
struct Held(Option<oneshot::Receiver<()>>);

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<BodyFrame>> {
        let Some(go) = &mut self.0 else { return Poll::Ready(None) };
        let gone = std::task::ready!(Pin::new(go).poll(context));
        self.0 = None;
        Poll::Ready(gone.ok().map(|()| Ok(hyper::body::Frame::data(Bytes::from("body")))))
    }
}

type BodyFrame = Result<hyper::body::Frame<Bytes>, Infallible>;

/// The recipe of axum, over sockets: a request comes while the body of another is under way.
#[tokio::test]
async fn axum_holds_a_place_until_the_head_or_until_the_body() {
    for (until, during_the_body) in [(Until::Head, 0), (Until::Body, 1)] {
        let limit = Arc::new(Inflight::fixed(1));
        let (head, may_answer) = oneshot::channel::<()>();
        let (body, may_go) = oneshot::channel();
        let waits = Arc::new(Mutex::new(Some((may_answer, may_go))));
        let answer = move || {
            let waits = waits.lock().unwrap().take();
            async move {
                let Some((may_answer, may_go)) = waits else { return axum::body::Body::from("another") };
                may_answer.await.unwrap();
                axum::body::Body::new(Held(Some(may_go)))
            }
        };
        let layer = InflightLayer::builder(limit.clone()).until(until).build();
        let app = Router::new().route("/", get(answer).layer(layer.clone()));
        let address = support::serve(app).await;
        let first = tokio::spawn({
            let address = address.clone();
            async move { Client::connect(&address).await.get("/").await }
        });
        let flies = |count| {
            let limit = &limit;
            let begun = Instant::now();
            async move {
                while limit.in_flight() != count {
                    assert!(begun.elapsed() < support::PATIENCE, "{} are in flight", limit.in_flight());
                    tokio::task::yield_now().await;
                }
            }
        };
        flies(1).await;
        let mut other = Client::connect(&address).await;
        assert_eq!(status(&other.get("/").await), 503, "{until:?}");
        head.send(()).unwrap();
        let begun = Instant::now();
        while layer.stats().answered == 0 {
            assert!(begun.elapsed() < support::PATIENCE, "there is no head");
            tokio::task::yield_now().await;
        }
        flies(during_the_body).await;
        let wanted = if during_the_body == 1 { 503 } else { 200 };
        assert_eq!(
            (limit.in_flight(), status(&other.get("/").await)),
            (during_the_body, wanted),
            "{until:?}"
        );
        body.send(()).unwrap();
        assert_eq!(first.await.unwrap().body().as_ref(), b"body");
        flies(0).await;
        assert_eq!(status(&other.get("/").await), 200, "{until:?}");
    }
}

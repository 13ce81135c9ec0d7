// promise: layer
//! The layer among others: at each place, a stack of layers compiles, serves a request and refuses
//! one.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::error_handling::HandleErrorLayer;
use axum::middleware::from_fn;
use axum::routing::get;
use http::header::{HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Bytes, Incoming};
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tollgate::{Quota, RateLimiter};
use tollgate_http::{Problem, RateLimitLayer, ResponseBody};
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::timeout::TimeoutLayer as DeadlineLayer;
use tower::util::{BoxCloneService, BoxCloneSyncService, option_layer};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::decompression::DecompressionLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::map_response_body::MapResponseBodyLayer;
use tower_http::normalize_path::NormalizePathLayer;
use tower_http::propagate_header::PropagateHeaderLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::timeout::{ResponseBodyTimeoutLayer, TimeoutLayer};
use tower_http::trace::TraceLayer;

const LONG: Duration = Duration::from_secs(60);
const HELLO: &str = "hello\n";

/// A service of any request body.
#[derive(Clone, Copy)]
struct Hello;

impl<A> Service<Request<A>> for Hello {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Full<Bytes>>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<A>) -> Self::Future {
        ready(Ok(Response::new(Full::from(HELLO))))
    }
}

/// A layer that grants one request an hour.
fn limit() -> RateLimitLayer<u64> {
    RateLimitLayer::builder(RateLimiter::<u64>::new(Quota::per_hour(1))).shared().build()
}

fn stack() -> ServiceBuilder<tower::layer::util::Identity> {
    ServiceBuilder::new()
}

/// Asks twice: the first request is granted, the second one is refused.
async fn answers<S, B>(service: S)
where
    S: Service<Request<Body>, Response = Response<B>> + Clone,
    S::Error: Debug,
    B: HttpBody,
    B::Error: Debug,
{
    for (status, body) in [(StatusCode::OK, HELLO), (StatusCode::TOO_MANY_REQUESTS, "")] {
        let response = service.clone().oneshot(Request::new(Body::empty())).await.unwrap();
        assert_eq!(response.status(), status);
        assert!(response.headers().contains_key("ratelimit"));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), body);
    }
}

/// The same over a connection of hyper, which has a body of its own.
async fn answers_over_hyper<S, B>(service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>,
    S: Clone + Send + 'static,
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let (near, far) = tokio::io::duplex(4_096);
    let connection =
        server::Builder::new().serve_connection(TokioIo::new(far), TowerToHyperService::new(service));
    tokio::spawn(connection);
    let (mut sender, connection) = client::handshake(TokioIo::new(near)).await.unwrap();
    tokio::spawn(connection);
    for (status, body) in [(StatusCode::OK, HELLO), (StatusCode::TOO_MANY_REQUESTS, "")] {
        let response = sender.send_request(Request::new(Full::<Bytes>::default())).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["content-length"], body.len().to_string());
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), body);
    }
}

/// The same of a router.
fn router() -> Router {
    Router::new().route("/", get(|| async { HELLO }))
}

macro_rules! compositions {
    ($check:ident: $($name:ident = $service:expr;)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                $check($service).await;
            }
        )*
    };
}

compositions! { answers:
    outermost_over_trace = stack().layer(limit()).layer(TraceLayer::new_for_http()).service(Hello);
    outermost_over_a_timeout_of_bodies =
        stack().layer(limit()).layer(ResponseBodyTimeoutLayer::new(LONG)).service(Hello);
    outermost_over_a_limit_of_bodies = stack().layer(limit()).layer(RequestBodyLimitLayer::new(64)).service(Hello);
    outermost_over_compression = stack().layer(limit()).layer(CompressionLayer::new()).service(Hello);
    outermost_over_all_four = stack()
        .layer(limit())
        .layer(TraceLayer::new_for_http())
        .layer(ResponseBodyTimeoutLayer::new(LONG))
        .layer(RequestBodyLimitLayer::new(64))
        .layer(CompressionLayer::new())
        .service(Hello);
    outermost_over_decompression = stack().layer(limit()).layer(DecompressionLayer::new()).service(Hello);
    outermost_over_caught_panics = stack().layer(limit()).layer(CatchPanicLayer::new()).service(Hello);
    outermost_over_a_buffer = stack().layer(limit()).layer(BufferLayer::new(4)).service(Hello);
    outermost_over_load_shedding = stack()
        .layer(limit())
        .layer(LoadShedLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(Hello);
    outermost_over_a_boxed_service = limit().layer(BoxCloneService::new(Hello));
    outermost_over_a_boxed_body =
        stack().layer(limit()).layer(MapResponseBodyLayer::new(<Full<Bytes> as BodyExt>::boxed)).service(Hello);
    innermost_under_trace = stack().layer(TraceLayer::new_for_http()).layer(limit()).service(Hello);
    innermost_under_compression = stack().layer(CompressionLayer::new()).layer(limit()).service(Hello);
    innermost_under_a_timeout = stack()
        .layer(ResponseBodyTimeoutLayer::new(LONG))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, LONG))
        .layer(limit())
        .service(Hello);
    innermost_under_a_limit_of_bodies =
        stack().layer(RequestBodyLimitLayer::new(64)).layer(limit()).service(Hello);
    innermost_under_cors = stack().layer(CorsLayer::permissive()).layer(limit()).service(Hello);
    innermost_under_caught_panics = stack().layer(CatchPanicLayer::new()).layer(limit()).service(Hello);
    innermost_under_a_buffer = stack().layer(BufferLayer::new(4)).layer(limit()).service(Hello);
    innermost_under_load_shedding = stack()
        .layer(LoadShedLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .layer(limit())
        .service(Hello);
    innermost_and_boxed = BoxCloneSyncService::new(limit().layer(Hello));
    in_the_middle_of_headers = stack()
        .layer(SetResponseHeaderLayer::overriding(SERVER, HeaderValue::from_static("test")))
        .layer(limit())
        .layer(PropagateHeaderLayer::new(HeaderName::from_static("x-request-id")))
        .service(Hello);
    in_the_middle_of_bodies = stack()
        .layer(TraceLayer::new_for_http())
        .layer(limit())
        .layer(CompressionLayer::new())
        .service(Hello);
    in_the_middle_of_a_path_and_a_deadline = stack()
        .layer(NormalizePathLayer::trim_trailing_slash())
        .layer(limit())
        .layer(DeadlineLayer::new(LONG))
        .service(Hello);
    twice = stack().layer(limit()).layer(TraceLayer::new_for_http()).layer(limit()).service(Hello);
    with_the_body_of_the_service = unwrapped().layer(Hello);
    as_an_option = stack().layer(option_layer(Some(unwrapped()))).service(Hello);

    axum_on_a_router = router().layer(limit());
    axum_on_a_route = Router::new().route("/", get(|| async { HELLO }).layer(limit()));
    axum_behind_the_match = router().route_layer(limit());
    axum_outermost_over_all_four = router().layer(
        stack()
            .layer(limit())
            .layer(TraceLayer::new_for_http())
            .layer(ResponseBodyTimeoutLayer::new(LONG))
            .layer(RequestBodyLimitLayer::new(64))
            .layer(CompressionLayer::new()),
    );
    axum_with_the_body_of_the_service = router().layer(unwrapped());
    axum_with_errors_handled = router().layer(
        stack()
            .layer(HandleErrorLayer::new(|_: tower::BoxError| async { StatusCode::SERVICE_UNAVAILABLE }))
            .layer(LoadShedLayer::new())
            .layer(limit())
            .layer(ConcurrencyLimitLayer::new(1)),
    );
    axum_with_a_function = router()
        .layer(from_fn(|request, next: axum::middleware::Next| next.run(request)))
        .layer(limit())
        .layer(from_fn(|request, next: axum::middleware::Next| next.run(request)));
}

const SERVER: HeaderName = http::header::SERVER;

/// A mapping of bodies to those of the service, over the layer.
type Unwrapped<B> = (MapResponseBodyLayer<fn(ResponseBody<B>) -> B>, RateLimitLayer<u64>);

/// For a service whose body is made from bytes.
fn unwrapped<B: From<Bytes>>() -> Unwrapped<B> {
    (MapResponseBodyLayer::new(|body| body.into_inner_or_else(B::from)), limit())
}

compositions! { answers_over_hyper:
    hyper_outermost = limit().layer(Hello);
    hyper_outermost_over_trace = stack().layer(limit()).layer(TraceLayer::new_for_http()).service(Hello);
    hyper_innermost_under_compression =
        stack().layer(CompressionLayer::new()).layer(limit()).service(Hello);
    hyper_as_a_proxy = limit().layer(Proxied);
}

/// A service that answers with the body of another server, which cannot be made from anything.
#[derive(Clone, Copy)]
struct Proxied;

impl<A> Service<Request<A>> for Proxied {
    type Response = Response<Incoming>;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response<Incoming>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<A>) -> Self::Future {
        Box::pin(async {
            let (near, far) = tokio::io::duplex(4_096);
            let service = TowerToHyperService::new(Hello);
            tokio::spawn(
                async move { server::Builder::new().serve_connection(TokioIo::new(far), service).await },
            );
            let (mut sender, connection) = client::handshake(TokioIo::new(near)).await.unwrap();
            tokio::spawn(connection);
            Ok(sender.send_request(Request::new(Full::<Bytes>::default())).await.unwrap())
        })
    }
}

/// A server of tonic with some layers, and its answers to two calls.
macro_rules! tonic {
    ($($name:ident = $layers:expr;)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let url = format!("http://{}", listener.local_addr().unwrap());
                let (_, service) = tonic_health::server::health_reporter();
                let server = tonic::transport::Server::builder().layer($layers).add_service(service);
                tokio::spawn(server.serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener)));
                let endpoint = tonic::transport::Endpoint::from_shared(url).unwrap();
                let mut client =
                    tonic_health::pb::health_client::HealthClient::new(endpoint.connect().await.unwrap());
                let call = tonic_health::pb::HealthCheckRequest::default;
                client.check(call()).await.unwrap();
                let refused = client.check(call()).await.unwrap_err();
                assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
            }
        )*
    };
}

tonic! {
    tonic_outermost = limit();
    tonic_outermost_over_trace = stack().layer(limit()).layer(TraceLayer::new_for_grpc());
    tonic_innermost_under_trace = stack().layer(TraceLayer::new_for_grpc()).layer(limit());
}

#[tokio::test]
async fn a_refusal_has_a_body_behind_any_other() {
    let layer = RateLimitLayer::builder(RateLimiter::<u64>::new(Quota::per_hour(1)))
        .shared()
        .reject_with(|refusal| refusal.response(format!("the limit is {}", refusal.policy().rule())))
        .build();
    let text = stack().layer(layer).layer(TraceLayer::new_for_http()).service(Hello);
    let layer = RateLimitLayer::builder(RateLimiter::<u64>::new(Quota::per_hour(1)))
        .shared()
        .reject_as(Problem::QUOTA_EXCEEDED)
        .build();
    let json = stack().layer(layer).layer(CompressionLayer::new()).service(Hello);
    let _ = text.clone().oneshot(Request::new(Body::empty())).await.unwrap();
    let refused = text.oneshot(Request::new(Body::empty())).await.unwrap();
    assert_eq!(refused.into_body().collect().await.unwrap().to_bytes(), "the limit is 1/h burst 1");
    let _ = json.clone().oneshot(Request::new(Body::empty())).await.unwrap();
    let refused = json.oneshot(Request::new(Body::empty())).await.unwrap();
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    let text = refused.into_body().collect().await.unwrap().to_bytes();
    assert!(text.ends_with(br#""violated-policies":["default"]}"#));
}

// promise: layer
//! The recipe of OpenTelemetry in docs/guide.md: each request is a span that has the decision as
//! attributes, and a refusal is an event of its span.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, Value};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tollgate::{Clock, MockClock, Quota, RateLimiter};
use tollgate_http::{DelayLayer, LayerBuilder, RateLimitLayer};
use tower::{ServiceBuilder, ServiceExt};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

// recipe
use tower_http::trace::TraceLayer;
use tracing::field::Empty;

/// Adds a span for each request, with the fields that `record_in_span` fills, and the limit in it.
fn traced<K>(app: Router, limit: RateLimitLayer<K>) -> Router
where
    K: Clone + Eq + std::hash::Hash + Send + Sync + 'static,
{
    let trace = TraceLayer::new_for_http().make_span_with(|request: &Request<Body>| {
        tracing::info_span!(
            "request",
            http.request.method = %request.method(),
            url.path = request.uri().path(),
            ratelimit.policy = Empty,
            ratelimit.outcome = Empty,
            ratelimit.remaining = Empty,
            ratelimit.wait_ms = Empty,
        )
    });
    // The last layer is the outermost.
    app.layer(limit).layer(trace)
}
// end of the recipe

const GUIDE: &str = include_str!("../../../../http/docs/guide.md");

/// Returns the words. The guide has shorter lines.
fn words(text: &str) -> String {
    text.split_whitespace().filter(|word| *word != "///").collect::<Vec<_>>().join(" ")
}

#[test]
fn the_guide_has_this_recipe() {
    let recipe = include_str!("telemetry.rs").split("// recipe\n").nth(1).unwrap();
    let recipe = recipe.split("// end of the recipe\n").next().unwrap();
    let is_there = words(GUIDE).contains(&words(recipe));
    assert!(recipe.contains("fn traced") && is_there, "http/docs/guide.md lacks:\n{recipe}");
}

/// A subscriber for this thread whose spans go to memory, as they would go to a collector.
struct Telemetry {
    exporter: InMemorySpanExporter,
    _provider: SdkTracerProvider,
    _guard: DefaultGuard,
}

impl Telemetry {
    fn start() -> Telemetry {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(spans));
        Telemetry { exporter, _provider: provider, _guard: guard }
    }

    /// Returns the spans that have ended since the last call.
    fn spans(&self) -> Vec<SpanData> {
        let spans = self.exporter.get_finished_spans().unwrap();
        self.exporter.reset();
        spans
    }
}

fn layer(rule: Quota) -> (LayerBuilder<()>, MockClock) {
    let (clock, mock) = Clock::mock();
    let limiter = RateLimiter::<()>::builder(rule).clock(clock).build();
    let layer = RateLimitLayer::builder(limiter).shared().name("api").unwrap();
    (layer.record_in_span().log_refusals(Quota::per_second(1_000)), mock)
}

fn app(limit: RateLimitLayer<()>) -> Router {
    traced(Router::new().route("/", get(|| async { "hello\n" })), limit)
}

/// Asks for the page, and returns the status once the response is gone.
async fn ask(app: &Router) -> u16 {
    let response = app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
    response.status().as_u16()
}

fn attribute<'a>(attributes: &'a [opentelemetry::KeyValue], name: &'static str) -> Option<&'a Value> {
    let key = Key::from_static_str(name);
    attributes.iter().find(|attribute| attribute.key == key).map(|attribute| &attribute.value)
}

/// Returns the attributes of the decision, as texts.
fn decision(span: &SpanData) -> [Option<String>; 4] {
    let names = ["ratelimit.policy", "ratelimit.outcome", "ratelimit.remaining", "ratelimit.wait_ms"];
    names.map(|name| attribute(&span.attributes, name).map(ToString::to_string))
}

fn some<const N: usize>(texts: [&str; N]) -> [Option<String>; N] {
    texts.map(|text| (!text.is_empty()).then(|| text.to_owned()))
}

/// Returns the fields of the refusals among the events of a span.
fn refusals(span: &SpanData) -> Vec<[Option<String>; 5]> {
    let events = span.events.iter().filter(|event| event.name == "refused");
    let names = ["policy", "key", "retry_after_ms", "banned", "suppressed"];
    events
        .map(|event| names.map(|name| attribute(&event.attributes, name).map(ToString::to_string)))
        .collect()
}

/// Returns whether a text is a digest, which tells no key.
fn is_digest(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

#[tokio::test]
async fn a_granted_request_is_a_span_with_its_decision() {
    let telemetry = Telemetry::start();
    let (layer, _mock) = layer(Quota::per_second(2));
    let app = app(layer.build());
    for left in ["1", "0"] {
        assert_eq!(ask(&app).await, 200);
        let spans = telemetry.spans();
        assert_eq!(spans.len(), 1);
        assert_eq!(spans[0].name, "request");
        assert_eq!(attribute(&spans[0].attributes, "url.path").map(ToString::to_string), Some("/".into()));
        assert_eq!(decision(&spans[0]), some(["api", "granted", left, ""]));
        assert!(refusals(&spans[0]).is_empty());
    }
}

#[tokio::test]
async fn a_refusal_is_an_event_of_the_span_of_its_request() {
    let telemetry = Telemetry::start();
    let (layer, mock) = layer(Quota::per_second(2));
    let app = app(layer.build());
    assert_eq!([ask(&app).await, ask(&app).await], [200, 200]);
    assert_eq!(telemetry.spans().len(), 2);
    for wait in ["500", "400"] {
        assert_eq!(ask(&app).await, 429);
        let spans = telemetry.spans();
        assert_eq!(spans.len(), 1);
        assert_eq!(decision(&spans[0]), some(["api", "refused", "0", wait]));
        // All requests share one bucket, so there is no key.
        assert_eq!(refusals(&spans[0]), [some(["api", "", wait, "false", "0"])]);
        mock.advance(Duration::from_millis(100));
    }
}

#[tokio::test]
async fn a_refusal_by_a_ban_says_so() {
    let telemetry = Telemetry::start();
    let limiter = RateLimiter::<u64>::builder(Quota::per_second(1)).clock(Clock::mock().0).build();
    let limit = RateLimitLayer::builder(limiter).key(tollgate_http::key_fn(|_| Some(7))).record_in_span();
    let limit = limit.log_refusals(Quota::per_second(1_000)).ban_after(2, Duration::from_secs(60));
    let limit = limit.for_(Duration::from_secs(30)).unwrap().build();
    let app = traced(Router::new().route("/", get(|| async { "hello\n" })), limit);
    for (outcome, status, wait) in
        [("granted", 200, ""), ("refused", 429, "1000"), ("banned", 429, "30000"), ("banned", 429, "30000")]
    {
        assert_eq!(ask(&app).await, status);
        let spans = telemetry.spans();
        assert_eq!(spans.len(), 1);
        assert_eq!(decision(&spans[0]), some(["default", outcome, "0", wait]));
        let refused = refusals(&spans[0]);
        assert_eq!(refused.len(), usize::from(status == 429));
        for event in refused {
            assert!(event[1].as_deref().is_some_and(is_digest), "{event:?}");
            assert_eq!(event[3], Some((outcome == "banned").to_string()), "{event:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_delayed_request_has_its_wait() {
    let telemetry = Telemetry::start();
    let (layer, mock) = layer(Quota::per_second(2).burst(1));
    // A timer that moves the clock on.
    let delay = DelayLayer::by_timer(Duration::from_secs(1), move |wait| {
        mock.advance(wait);
        std::future::ready(())
    });
    let delayed = ServiceBuilder::new().layer(delay).layer(layer.build());
    let routes = Router::new().route("/", get(|| async { "hello\n" }).layer(delayed));
    let none = RateLimitLayer::builder(RateLimiter::<()>::new(Quota::UNLIMITED)).shared().when(|_| false);
    let app = traced(routes, none.build());
    assert_eq!([ask(&app).await, ask(&app).await], [200, 200]);
    let spans = telemetry.spans();
    assert_eq!(spans.len(), 2);
    assert_eq!(decision(&spans[0]), some(["api", "granted", "0", ""]));
    assert_eq!(decision(&spans[1]), some(["api", "delayed", "0", "500"]));
}

#[tokio::test]
async fn a_span_has_only_the_fields_that_it_declares() {
    let telemetry = Telemetry::start();
    let (layer, _mock) = layer(Quota::per_second(1));
    let trace = TraceLayer::new_for_http()
        .make_span_with(|_: &Request<Body>| tracing::info_span!("short", ratelimit.outcome = Empty));
    let app = Router::new().route("/", get(|| async { "hello\n" })).layer(layer.build()).layer(trace);
    assert_eq!([ask(&app).await, ask(&app).await], [200, 429]);
    let spans = telemetry.spans();
    assert_eq!(spans.len(), 2);
    assert_eq!(decision(&spans[0]), some(["", "granted", "", ""]));
    assert_eq!(decision(&spans[1]), some(["", "refused", "", ""]));
}

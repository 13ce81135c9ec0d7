//! What those see who run the proxy: its metrics, and a page on which the limit can be changed.
//!
//! A web page of anybody's may make a browser on this host ask here. So a `POST` needs the `Origin` of this very address, and
//! every request a `Host` that no name server has a say in: names can be made to lead to 127.0.0.1. The page is in one piece; its
//! `Content-Security-Policy` lets nothing else in, and nobody frame it. What is from outside is put on it as text.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{self, HeaderMap};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval};
use tollgate::Quota;
use tollgate::tower::prometheus;

use crate::forward::only_value;
use crate::limits::{Limit, Limits, Sums};
use crate::upstream::accept;

/// Connections at a time.
pub(crate) const PLACES: usize = 32;
/// From one event to the next.
const PERIOD: Duration = Duration::from_millis(500);
/// Keys that an event tells of.
const TOP: usize = 30;
/// The longest body that is read, and how long that may take.
const LONGEST: usize = 256;
const PATIENCE: Duration = Duration::from_secs(5);
const PAGE: &str = include_str!("page.html");

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, limits: Arc<Limits>) {
    let places = Arc::new(Semaphore::new(PLACES));
    loop {
        let place = places.clone().acquire_owned().await;
        let (stream, _) = accept(&listener).await;
        // Fails only on a connection that is already gone.
        let Ok(own) = stream.local_addr().map(|address| address.ip().to_canonical()) else { continue };
        let limits = limits.clone();
        let service = service_fn(move |request| {
            let limits = limits.clone();
            async move { Ok::<_, Infallible>(answer(own, request, limits).await) }
        });
        tokio::spawn(async move {
            let mut server = http1::Builder::new();
            // An error is a client that left: nobody is there to be told.
            let _ = server.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
    }
}

async fn answer(own: IpAddr, request: Request<Incoming>, limits: Arc<Limits>) -> Response<Body> {
    let Some(host) = host_of_ours(request.headers(), own) else {
        return text(
            StatusCode::FORBIDDEN,
            "This is served to localhost and to addresses only, not by a name.\n",
        );
    };
    let is_post = request.method() == Method::POST;
    if is_post && !is_from(host, request.headers()) {
        return text(StatusCode::FORBIDDEN, "A POST needs the Origin of this page.\n");
    }
    match request.uri().path() {
        "/limit" if is_post => set_limit(request.into_body(), &limits).await,
        "/" | "/events" | "/metrics" if request.method() != Method::GET => not_allowed("GET"),
        "/" => page(),
        "/events" => of_type("text/event-stream", events(limits)),
        "/metrics" => of_type("text/plain; version=0.0.4", Full::from(metrics(&limits)).boxed_unsync()),
        "/limit" => not_allowed("POST"),
        _ => text(StatusCode::NOT_FOUND, "There are /, /events, /metrics and POST /limit.\n"),
    }
}

/// The one `Host`, if it says this host without a name that others could have made.
fn host_of_ours(headers: &HeaderMap, own: IpAddr) -> Option<&str> {
    let host = only_value(headers, &header::HOST)?.to_str().ok()?;
    let authority: Authority = host.parse().ok()?;
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_ours = match address.map(|address| address.to_canonical()) {
        Ok(address) => address.is_loopback() || address == own,
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    };
    (is_ours && !host.contains('@')).then_some(host)
}

/// Whether the one `Origin` is what was asked.
fn is_from(host: &str, headers: &HeaderMap) -> bool {
    let origin = only_value(headers, &header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let from = origin.and_then(|origin| origin.strip_prefix("http://"));
    from.is_some_and(|from| from.eq_ignore_ascii_case(host))
}

/// Takes effect for all keys at once; they keep the tokens they have.
async fn set_limit(body: Incoming, limits: &Limits) -> Response<Body> {
    let body = tokio::time::timeout(PATIENCE, Limited::new(body, LONGEST).collect()).await;
    let Some(body) = body.ok().and_then(Result::ok).map(|body| body.to_bytes()) else {
        return text(StatusCode::BAD_REQUEST, "Expected a quota such as 50/s burst 100, and no more.\n");
    };
    let quota = match String::from_utf8_lossy(&body).trim().parse::<Quota>() {
        Ok(quota) => quota,
        Err(why) => return text(StatusCode::BAD_REQUEST, format!("No quota: {why}.\n")),
    };
    match limits.everywhere_else.as_ref().map(|limit| limit.set_quota(quota)) {
        Some(Ok(())) => with(StatusCode::NO_CONTENT, Full::default().boxed_unsync()),
        Some(Err(why)) => text(StatusCode::BAD_REQUEST, format!("Too much for buckets in use: {why}.\n")),
        None => {
            text(StatusCode::CONFLICT, "There is no limit to change: it was started with --limit none.\n")
        }
    }
}

fn metrics(limits: &Limits) -> String {
    use std::fmt::Write;
    let mut text = prometheus(&limits.with_all(Limit::stats));
    let odd = limits.setup().client.stats();
    for (name, help, count) in [
        ("forwarded_from_untrusted", "X-Forwarded-For that was ignored.", odd.forwarded_from_untrusted),
        ("forwarded_unreadable", "X-Forwarded-For with a hop that is no address.", odd.unreadable),
    ] {
        let name = format!("tollgate_{name}_total");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {count}");
    }
    text
}

/// An event now, and one each [`PERIOD`]. A reader that is slow gets fewer.
fn events(limits: Arc<Limits>) -> Body {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let before = (limits.sums(), Instant::now());
    let events = stream::unfold((limits, ticks, before), async |(limits, mut ticks, before)| {
        ticks.tick().await;
        let now = (limits.sums(), Instant::now());
        let event = event(&limits, now.0.since(before.0), now.1 - before.1);
        let frame = Frame::data(Bytes::from(format!("data: {event}\n\n")));
        Some((Ok(frame), (limits, ticks, now)))
    });
    StreamBody::new(events).boxed_unsync()
}

/// What was decided in some time, and how things stand.
fn event(limits: &Limits, sums: Sums, time: Duration) -> Value {
    let limit = limits.everywhere_else.as_ref().map(|limit| {
        let (now, most) = (limit.quota(), limit.most);
        json!({ "text": now.to_string(), "most": most.tokens(), "burst": most.capacity() })
    });
    let stats = limits.with_all(Limit::stats);
    let routes = limits.routes();
    let routes = routes.iter().map(|route| {
        let (limit, stats) = (&route.limit, route.limit.stats());
        let prefix = if route.prefix.is_empty() { "/" } else { &route.prefix };
        json!({
            "name": limit.name, "prefix": prefix, "limit": limit.quota().to_string(), "cost": limit.cost(),
            "granted": stats.granted, "refused": stats.refused + stats.shadow_refused,
        })
    });
    let top = limits.with_all(|limit| {
        let burst = limit.quota().capacity();
        let of = |(key, refused, left)| (refused, json!({
            "limit": limit.name, "key": format!("{key}"), "refused": refused, "left": left, "burst": burst,
        }));
        limit.top_refused(TOP).map(of).collect::<Vec<_>>()
    });
    let mut top: Vec<(u64, Value)> = top.into_iter().flatten().collect();
    top.sort_by_key(|(refused, _)| std::cmp::Reverse(*refused));
    json!({
        "seconds": time.as_secs_f64(),
        "granted": sums.granted,
        "refused": sums.refused,
        "nanos": sums.mean_nanos(),
        "keys": stats.iter().map(|stats| stats.keys).sum::<usize>(),
        "shadow": limits.setup().shadow,
        "limit": limit,
        "routes": routes.collect::<Vec<_>>(),
        "top": top.into_iter().take(TOP).map(|(_, key)| key).collect::<Vec<_>>(),
    })
}

fn page() -> Response<Body> {
    let nonce = format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1));
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let page = PAGE.replace("NONCE", &nonce);
    let mut response = of_type("text/html; charset=utf-8", Full::from(page).boxed_unsync());
    let policy = policy.parse().expect("it is of visible ASCII");
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

fn not_allowed(allowed: &'static str) -> Response<Body> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format!("There is {allowed} only.\n"));
    response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(allowed));
    response
}

fn text(status: StatusCode, line: impl Into<Bytes>) -> Response<Body> {
    let mut response = of_type("text/plain; charset=utf-8", Full::new(line.into()).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn of_type(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = with(StatusCode::OK, body);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

fn with(status: StatusCode, body: Body) -> Response<Body> {
    let response = Response::builder().status(status);
    let response =
        response.header(header::CACHE_CONTROL, "no-store").header("x-content-type-options", "nosniff");
    response.body(body).expect("the headers are valid")
}

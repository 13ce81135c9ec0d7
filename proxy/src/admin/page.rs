//! The admin page of the proxy, on which the limit can be changed, and its metrics.
//!
//! The page is in one piece; its `Content-Security-Policy` lets nothing else in, and no other page
//! frame it. Text from outside is put on it as text.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures_util::stream;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{self};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tollgate::AnyRule;
use tollgate_adaptive::LatencyCounts;
use tollgate_adaptive::{InflightLayerStats, prometheus_inflight};
use tollgate_distributed::DistributedStats;
use tollgate_http::prometheus;

use super::sources;
use crate::forward::inflight::Gate;
use crate::forward::target;
use crate::limits::tally::Sums;
use crate::serve::connections::Proxy;
use crate::serve::reload::Reload;
use tollgate_common::admin::{Body, Handler, PLACES, not_allowed, of_type, text, with};
use tollgate_common::net::crowd::{Activity, Busy};

/// Of these, readers of `/events`: the others get 503, so that places are left for `/metrics`.
const READERS: usize = PLACES / 2;
/// From one event to the next.
const PERIOD: Duration = Duration::from_millis(500);
/// Keys that an event tells of.
const TOP: usize = 30;
/// The longest body that is read, and the longest time for that.
const LONGEST: usize = 256;
const PATIENCE: Duration = Duration::from_secs(5);
const PAGE: &str = include_str!("page.html");

/// The page of the proxy, and what it shows and changes.
pub(crate) struct Page {
    reload: Arc<Reload>,
    /// The proxy takes connections, and no signal has said stop.
    ready: Arc<AtomicBool>,
    readers: Arc<Semaphore>,
}

impl Handler for Page {
    fn hosts(&self) -> Vec<String> {
        let settings = self.reload.proxy.settings();
        settings.admin.as_ref().map(|admin| admin.hosts.clone()).unwrap_or_default()
    }

    fn is_ready(&self) -> Result<&'static str, &'static str> {
        if self.ready.load(Relaxed) { Ok("ready\n") } else { Err("stopping\n") }
    }

    async fn answer(&self, activity: &Arc<Activity>, request: Request<Incoming>) -> Response<Body> {
        let (method, path) = (request.method(), request.uri().path());
        let (is_read, is_post) = (method == Method::GET || method == Method::HEAD, method == Method::POST);
        match path {
            "/limit" if is_post => self.set_limit(request.into_body()).await,
            "/" | "/events" | "/metrics" | "/healthz" | "/readyz" if !is_read => not_allowed("GET, HEAD"),
            "/" => page(),
            "/events" if method == Method::HEAD => {
                of_type("text/event-stream", Full::default().boxed_unsync())
            }
            "/events" => match self.readers.clone().try_acquire_owned() {
                Ok(place) => {
                    let place = (place, activity.busy());
                    of_type("text/event-stream", events(self.reload.proxy.clone(), place))
                }
                Err(_) => {
                    text(StatusCode::SERVICE_UNAVAILABLE, format!("{READERS} readers are served already.\n"))
                }
            },
            "/metrics" => {
                of_type("text/plain; version=0.0.4", Full::from(metrics(&self.reload.proxy)).boxed_unsync())
            }
            "/limit" => not_allowed("POST"),
            _ => text(
                StatusCode::NOT_FOUND,
                "There are /, /events, /metrics, /healthz, /readyz and POST /limit.\n",
            ),
        }
    }
}

impl Page {
    pub(crate) fn new(reload: Arc<Reload>, ready: Arc<AtomicBool>) -> Page {
        Page { reload, ready, readers: Arc::new(Semaphore::new(READERS)) }
    }

    /// Takes effect for all keys at once; they keep the tokens they have.
    async fn set_limit(&self, body: Incoming) -> Response<Body> {
        let body = timeout(PATIENCE, Limited::new(body, LONGEST).collect()).await;
        let Some(body) = body.ok().and_then(Result::ok).map(|body| body.to_bytes()) else {
            return text(StatusCode::BAD_REQUEST, "Expected a quota such as 50/s burst 100, and no more.\n");
        };
        let rule = match String::from_utf8_lossy(&body).trim().parse::<AnyRule>() {
            Ok(rule) => rule,
            Err(why) => return text(StatusCode::BAD_REQUEST, format!("No quota: {why}.\n")),
        };
        match self.reload.set_rule(rule) {
            Some(Ok(())) => {
                tracing::info!(limit = %rule, "the admin page has changed the limit");
                with(StatusCode::NO_CONTENT, None, Full::default().boxed_unsync())
            }
            Some(Err(why)) => text(StatusCode::BAD_REQUEST, format!("Too much for buckets in use: {why}.\n")),
            None => {
                text(StatusCode::CONFLICT, "There is no limit to change: it was started with --limit none.\n")
            }
        }
    }
}

fn metrics(proxy: &Proxy) -> String {
    use std::fmt::Write;
    let in_force = proxy.limits.in_force();
    let mut text = prometheus(&in_force.all().map(|routed| routed.limits.layer.stats()).collect::<Vec<_>>());
    let odd = in_force.keys.client.stats();
    for (name, help, count) in [
        ("forwarded_from_untrusted", "X-Forwarded-For that was ignored.", odd.forwarded_from_untrusted),
        ("forwarded_unreadable", "X-Forwarded-For with a hop that is no address.", odd.unreadable),
    ] {
        let name = format!("tollgate_{name}_total");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {count}");
    }
    target::prometheus(&proxy.forward.targets(), &mut text);
    let gates = proxy.forward.gates();
    text += &prometheus_inflight(&gates.iter().map(|gate| gate.stats()).collect::<Vec<_>>());
    sources::prometheus(&in_force, &mut text);
    in_force.tally.prometheus(&mut text);
    proxy.counters.prometheus(&mut text);
    let (name, under_way) = ("tollgate_proxy_requests_under_way", proxy.forward.under_way());
    let _ = writeln!(text, "# HELP {name} Requests under way.\n# TYPE {name} gauge\n{name} {under_way}");
    text
}

/// An event now, and one each [`PERIOD`]. A reader that is slow gets fewer.
fn events(proxy: Arc<Proxy>, place: (OwnedSemaphorePermit, Busy)) -> Body {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let before = Counts::of(&proxy);
    let events = stream::unfold((proxy, place, ticks, before), async |(proxy, place, mut ticks, before)| {
        ticks.tick().await;
        let now = Counts::of(&proxy);
        let event = event(&proxy, &before, &now);
        let frame = Frame::data(Bytes::from(format!("data: {event}\n\n")));
        Some((Ok(frame), (proxy, place, ticks, now)))
    });
    StreamBody::new(events).boxed_unsync()
}

/// The counts so far, from which the next event subtracts.
struct Counts {
    at: Instant,
    sums: Sums,
    gates: Vec<(Arc<Gate>, InflightLayerStats, LatencyCounts)>,
    sources: DistributedStats,
}

impl Counts {
    fn of(proxy: &Proxy) -> Counts {
        let counts = |gate: Arc<Gate>| (gate.clone(), gate.stats(), gate.latencies.look());
        let gates = proxy.forward.gates().into_iter().map(counts).collect();
        let in_force = proxy.limits.in_force();
        let (sums, sources) = (in_force.tally.sums(), sources::sum(&in_force));
        Counts { at: Instant::now(), sums, gates, sources }
    }

    /// The limits on requests in flight, and the requests since the counts before. Times are in
    /// seconds.
    fn inflight(&self, before: &Counts) -> Vec<Value> {
        let limits = self.gates.iter().map(|now| {
            let known = before.gates.iter().find(|(known, ..)| Arc::ptr_eq(known, &now.0));
            let (gate, InflightLayerStats { inflight, priorities, .. }, latencies) = now;
            let (_, before, since) = known.unwrap_or(now);
            let refused = priorities.iter().zip(&before.priorities);
            let refused = refused.map(|(now, before)| (now.priority.name(), now.refused - before.refused));
            json!({
                "name": &*gate.name,
                "limit": inflight.limit,
                "ceiling": gate.limit.ceiling,
                "in_flight": inflight.in_flight,
                "peak": gate.peak(),
                "target": inflight.target.map(|target| target.as_secs_f64()),
                "asked": gate.limit.target.map(|target| target.as_secs_f64()),
                "slow": latencies.since(since).quantile(900).map(|slow| slow.as_secs_f64()),
                "refused": refused.collect::<BTreeMap<_, _>>(),
            })
        });
        limits.collect()
    }
}

/// The decisions of a time, and the state after it.
fn event(proxy: &Proxy, before: &Counts, now: &Counts) -> Value {
    let (sums, time) = (now.sums.since(before.sums), now.at - before.at);
    let (in_force, targets) = (proxy.limits.in_force(), proxy.forward.targets());
    let down = targets.iter().filter(|target| !target.health.is_up()).map(|target| &*target.name);
    let limit = in_force.everywhere_else.as_ref().map(|routed| {
        let limiter = &routed.limits.limits[0].limiter;
        let (now, most) = (limiter.rule(), limiter.most());
        json!({ "text": now.to_string(), "most": most.tokens(), "burst": most.capacity() })
    });
    let routes = in_force.routes.iter().flat_map(|route| {
        let all = route.limits.layer.stats();
        route.limits.limits.iter().zip(all.limits).map(move |(limit, stats)| {
            let (rule, cost) = (limit.limiter.rule().to_string(), limit.cost.load(Relaxed));
            let refused = stats.refused + stats.banned + stats.shadow_refused;
            json!({
                "name": limit.name, "prefix": route.prefix, "limit": rule, "cost": cost,
                "granted": stats.granted, "refused": refused, "exempt": all.exempt,
            })
        })
    });
    let mut top: Vec<_> = in_force.all().flat_map(|routed| routed.limits.top_refused(TOP)).collect();
    top.sort_by_key(|(_, _, refused, _)| std::cmp::Reverse(*refused));
    let top = top.into_iter().take(TOP).map(|(limit, key, refused, left)| {
        let (name, key, burst) = (&limit.name, key.to_string(), limit.limiter.rule().capacity());
        json!({ "limit": name, "key": key, "refused": refused, "left": left, "burst": burst })
    });
    json!({
        "seconds": time.as_secs_f64(),
        "granted": sums.granted,
        "refused": sums.refused,
        "exempt": sums.exempt,
        "keys": in_force.all().map(|routed| routed.limits.layer.stats().keys).sum::<usize>(),
        "shadow": in_force.shadow,
        "limit": limit,
        "routes": routes.collect::<Vec<_>>(),
        "inflight": now.inflight(before),
        "down": down.collect::<Vec<_>>(),
        "store": in_force.fleet.as_ref().map(|fleet| sources::shown(fleet, &now.sources, &before.sources)),
        "top": top.collect::<Vec<_>>(),
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

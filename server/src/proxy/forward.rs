//! Forwarding to the upstreams: places, attempts, and the statuses of their failures.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::body::Body;
use axum_reverse_proxy::{HostBehaviour, ProxyError, ProxyPolicy, ReverseProxy, TunnelGuard, XForwardedFor};
use http_body::Body as _;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, timeout_at};
use tollgate::{Outcome, Priority};

use super::bodies::{Progress, Upload};
use super::connect::{CONNECT_TIMED_OUT, Connector, STALLED};
use super::counters::{Counters, Event};
use super::forwarded::{self, Hop};
use super::inflight::{Entered, Gate, outcome};
use super::keys::{Client, Key};
use super::listen::Peer;
use super::places::{Place, Places};
use super::settings::{Settings, Timeouts, Upstream};

/// The longest time for which an idle connection is kept.
const IDLE: Duration = Duration::from_secs(60);
/// The time for which an upstream that could not be reached is passed over, if there are others.
const PASSED_OVER: Duration = Duration::from_secs(1);
/// The longest head of a response, and the most bytes of its body in one read.
const READ: usize = 64 << 10;
/// The longest body of unknown length with a method whose requests rarely have a body.
const GET_BODY: usize = 64 << 10;

/// The upstreams, and the places of requests under way.
pub(crate) struct Forward {
    targets: RwLock<Arc<[Target]>>,
    next: AtomicUsize,
    /// The places of client addresses.
    places: Arc<Places>,
    /// The places of keys that are no address, besides those of their clients' addresses.
    places_of_keys: Arc<Places>,
    under_way: Arc<AtomicUsize>,
    counters: Arc<Counters>,
    via: String,
    /// The port of the proxy's listener.
    port: u16,
    start: Instant,
}

struct Target {
    /// The upstream as the settings name it.
    name: Arc<str>,
    /// The client whose connections are kept alive.
    pooled: ReverseProxy<Connector>,
    /// The client that opens a new connection for each request.
    fresh: ReverseProxy<Connector>,
    /// Milliseconds from the start of the proxy to the end of the time in which the target is
    /// passed over.
    passed_over: AtomicU64,
    /// The limit on its requests in flight, if there is one.
    gate: Option<Arc<Gate>>,
}

/// A value that is held until a request has ended.
pub(crate) type Held = Arc<dyn std::any::Any + Send + Sync>;

/// The places of a request under way, until its response has ended.
pub(crate) struct Flight {
    _of_key: Option<Place>,
    _of_address: Place,
    _asked: Held,
    under_way: Arc<AtomicUsize>,
}

/// The extension of an upstream's response, to be held until its body has ended.
#[derive(Clone)]
pub(crate) struct Served {
    _flight: Arc<Flight>,
    /// The upstream that responded.
    pub(crate) upstream: Arc<str>,
    /// The place at the upstream.
    pub(crate) entered: Option<Arc<Entered>>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Relaxed);
    }
}

/// The reason for which an attempt has no response.
enum Failure {
    /// The connection failed, so the request was not sent.
    Unreached { in_time: bool },
    /// The request was sent, or a part of it.
    Broken,
    /// The response did not begin in time.
    TooLate,
}

impl Forward {
    pub(crate) fn new(
        settings: &Settings,
        demo: &Upstream,
        via: String,
        port: u16,
        counters: Arc<Counters>,
    ) -> Forward {
        let forward = Forward {
            targets: RwLock::new(Arc::new([])),
            next: AtomicUsize::new(0),
            places: Places::new(0, 0),
            places_of_keys: Places::new(0, 0),
            under_way: Arc::default(),
            counters,
            via,
            port,
            start: Instant::now(),
        };
        forward.replace(settings, demo);
        forward
    }

    /// Sends requests to the upstreams of these settings from now on, with their numbers of places.
    /// Connections in use are used to their end.
    pub(crate) fn replace(&self, settings: &Settings, demo: &Upstream) {
        let each = settings.bounds.in_flight_per_key;
        self.places.resize(settings.bounds.in_flight, each);
        self.places_of_keys.resize(usize::MAX, each);
        let upstreams = match &*settings.upstreams {
            [] => std::slice::from_ref(demo),
            upstreams => upstreams,
        };
        let before = self.gates();
        let target = |upstream| Target::new(upstream, settings, &self.via, &before);
        let targets = upstreams.iter().map(target).collect();
        *self.targets.write().unwrap_or_else(PoisonError::into_inner) = targets;
    }

    /// Returns the limit of each upstream that has one.
    pub(crate) fn gates(&self) -> Vec<Arc<Gate>> {
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner).clone();
        targets.iter().filter_map(|target| target.gate.clone()).collect()
    }

    /// Returns the number of requests that have a place, with the connections that were upgraded.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Relaxed)
    }

    /// Answers a request with an upstream's response or an error. An upstream's response has
    /// [`Served`] among its extensions.
    pub(crate) async fn send(
        &self,
        settings: &Settings,
        peer: &Peer,
        asked: &Held,
        client: Client,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let host = match admitted(&request) {
            Ok(host) => host,
            Err((status, line)) => {
                if status == StatusCode::BAD_REQUEST {
                    self.counters.add(Event::BadRequest);
                }
                let mut response = text(status, line);
                // Another parser may see the end of this request elsewhere, so the connection ends.
                if request.version() < Version::HTTP_2 {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                return response;
            }
        };
        let flight = match self.flight(settings, &client, asked.clone()).await {
            Ok(flight) => Arc::new(flight),
            Err(response) => return response,
        };
        // Most requests end before this line, so the rest of the state has memory of its own.
        Box::pin(self.exchange(settings, peer, client, host, request, flight)).await
    }

    /// Sends a request that has its places.
    async fn exchange(
        &self,
        settings: &Settings,
        peer: &Peer,
        client: Client,
        host: Option<Authority>,
        request: Request<Incoming>,
        flight: Arc<Flight>,
    ) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        // A WebSocket begins with a GET of HTTP/1.1 (RFC 6455, 4.1).
        if parts.method != Method::GET || parts.version != Version::HTTP_11 {
            parts.headers.remove(header::UPGRADE);
        }
        forwarded::drop_hop_by_hop(&mut parts.headers);
        if parts.version == Version::HTTP_2 {
            forwarded::join_cookies(&mut parts.headers);
        }
        tell_length(&mut parts.headers, body.size_hint().exact());
        // The host of a URL in the request line overrides the header (RFC 9112, 3.2.2).
        if let Some(host) = &host {
            let host = HeaderValue::from_str(host.as_str()).expect("an authority is visible ASCII");
            parts.headers.insert(header::HOST, host);
        }
        forwarded::set(
            &mut parts.headers,
            &Hop {
                peer: peer.address,
                client: client.address,
                trusted: settings.trusts(peer.address),
                is_tls: peer.is_tls,
                host: host.as_ref(),
                port: self.port,
            },
        );
        let upload = match self.upload(settings, &mut parts, body, &flight).await {
            Ok(upload) => upload,
            Err(response) => return response,
        };
        self.attempts(&settings.timeouts, &parts, &upload, flight).await
    }

    /// Waits for a place of the key, if that is no address, and then for one of the address. A
    /// client can invent keys, but no addresses.
    async fn flight(
        &self,
        settings: &Settings,
        client: &Client,
        asked: Held,
    ) -> Result<Flight, Response<Body>> {
        let until = Instant::now() + settings.timeouts.queue;
        let queue = settings.bounds.connections_per_address;
        let of_key = match client.key {
            Key::Address(_) => None,
            key => match timeout_at(until, self.places_of_keys.take(key, queue)).await {
                Ok(Some(place)) => Some(place),
                _ => return Err(self.busy(settings, true)),
            },
        };
        let address = Key::Address(client.network);
        let Ok(Some(of_address)) = timeout_at(until, self.places.take(address, queue)).await else {
            return Err(self.busy(settings, self.places.has_all(&address)));
        };
        self.under_way.fetch_add(1, Relaxed);
        let under_way = self.under_way.clone();
        Ok(Flight { _of_key: of_key, _of_address: of_address, _asked: asked, under_way })
    }

    /// Returns the answer to a request that found no place in time, by the bound of its client or
    /// by that of all.
    fn busy(&self, settings: &Settings, by_client: bool) -> Response<Body> {
        if by_client {
            self.counters.add(Event::KeyBusy);
            let most = settings.bounds.in_flight_per_key;
            let line = format!("Too many requests under way: a client may have {most} at a time.\n");
            return retry_later(StatusCode::TOO_MANY_REQUESTS, line);
        }
        self.counters.add(Event::Busy);
        let line = "Service unavailable: too many requests are under way.\n";
        retry_later(StatusCode::SERVICE_UNAVAILABLE, line)
    }

    /// Returns the body to send. With a method that rarely has a body, a body of unknown length (a
    /// chunked one) is read first. hyper would take such a request for one without a body.
    async fn upload(
        &self,
        settings: &Settings,
        parts: &mut Parts,
        body: Incoming,
        flight: &Arc<Flight>,
    ) -> Result<Sending, Response<Body>> {
        if body.is_end_stream() {
            return Ok(Sending::Nothing);
        }
        let upload = Upload::new(body, settings.patience(), flight.clone());
        let rarely = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE].contains(&parts.method);
        if !rarely || parts.headers.contains_key(header::CONTENT_LENGTH) {
            return Ok(Sending::Streamed(upload));
        }
        match Limited::new(upload.body(), GET_BODY).collect().await {
            Ok(whole) => {
                parts.headers.remove(header::TRAILER);
                Ok(Sending::Whole(whole.to_bytes()))
            }
            Err(_) if upload.progress() == Progress::Reading => {
                let line = format!(
                    "Content too large: a chunked body of {} may have {GET_BODY} bytes.\n",
                    parts.method
                );
                Err(text(StatusCode::PAYLOAD_TOO_LARGE, line))
            }
            Err(_) => Err(self.failed(Failure::Broken, upload.progress())),
        }
    }

    /// Attempts to send the request until an attempt has a response, or no attempt is left that may
    /// be made.
    async fn attempts(
        &self,
        timeouts: &Timeouts,
        parts: &Parts,
        body: &Sending,
        flight: Arc<Flight>,
    ) -> Response<Body> {
        let targets = self.targets.read().unwrap_or_else(PoisonError::into_inner).clone();
        let is_upgrade = parts.headers.contains_key(header::UPGRADE);
        // A request that may be made twice without another effect (RFC 9110, 9.2.2).
        let may_repeat = parts.method.is_idempotent() && !body.is_streamed() && !is_upgrade;
        let priority = parts.extensions.get().copied().unwrap_or(Priority::Critical);
        let mut failed = 0;
        let mut fresh = false;
        let mut at = self.first(&targets);
        loop {
            let Some(mut entered) = self.enter(&targets, &mut at, priority) else { return self.crowded() };
            let target = &targets[at % targets.len()];
            let mut request = Request::from_parts(parts.clone(), body.body());
            if is_upgrade {
                request.extensions_mut().insert(TunnelGuard::new(flight.clone()));
            }
            let outcome = self.attempt(timeouts, target, fresh, request, body).await;
            if let Some(entered) = &mut entered {
                entered.note(told(&outcome, body.progress()), body.last());
            }
            let failure = match outcome {
                Ok(response) => {
                    let mut response = self.handed_back(response);
                    // An upgraded connection may last for hours, and says nothing of the upstream.
                    let is_tunnel = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                    let entered = entered.filter(|_| !is_tunnel).map(Arc::new);
                    let served = Served { _flight: flight, upstream: target.name.clone(), entered };
                    response.extensions_mut().insert(served);
                    return response;
                }
                Err(failure) => failure,
            };
            let again = match failure {
                Failure::Unreached { .. } => {
                    target.passed_over.store(self.millis() + PASSED_OVER.as_millis() as u64, Relaxed);
                    failed += 1;
                    at += 1;
                    failed < targets.len() && body.is_whole() && !is_upgrade
                }
                // At any time, the upstream may close a connection that was kept alive.
                Failure::Broken => may_repeat && !std::mem::replace(&mut fresh, true),
                Failure::TooLate => false,
            };
            if !again {
                return self.failed(failure, body.progress());
            }
            self.counters.add(Event::Retry);
        }
    }

    /// Takes a place at the target, or at the next one that has a place and is not passed over.
    /// Returns `None` if there is none. The inner `None` is a target without a limit.
    fn enter(&self, targets: &[Target], at: &mut usize, priority: Priority) -> Option<Option<Entered>> {
        let (from, now) = (*at, self.millis());
        for next in from..from + targets.len() {
            let target = &targets[next % targets.len()];
            if next != from && target.passed_over.load(Relaxed) > now {
                continue;
            }
            *at = next;
            let Some(gate) = &target.gate else { return Some(None) };
            let entered = gate.enter(priority);
            if entered.is_some() {
                return Some(entered);
            }
        }
        None
    }

    /// Returns the answer to a request for which no upstream has a place.
    fn crowded(&self) -> Response<Body> {
        self.counters.add(Event::Crowded);
        let line = "Service unavailable: the upstream has as many requests as it can answer in time.\n";
        retry_later(StatusCode::SERVICE_UNAVAILABLE, line)
    }

    /// Returns the index of the next target that is not passed over.
    fn first(&self, targets: &[Target]) -> usize {
        let next = self.next.fetch_add(1, Relaxed) % targets.len();
        let now = self.millis();
        let good = |at: &usize| targets[at % targets.len()].passed_over.load(Relaxed) <= now;
        (next..next + targets.len()).find(good).unwrap_or(next)
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn attempt(
        &self,
        timeouts: &Timeouts,
        target: &Target,
        fresh: bool,
        request: Request<Body>,
        body: &Sending,
    ) -> Result<Response<Body>, Failure> {
        let upstream = &*target.name;
        let proxy = if fresh { &target.fresh } else { &target.pooled };
        let began = Instant::now();
        let last = || body.last().map_or(began, |last| last.max(began));
        let mut answer = std::pin::pin!(proxy.proxy_request(request));
        let response = loop {
            let until = last() + timeouts.response_head;
            match timeout_at(until, answer.as_mut()).await {
                Ok(Ok(response)) => break response,
                // The client has sent a part meanwhile, or the proxy waits for the client.
                Err(_) if last() + timeouts.response_head > Instant::now() => (),
                Err(_) => {
                    tracing::warn!(upstream, "the upstream did not begin to respond in time");
                    return Err(Failure::TooLate);
                }
            }
        };
        match response.extensions().get::<ProxyError>() {
            None => Ok(response),
            Some(error) => {
                // A fault of the client ends the attempt, too.
                if matches!(body.progress(), Progress::Untouched | Progress::Reading) {
                    tracing::warn!(upstream, error = error.message(), "the upstream failed");
                }
                let is_late = response.status() == StatusCode::GATEWAY_TIMEOUT;
                Err(match error.is_connect() {
                    true => Failure::Unreached { in_time: !error.message().contains(CONNECT_TIMED_OUT) },
                    false if is_late || error.message().contains(STALLED) => Failure::TooLate,
                    false => Failure::Broken,
                })
            }
        }
    }

    fn failed(&self, failure: Failure, progress: Progress) -> Response<Body> {
        let (event, status, line) = match (progress, failure) {
            (Progress::TimedOut, _) => (
                Event::BodyTimeout,
                StatusCode::REQUEST_TIMEOUT,
                "Request timeout: the body came too slowly.\n",
            ),
            (Progress::Broken, _) => {
                (Event::BrokenBody, StatusCode::BAD_REQUEST, "Bad request: the body is malformed or cut.\n")
            }
            (_, Failure::Unreached { in_time: true }) => {
                (Event::BadGateway, StatusCode::BAD_GATEWAY, "Bad gateway: the upstream cannot be reached.\n")
            }
            (_, Failure::Unreached { in_time: false }) => (
                Event::ConnectTimeout,
                StatusCode::GATEWAY_TIMEOUT,
                "Gateway timeout: the upstream does not accept connections.\n",
            ),
            (_, Failure::Broken) => {
                (Event::BadGateway, StatusCode::BAD_GATEWAY, "Bad gateway: the upstream failed.\n")
            }
            (_, Failure::TooLate) => (
                Event::ResponseHeadTimeout,
                StatusCode::GATEWAY_TIMEOUT,
                "Gateway timeout: the upstream does not answer.\n",
            ),
        };
        self.counters.add(event);
        text(status, line)
    }

    /// Turns the library's response into the response to the client.
    fn handed_back(&self, mut response: Response<Body>) -> Response<Body> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.counters.add(Event::Upgrade);
        }
        // A response of an upstream has `Via`, and one of the library has not.
        if response.status() == StatusCode::LOOP_DETECTED && !response.headers().contains_key(header::VIA) {
            self.counters.add(Event::Loop);
            return text(StatusCode::LOOP_DETECTED, "Loop detected: this request has passed here before.\n");
        }
        // A response without a body may tell the length that a GET would have. A 204 may not.
        let told = match response.body().size_hint().exact() {
            Some(0) if response.status() != StatusCode::NO_CONTENT => content_length(response.headers()),
            length => length.filter(|length| *length > 0),
        };
        let headers = response.headers_mut();
        tell_length(headers, told);
        headers.remove(header::PROXY_AUTHENTICATE);
        headers.remove(header::PROXY_AUTHORIZATION);
        // hyper lowers the version for a client of an older one.
        *response.version_mut() = Version::HTTP_11;
        response
    }
}

impl Target {
    fn new(upstream: &Upstream, settings: &Settings, via: &str, before: &[Arc<Gate>]) -> Target {
        let authority = match upstream {
            Upstream::Tcp(authority) => authority.as_str(),
            Upstream::Unix(_) => "localhost",
        };
        let host = if settings.preserve_host { HostBehaviour::Preserve } else { HostBehaviour::Replace };
        let policy = ProxyPolicy::new()
            .with_host_behaviour(host)
            .with_x_forwarded_for(XForwardedFor::Preserve)
            .with_websocket_connect_timeout(settings.timeouts.response_head)
            .with_via(via);
        let timeouts = Arc::new(RwLock::new(settings.timeouts.clone()));
        let through = |idle| {
            let client = HttpClient::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(idle)
                .http1_max_buf_size(READ)
                .build(Connector::new(upstream.clone(), timeouts.clone()));
            ReverseProxy::new_with_client("/", format!("http://{authority}"), client)
                .with_policy(policy.clone())
        };
        // Idle connections of all targets are no more than the requests under way: the number of
        // sockets is bounded.
        let idle = settings.bounds.in_flight.div_ceil(settings.upstreams.len().max(1));
        let name: Arc<str> = upstream.to_string().into();
        let before = before.iter().find(|gate| gate.name == name);
        let gate = settings.inflight.map(|limit| Gate::new(&name, limit, before));
        Target { name, pooled: through(idle), fresh: through(0), passed_over: AtomicU64::new(0), gate }
    }
}

/// Returns the outcome of an attempt at the upstream.
fn told(attempt: &Result<Response<Body>, Failure>, progress: Progress) -> Outcome {
    match attempt {
        Ok(response) => outcome(response.status()),
        // The fault of the client.
        Err(_) if matches!(progress, Progress::Broken | Progress::TimedOut) => Outcome::Failed,
        Err(Failure::Unreached { .. } | Failure::TooLate) => Outcome::Overloaded,
        Err(Failure::Broken) => Outcome::Failed,
    }
}

/// The body that attempts send.
enum Sending {
    Nothing,
    Whole(bytes::Bytes),
    Streamed(Upload),
}

impl Sending {
    fn body(&self) -> Body {
        match self {
            Sending::Nothing => Body::empty(),
            Sending::Whole(bytes) => bytes.clone().into(),
            Sending::Streamed(upload) => upload.body(),
        }
    }

    fn is_streamed(&self) -> bool {
        matches!(self, Sending::Streamed(_))
    }

    /// Returns whether no part of the body is lost yet.
    fn is_whole(&self) -> bool {
        self.progress() == Progress::Untouched
    }

    fn progress(&self) -> Progress {
        match self {
            Sending::Streamed(upload) => upload.progress(),
            _ => Progress::Untouched,
        }
    }

    fn last(&self) -> Option<Instant> {
        match self {
            Sending::Streamed(upload) => Some(upload.last()),
            _ => None,
        }
    }
}

/// Returns the host of a request that can be forwarded, if the request names one. An error is the
/// refusal.
fn admitted(request: &Request<Incoming>) -> Result<Option<Authority>, (StatusCode, &'static str)> {
    if request.method() == Method::CONNECT {
        return Err((StatusCode::NOT_IMPLEMENTED, "This proxy opens no tunnels.\n"));
    }
    if !has_known_coding(request.headers()) {
        let line = "Not implemented: the only transfer coding here is chunked, once.\n";
        return Err((StatusCode::NOT_IMPLEMENTED, line));
    }
    if !has_valid_target(request) {
        let line = "Bad request: the target must be a path, or a URL of http or https.\n";
        return Err((StatusCode::BAD_REQUEST, line));
    }
    let line = "Bad request: one valid Host header is needed.\n";
    requested_host(request).map_err(|()| (StatusCode::BAD_REQUEST, line))
}

/// Returns whether hyper reads the body as it is. hyper decodes `chunked`, and no coding before it.
fn has_known_coding(headers: &HeaderMap) -> bool {
    match only_value(headers, &header::TRANSFER_ENCODING) {
        Some(coding) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        None => !headers.contains_key(header::TRANSFER_ENCODING),
    }
}

/// Returns whether the target has a form of RFC 9112, 3.2 other than that of `CONNECT`.
fn has_valid_target(request: &Request<Incoming>) -> bool {
    let uri = request.uri();
    let is_known = match uri.scheme_str() {
        Some(scheme) => ["http", "https"].contains(&scheme),
        None => uri.authority().is_none(),
    };
    is_known && (uri.path() != "*" || request.method() == Method::OPTIONS)
}

/// Returns the host that a client asked for. A client of HTTP/1.0 need not name one. An error is a
/// request for which RFC 9112, 3.2 wants a 400.
fn requested_host(request: &Request<Incoming>) -> Result<Option<Authority>, ()> {
    let host = match only_value(request.headers(), &header::HOST) {
        Some(host) => Some(Authority::try_from(host.as_bytes()).map_err(drop)?),
        None if request.headers().contains_key(header::HOST) => return Err(()),
        None => None,
    };
    // A whole URL in the request line overrides the header.
    let named = request.version() == Version::HTTP_11 && host.is_none();
    let host = match request.uri().authority() {
        // HTTP/1.1 wants the header all the same.
        Some(_) if named => return Err(()),
        Some(authority) => Some(authority.clone()),
        None => host,
    };
    match host {
        Some(host) if !is_host(&host) => Err(()),
        None if request.version() > Version::HTTP_10 => Err(()),
        host => Ok(host),
    }
}

/// Returns whether this is the name of a host, perhaps with a port, and without a user's name.
fn is_host(authority: &Authority) -> bool {
    let name = authority.host();
    let Some(rest) = authority.as_str().strip_prefix(name).filter(|_| !name.is_empty()) else { return false };
    let Some(port) = rest.strip_prefix(':') else { return rest.is_empty() };
    port.bytes().all(|byte| byte.is_ascii_digit()) && (port.is_empty() || port.parse::<u16>().is_ok())
}

pub(crate) fn only_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// Writes the length of the headers anew, or drops it: some parsers take `010` for 8.
fn tell_length(headers: &mut HeaderMap, length: Option<u64>) {
    if headers.remove(header::CONTENT_LENGTH).is_some()
        && let Some(length) = length
    {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
}

/// Returns the length in the headers, if it is one number.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    let digits = only_value(headers, &header::CONTENT_LENGTH)?.to_str().ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Returns an answer of the proxy itself: one line. No cache may store it: a client chooses some of
/// these by its headers, and caches may store a 501 that does not forbid it (RFC 9110, 15.1).
pub(crate) fn text(status: StatusCode, line: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(line.into());
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, plain);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn retry_later(status: StatusCode, line: impl Into<Body>) -> Response<Body> {
    let mut response = text(status, line);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

//! Forwarding to the upstreams: places, and attempts at one upstream after another.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http_body::Body as _;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};
use tokio::time::{Instant, timeout_at};
use tollgate_adaptive::Priority;

use super::admission::{admitted, origin_form};
use super::answers::{Body, Served, retry_later, text};
use super::bodies::{Held, Sent, Upload};
use super::connect::Failure;
use super::forwarded::{self, Hop, Via, content_length, tell_length};
use super::inflight::Gate;
use super::places::Places;
use super::target::{Spare, Target, answer, outcome_of};
use super::tunnel::Handshake;
use super::turns::Turns;
use crate::config::settings::{Settings, Upstream};
use crate::counters::{Counters, Event};
use crate::limits::keys::{Client, Key};
use tollgate_common::net::open::Peer;

/// The longest body of unknown length with a method whose requests rarely have a body.
const GET_BODY: usize = 64 << 10;

/// The upstreams, and the places of requests under way.
pub(crate) struct Forward {
    targets: RwLock<Arc<[Target]>>,
    turns: Turns,
    /// The places of client addresses.
    places: Arc<Places>,
    /// The places of keys that are no address, besides those of their clients' addresses.
    places_of_keys: Arc<Places>,
    /// Each request under way has a clone.
    under_way: Arc<()>,
    counters: Arc<Counters>,
    via: Via,
    /// The port of the proxy's listener.
    port: HeaderValue,
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
            turns: Turns::new(),
            places: Places::new(0, 0),
            places_of_keys: Places::new(0, 0),
            under_way: Arc::default(),
            counters,
            via: Via::new(via),
            port: port.into(),
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
        let before = self.targets();
        let target = |upstream| Target::new(upstream, settings, &before);
        let targets = upstreams.iter().map(target).collect();
        *self.targets.write().unwrap_or_else(PoisonError::into_inner) = targets;
    }

    pub(crate) fn targets(&self) -> Arc<[Target]> {
        self.targets.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the limit of each upstream that has one.
    pub(crate) fn gates(&self) -> Vec<Arc<Gate>> {
        self.targets().iter().filter_map(|target| target.gate.clone()).collect()
    }

    /// Returns the number of requests that have a place, with the connections that were upgraded.
    pub(crate) fn under_way(&self) -> usize {
        Arc::strong_count(&self.under_way) - 1
    }

    /// Answers a request with an upstream's response, whose body has [`Served`], or with an error.
    pub(crate) async fn send(
        &self,
        settings: &Settings,
        peer: &Peer,
        asked: &Held,
        client: Client,
        mut request: Request<Incoming>,
    ) -> Response<Body> {
        let host = match admitted(&request, settings.bounds.request_body) {
            Ok(host) => host,
            Err((status, line)) => {
                match status {
                    StatusCode::BAD_REQUEST => self.counters.add(Event::BadRequest),
                    StatusCode::PAYLOAD_TOO_LARGE => self.counters.add(Event::BodyTooLarge),
                    _ => (),
                }
                let mut response = text(status, line);
                // Another parser may see the end of this request elsewhere, so the connection ends.
                if request.version() < Version::HTTP_2 {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                return response;
            }
        };
        if self.via.is_in(request.headers()) {
            self.counters.add(Event::Loop);
            return text(StatusCode::LOOP_DETECTED, "Loop detected: this request has passed here before.\n");
        }
        let flight = match self.flight(settings, &client, asked.clone()).await {
            Ok(flight) => flight,
            Err(response) => return response,
        };
        let hop = Hop {
            peer: peer.address,
            client: client.address,
            trusted: settings.trusts(peer.address),
            is_tls: peer.is_tls,
            host: host.as_ref(),
            port: &self.port,
        };
        self.rewrite(hop, settings.preserve_host, &mut request);
        let handshake = Handshake::of(&mut request);
        let (mut parts, body) = request.into_parts();
        let (body, upload) = if body.is_end_stream() {
            (Either::Left(Full::default()), None)
        } else {
            match self.upload(settings, &parts.method, &mut parts.headers, body, &flight).await {
                Ok(upload) => upload,
                Err(response) => return response,
            }
        };
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        *request.uri_mut() = origin_form(parts.uri);
        *request.headers_mut() = parts.headers;
        self.attempts(client.priority, request, upload, handshake, flight).await
    }

    /// Makes the headers those of the request to the upstream.
    fn rewrite(&self, hop: Hop<'_>, preserves_host: bool, request: &mut Request<Incoming>) {
        let (version, length) = (request.version(), request.body().size_hint().exact());
        // The host of a URL in the request line overrides the header (RFC 9112, 3.2.2).
        let is_in_line = request.uri().authority().is_some();
        // A WebSocket begins with a GET of HTTP/1.1 (RFC 6455, 4.1).
        let may_upgrade = *request.method() == Method::GET && version == Version::HTTP_11;
        let headers = request.headers_mut();
        if !may_upgrade {
            headers.remove(header::UPGRADE);
        }
        forwarded::drop_hop_by_hop(headers);
        if version == Version::HTTP_2 {
            forwarded::join_cookies(headers);
        }
        tell_length(headers, length);
        if let Some(host) = hop.host.filter(|_| is_in_line && preserves_host) {
            let host = HeaderValue::from_str(host.as_str()).expect("an authority is visible ASCII");
            headers.insert(header::HOST, host);
        }
        forwarded::set(headers, &hop);
        self.via.append(headers, version);
    }

    /// Waits for a place of the key, if that is no address, and then for one of the address. A
    /// client can invent keys, but no addresses. The result holds both, besides `held`.
    async fn flight(&self, settings: &Settings, client: &Client, held: Held) -> Result<Held, Response<Body>> {
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
        Ok(Arc::new((of_key, of_address, held, self.under_way.clone())))
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

    /// Returns the body to send, and its progress if it is on its way.
    ///
    /// With a method that rarely has a body, a body of unknown length (a chunked one) is read
    /// first. hyper would take such a request for one without a body.
    async fn upload(
        &self,
        settings: &Settings,
        method: &Method,
        headers: &mut HeaderMap,
        body: Incoming,
        flight: &Held,
    ) -> Result<(Sent, Option<Arc<Upload>>), Response<Body>> {
        let (upload, body) = Upload::new(body, settings, flight.clone());
        let rarely = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE].contains(method);
        if !rarely || headers.contains_key(header::CONTENT_LENGTH) {
            return Ok((Either::Right(body), Some(upload)));
        }
        match Limited::new(body, GET_BODY).collect().await {
            Ok(whole) => {
                headers.remove(header::TRAILER);
                Ok((Either::Left(Full::new(whole.to_bytes())), None))
            }
            Err(_) => {
                let line =
                    format!("Content too large: a chunked body of {method} may have {GET_BODY} bytes.\n");
                let fault = upload.fault().map(|fault| self.failed(&Failure::OfClient(fault)));
                Err(fault.unwrap_or_else(|| text(StatusCode::PAYLOAD_TOO_LARGE, line)))
            }
        }
    }

    /// Attempts to send the request until an attempt has a response, or no attempt is left that may
    /// be made.
    async fn attempts(
        &self,
        priority: Priority,
        mut request: Request<Sent>,
        upload: Option<Arc<Upload>>,
        handshake: Option<Box<Handshake>>,
        flight: Held,
    ) -> Response<Body> {
        let targets = self.targets();
        let is_whole = upload.is_none() && handshake.is_none();
        // A request that may be made twice without another effect (RFC 9110, 9.2.2).
        let may_repeat = request.method().is_idempotent() && is_whole;
        let keeps_host = targets[0].preserves_host && request.headers().contains_key(header::HOST);
        let mut failed = 0;
        let (mut repeats, mut fresh) = (false, false);
        let mut turn = self.turns.first(&targets);
        loop {
            let entered = self.turns.enter(&targets, &mut turn, priority);
            let Some(entered) = entered else { return self.crowded() };
            let target = &targets[turn.at];
            if matches!(target.pool.to, Upstream::H2c(_)) && handshake.is_some() {
                return no_upgrade();
            }
            if !keeps_host {
                request.headers_mut().insert(header::HOST, target.host.clone());
            }
            let spare = (is_whole && (may_repeat || target.pool.shared.is_some()) && !repeats)
                .then(|| Spare::of(&request));
            let answers = target.health.answers();
            let mut outcome = target.ask(fresh, request, upload.as_deref(), &mut turn.probe).await;
            if outcome.as_ref().is_ok_and(|(response, _)| !switches_as_asked(response, handshake.as_deref()))
            {
                outcome = Err((Failure::Mismatched, None));
            }
            let sent = upload.as_deref().map(Upload::last);
            let entered = entered.map(|entered| entered.end(outcome_of(&outcome), sent));
            let (failure, unsent) = match outcome {
                Ok((response, used)) => {
                    target.note_answer();
                    let (upstream, flight) = (Some(target.name.clone()), Some(flight));
                    let served = Box::new(Served { flight, upstream, entered, used });
                    return self.handed_back(target.pool.timeouts.tunnel, response, handshake, served);
                }
                Err(failed) => failed,
            };
            // The first refusal is tried again, and says nothing.
            if repeats || !matches!(failure, Failure::Refused(_)) {
                target.note_failure(&failure, answers, self.turns.now(), turn.probe.take());
            }
            let again = match failure {
                Failure::Unreached(_) | Failure::NotAccepted => {
                    failed += 1;
                    turn = self.turns.after(&targets, turn.at);
                    let is_next = failed < targets.len() && handshake.is_none();
                    let is_begun = upload.as_deref().is_some_and(|upload| upload.is_begun.load(Relaxed));
                    unsent.filter(|_| is_next && !is_begun).map(|unsent| *unsent)
                }
                // At any time, the upstream may close a connection that was kept alive. The
                // response to another request on it may have ended it as well.
                Failure::Broken(_) if may_repeat && !std::mem::replace(&mut repeats, true) => {
                    fresh = true;
                    spare.map(Spare::request)
                }
                Failure::Refused(_) if !std::mem::replace(&mut repeats, true) => spare.map(Spare::request),
                _ => None,
            };
            match again {
                Some(again) => request = again,
                None => return self.failed(&failure),
            }
            self.counters.add(Event::Retry);
        }
    }

    /// Returns the answer to a request for which no upstream has a place.
    fn crowded(&self) -> Response<Body> {
        self.counters.add(Event::Crowded);
        let line = "Service unavailable: the upstream has as many requests as it can answer in time.\n";
        retry_later(StatusCode::SERVICE_UNAVAILABLE, line)
    }

    fn failed(&self, failure: &Failure) -> Response<Body> {
        let (event, status, line) = answer(failure);
        self.counters.add(event);
        let mut response = text(status, line);
        if let Failure::Reset(reason) = failure {
            response.extensions_mut().insert(*reason);
        }
        response
    }

    /// Turns the upstream's response into the response to the client.
    fn handed_back(
        &self,
        silence: Duration,
        mut response: Response<Incoming>,
        handshake: Option<Box<Handshake>>,
        mut served: Box<Served>,
    ) -> Response<Body> {
        let is_tunnel = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if let Some(handshake) = handshake.filter(|_| is_tunnel) {
            self.counters.add(Event::Upgrade);
            handshake.open(&mut response, silence, served.flight.clone());
            // An upgraded connection may last for hours, and says nothing of the upstream.
            (served.entered, served.used) = (None, None);
        }
        // A response without a body may tell the length that a GET would have. A 204 may not.
        let told = match response.body().size_hint().exact() {
            Some(0) if response.status() != StatusCode::NO_CONTENT => content_length(response.headers()),
            length => length.filter(|length| *length > 0),
        };
        let version = response.version();
        let headers = response.headers_mut();
        forwarded::drop_hop_by_hop(headers);
        if is_tunnel {
            forwarded::keep_upgrade(headers);
        }
        tell_length(headers, told);
        self.via.append(headers, version);
        // hyper lowers the version for a client of an older one.
        *response.version_mut() = Version::HTTP_11;
        // A reason other than that of its status.
        response.extensions_mut().clear();
        response.map(|body| Body { bytes: Either::Right(body), served: Some(served) })
    }
}

/// Returns whether a response switches protocols only if the request asks for that.
fn switches_as_asked(response: &Response<Incoming>, handshake: Option<&Handshake>) -> bool {
    response.status() != StatusCode::SWITCHING_PROTOCOLS
        || handshake.is_some_and(|handshake| handshake.matches(response.headers()))
}

#[cold]
fn no_upgrade() -> Response<Body> {
    text(StatusCode::NOT_IMPLEMENTED, "Not implemented: an upstream of HTTP/2 alone takes no upgrade.\n")
}

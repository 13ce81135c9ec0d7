//! Connections of clients: opened, watched and answered.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::Watcher;
use tokio::task::yield_now;
use tokio::time::interval;
use tollgate::{Places, RateLimiter};
use tollgate_adaptive::{Enter, KeyFlight};
use tollgate_http::ClientIp;

use super::access::Line;
use super::header;
use super::policies::tell_apart;
use super::sockets::Sockets;
use crate::config::settings::{Settings, Timeouts, Upstream};
use crate::counters::{Counters, Event};
use crate::forward::answers::{Body, Served};
use crate::forward::attempts::Forward;
use crate::forward::bodies::{Delivery, Download, End, Held};
use crate::forward::grpc::{Reset, as_grpc, is_grpc};
use crate::limits::in_force::{Again, Limits};
use crate::limits::keys::Client;
use crate::pace::Patience;
use tollgate_common::net::crowd::{Activity, Member, Owner, share};
use tollgate_common::net::open::{Closed, Door, Peer, Reading, Source};
use tollgate_common::net::serving::{Answer, Connections};
use tollgate_common::net::socket::Socket;
use tollgate_common::net::tls::Tls;
use tollgate_common::settings::values::Address;

/// The longest head of a request. With the rest of a connection it takes 65 KB: 10,000 connections
/// whose heads never end take less than 700 MB.
const HEAD: usize = 48 << 10;
/// The most requests of one HTTP/2 connection at a time.
const STREAMS: u32 = 128;
/// The most bytes of request bodies of one HTTP/2 connection in the proxy.
const WINDOW: u32 = 256 << 10;
/// The most bytes of a response that wait in an HTTP/2 connection. Responses take turns of this
/// length.
const SEND_BUFFER: usize = 16 << 10;
/// The factor by which a response may wait longer while the client takes others of its connection.
const TURNS: u32 = 6;

/// The state that every connection shares.
pub(crate) struct Proxy {
    settings: RwLock<Arc<Settings>>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) forward: Forward,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) connections: Connections,
    /// The connections of each address.
    addresses: RateLimiter<IpAddr, Places>,
}

impl Proxy {
    pub(crate) fn new(
        settings: Settings,
        limits: Arc<Limits>,
        at: &Address,
        demo: &Upstream,
        tls: Option<Arc<Tls>>,
        sockets: &Sockets,
    ) -> Result<Proxy, String> {
        let port = match at {
            Address::Tcp(address) => address.port(),
            Address::Unix(_) if tls.is_some() => 443,
            Address::Unix(_) => 80,
        };
        let made_up = || format!("tollgate-{:08x}", RandomState::new().hash_one(0) as u32);
        let via = settings.via.clone().unwrap_or_else(made_up);
        let counters: Arc<Counters> = Arc::default();
        let forward = Forward::new(&sockets.bounded(&settings), demo, via, port, counters.clone());
        let connections = Connections::new(sockets.share(settings.bounds.in_flight).0)?;
        let (most, per_address) = (connections.clients.size().1, settings.bounds.connections_per_address);
        if most / 2 < per_address {
            let line = "the limit on open files leaves room for fewer connections";
            tracing::warn!(connections = most, per_address, "{line}");
        }
        let addresses = RateLimiter::new(places(per_address));
        let settings = RwLock::new(Arc::new(settings));
        Ok(Proxy { settings, limits, forward, tls, counters, connections, addresses })
    }

    /// Replaces the settings that are read for each connection and each request.
    pub(crate) fn set(&self, settings: Settings) {
        // It is within the bounds of a limit.
        let _ = self.addresses.set_rule(places(settings.bounds.connections_per_address));
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn answer(
        &self,
        peer: &Peer,
        watch: &Arc<Watch>,
        mut request: Request<Incoming>,
    ) -> Response<Download<impl FnOnce(End, u64) + Unpin + use<>>> {
        let settings = self.settings();
        let asked: Held = Arc::new((watch.places.0.activity.busy(), watch.clone()));
        let in_force = self.limits.in_force();
        let asking = in_force.ask(peer.address, &mut request);
        let mut line = settings.log.access.then(|| Line::of(&request, asking.client.address));
        let is_multiplexed = request.version() == Version::HTTP_2;
        let has_body = !request.body().is_end_stream();
        let is_grpc = is_multiplexed && is_grpc(&request);
        // hyper drops the body of an answer to `HEAD` in HTTP/1 alone.
        let is_head = is_multiplexed && request.method() == Method::HEAD;
        // A refused request ends before: it moves no room for the state of one that goes on.
        let send =
            |client: Client, request| Box::pin(self.forward.send(&settings, peer, &asked, client, request));
        let again = Again::default();
        let mut response = asking.send(request, &again, send).await;
        while let Some(mut request) = again.take() {
            let in_force = self.limits.in_force();
            let asking = in_force.ask(peer.address, &mut request);
            response = Box::pin(asking.send(request, &again, send)).await;
        }
        if is_grpc && response.body().served.is_none() {
            response = as_grpc(response);
        }
        if is_head && response.body().served.is_none() {
            *response.body_mut() = Body::from("");
        }
        if has_body && !is_multiplexed && response.body().served.is_none() {
            // hyper sees that the body is left unread. It drains one that has arrived, or the
            // response tells that it is the last.
            yield_now().await;
        }
        let too_large =
            response.status() == StatusCode::PAYLOAD_TOO_LARGE && response.body().served.is_none();
        let late = response.status() == StatusCode::REQUEST_TIMEOUT;
        let ends = self.connections.are_closing() || late || too_large;
        if ends && !is_multiplexed && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if response.body().served.is_some() {
            tell_apart(response.headers_mut());
        }
        let served = response.body_mut().served.take().map(|served| *served).unwrap_or_default();
        let Served { flight, upstream, entered, used } = served;
        if let Some(line) = &mut line {
            (line.status, line.upstream) = (Some(response.status()), upstream.clone());
        }
        let counters = self.counters.clone();
        let at_end = move |end, bytes| {
            // The upstream is done with a response before the client has taken its last part.
            drop(entered);
            if let Some(used) = used.filter(|_| end == End::Whole) {
                used.keep();
            }
            note_end(end, upstream.as_deref(), &counters);
            if let Some(line) = &mut line {
                (line.end, line.bytes) = (end, bytes);
            }
            drop(line);
        };
        let Timeouts { response_body: longest, whole_body: whole, .. } = settings.timeouts;
        let patience = Patience { longest, rate: None, whole };
        let held = [flight, Some(asked)];
        let mut response = response.map(|body| Download::new(body.bytes, patience, held, at_end));
        if is_multiplexed {
            watch.places.0.activity.is_multiplexed.store(true, Relaxed);
            watch.add(response.body_mut().among_others());
        }
        response
    }
}

/// Returns the number as a limit, which is at most 2^20.
fn places(most: usize) -> Places {
    Places::new(most.clamp(1, 1 << 20) as u32)
}

/// The activity of a connection, by which its own task sees that it stands still.
pub(crate) struct Watch {
    /// The places of the connection, until its last request has ended: an upgraded connection goes
    /// on. They are among all, of the socket's address, and of the client's address if that is
    /// another one.
    places: (Member, Option<OfAddress>, Option<OfAddress>),
    deliveries: Mutex<Vec<Weak<Delivery>>>,
}

type OfAddress = KeyFlight<'static>;

impl Watch {
    fn add(&self, delivery: &Arc<Delivery>) {
        let mut deliveries = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        deliveries.push(Arc::downgrade(delivery));
        // Deliveries that have ended are dropped: at most `STREAMS` streams are open at a time.
        if deliveries.len() > STREAMS as usize {
            deliveries.retain(|delivery| delivery.strong_count() > 0);
        }
    }

    /// Returns whether the client does not take a response, out of those that wait.
    fn is_slow(&self, longest: Duration) -> bool {
        let deliveries = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = deliveries.iter().filter_map(Weak::upgrade).filter_map(|delivery| delivery.paused());
        let (least, most) = waiting.fold((Duration::MAX, Duration::ZERO), |(least, most), pause| {
            (least.min(pause), most.max(pause))
        });
        most > longest.saturating_mul(TURNS) || most > longest && least > longest
    }

    /// Returns once the connection is to leave for a newcomer, has had no request for too long, or
    /// the client does not take a response. The first two hold only while no request is under way.
    /// The last holds for a response of several at a time.
    async fn stands_still(&self, settings: &Settings, counters: &Counters) {
        let Timeouts { request_head, keep_alive, slow_reader, .. } = settings.timeouts;
        let shortest = request_head.min(keep_alive).min(slow_reader);
        let activity = &self.places.0.activity;
        let mut ticks = interval((shortest / 4).max(Duration::from_millis(1)));
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = activity.dismissed() => return counters.add(Event::ConnectionIdle),
            }
            if activity.is_late(request_head, keep_alive) {
                return counters.add(Event::HeadTimeout);
            }
            if self.is_slow(slow_reader) {
                return counters.add(Event::SlowReader);
            }
        }
    }
}

impl Answer for Proxy {
    type Place = Option<OfAddress>;

    fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Takes a place among the connections of the address. Networks of proxies have no bound.
    /// Returns `None`, and counts it, if the address has its share.
    fn admit(&self, address: IpAddr) -> Option<Option<OfAddress>> {
        let settings = self.settings();
        if settings.trusts(address) {
            return Some(None);
        }
        let (taken, most) = self.connections.clients.size();
        let share = share(most, taken, settings.bounds.connections_per_address);
        let address = ClientIp::peer().group(address);
        let held = self.addresses.in_flight(&address) as usize;
        let place = self.addresses.try_enter_owned(&address).ok().filter(|_| held < share.max(1));
        if place.is_none() {
            self.counters.add(Event::ConnectionRefused);
        }
        place.map(Some)
    }

    /// Returns `None`: an address has its share by [`Proxy::admit`].
    fn owner(&self, _: IpAddr) -> Owner {
        None
    }

    fn refused(&self) {
        self.counters.add(Event::ConnectionRefused);
    }

    async fn converse(
        self: Arc<Self>,
        (socket, of_address): (Socket, Option<OfAddress>),
        member: Member,
        watcher: Watcher,
    ) {
        let (settings, proxy) = (self.settings(), self);
        let door = door(&settings, proxy.tls.clone(), &proxy.counters, member.activity.clone());
        let Some((stream, peer)) = proxy.connections.open(socket, &door).await else { return };
        member.activity.touch();
        // A PROXY header has named another address.
        let is_named = peer.address != peer.connected;
        let of_client = if is_named { proxy.admit(peer.address) } else { Some(None) };
        let Some(of_client) = of_client else { return };
        let places = (member, of_address, of_client);
        let watch = Arc::new(Watch { places, deliveries: Mutex::default() });
        let service = {
            let (proxy, watch) = (proxy.clone(), watch.clone());
            service_fn(move |request| {
                let (proxy, watch) = (proxy.clone(), watch.clone());
                async move { or_reset(proxy.answer(&peer, &watch, request).await) }
            })
        };
        let (server, io) = (server(&settings), TokioIo::new(stream));
        // In a task of its own, since each part of a request wakes it.
        let mut serving =
            tokio::spawn(
                async move { watcher.watch(server.serve_connection_with_upgrades(io, service)).await },
            );
        tokio::select! {
            ended = &mut serving => if let Ok(Err(error)) = ended {
                note(&*error, &proxy.counters);
            },
            () = watch.stands_still(&settings, &proxy.counters) => serving.abort(),
        }
    }

    fn under_way(&self) -> usize {
        self.forward.under_way()
    }

    fn patience(&self) -> (Duration, Duration) {
        let Timeouts { slow_reader, drain, .. } = self.settings().timeouts;
        (slow_reader, drain)
    }
}

/// Returns the door of a connection under these settings.
pub(crate) fn door(
    settings: &Arc<Settings>,
    tls: Option<Arc<Tls>>,
    counters: &Arc<Counters>,
    activity: Arc<Activity>,
) -> Door {
    let (counters, trusting) = (counters.clone(), settings.clone());
    let Timeouts { request_head, slow_reader, .. } = settings.timeouts;
    let count = move |closed| {
        counters.add(match closed {
            Closed::ProxyHeader => Event::ProxyHeader,
            Closed::TlsHandshake => Event::TlsHandshake,
            Closed::SlowReader => Event::SlowReader,
            Closed::Idle => Event::ConnectionIdle,
            Closed::Flood => Event::Flood,
            Closed::Refused => Event::ConnectionRefused,
        });
    };
    let source = move |io, peer| -> Reading { Box::pin(header::source(io, trusting.trusts(peer))) };
    Door {
        source: settings.proxy_protocol.then(|| Box::new(source) as Source),
        tls,
        header: request_head,
        handshake: request_head,
        slow_reader,
        // A tunnel reads on after its last byte to the client.
        rest: Duration::ZERO,
        count: Arc::new(count),
        activity,
    }
}

/// Returns the response, or the reset of the client's stream in its place.
fn or_reset<B>(response: Response<B>) -> Result<Response<B>, h2::Error> {
    match response.extensions().get::<Reset>() {
        Some(Reset(reason)) => Err((*reason).into()),
        None => Ok(response),
    }
}

fn server(settings: &Settings) -> auto::Builder<TokioExecutor> {
    let mut server = auto::Builder::new(TokioExecutor::new());
    let Timeouts { request_head: head, keep_alive, .. } = settings.timeouts;
    // hyper's time begins with the silence before a head. The connection's own task sees both.
    server.http1().timer(TokioTimer::new()).header_read_timeout(keep_alive + head).max_buf_size(HEAD);
    server
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(head)
        .keep_alive_timeout(head)
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEAD as u32);
    server
}

/// Counts and logs the fault of an upstream whose response ended too soon.
fn note_end(end: End, upstream: Option<&str>, counters: &Counters) {
    let (event, fault) = match end {
        End::Broken => (Event::BrokenResponse, "the upstream broke its response off"),
        End::TimedOut => (Event::ResponseBodyTimeout, "the upstream paused its response for too long"),
        End::TooLong => (Event::ResponseBodyTimeout, "the response took too long as a whole"),
        End::Whole | End::Dropped => return,
    };
    counters.add(event);
    tracing::warn!(upstream, "{fault}");
}

/// Counts the fault of a client whose connection has ended. Most ends are no fault: the client
/// left.
fn note(error: &(dyn std::error::Error + 'static), counters: &Counters) {
    let Some(error) = error.downcast_ref::<hyper::Error>() else { return };
    if error.is_parse_too_large() {
        counters.add(Event::HeadTooLarge);
    } else if error.is_parse() {
        counters.add(Event::BadRequest);
    } else if error.is_timeout() {
        counters.add(Event::HeadTimeout);
    }
}

//! The connections of clients: of gRPC, of HTTP and of Prometheus, on the listener of the proxy.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::Watcher;
use tokio::time::{interval, sleep, timeout};
use tollgate_http::ClientIp;
use tonic::body::Body;

use super::jitter::between;
use super::state::Service;
use super::{grpc, http};
use tollgate_common::net::crowd::{Activity, Member, Owner};
use tollgate_common::net::open::{Closed, Door};
use tollgate_common::net::serving::{Answer, Connections};
use tollgate_common::net::socket::Socket;
use tollgate_common::net::tls::Tls;

/// The longest head, and the longest time for it. A proxy may pass all headers of its client, and
/// its path: Envoy bounds them by 60 KiB, nginx by 32 and HAProxy by 16.
const HEAD: usize = 64 << 10;
const GRPC_HEAD: u32 = HEAD as u32;
const HEAD_TIME: Duration = Duration::from_secs(5);
/// The most calls of a connection at a time.
const STREAMS: u32 = 1_024;
/// The most calls of a connection that were taken back before they were seen. A client of Envoy
/// takes back its requests, and with this connection the calls of all others would end. The default
/// of `h2` is 20.
const TAKEN_BACK: usize = 32_768;
/// A client that does not read its response is closed after this time.
const SLOW_READER: Duration = Duration::from_secs(60);
/// The longest time for what a client sends behind the last answer, as the rest of a head or a body
/// that is too long. If the connection were reset, a proxy would take the service for one that is
/// away.
const REST: Duration = Duration::from_secs(5);
/// The longest silence of a connection of HTTP, and before the first call of one of gRPC.
const SILENCE: Duration = Duration::from_secs(75);
/// From one ping of a connection to the next, and for its answer.
const PING: Duration = Duration::from_secs(30);
/// The time for the last answers of a connection that leaves.
const LAST: Duration = Duration::from_secs(1);

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Grpc,
    Http,
    Prometheus,
}

/// A listener of the service.
pub(super) struct Front {
    service: Arc<Service>,
    protocol: Protocol,
    tls: Option<Arc<Tls>>,
    connections: Connections,
}

impl Front {
    pub(super) fn new(
        service: &Arc<Service>,
        protocol: Protocol,
        tls: Option<Arc<Tls>>,
        connections: usize,
    ) -> Result<Arc<Front>, String> {
        let connections = Connections::new(connections)?;
        Ok(Arc::new(Front { service: service.clone(), protocol, tls, connections }))
    }

    fn door(&self, activity: Arc<Activity>) -> Door {
        let service = self.service.clone();
        Door {
            source: None,
            tls: self.tls.clone(),
            header: HEAD_TIME,
            handshake: HEAD_TIME,
            slow_reader: SLOW_READER,
            rest: REST,
            count: Arc::new(move |fault| service.closed(fault)),
            activity,
        }
    }

    async fn answer(
        &self,
        activity: &Arc<Activity>,
        peer: IpAddr,
        mut request: Request<Incoming>,
    ) -> Response<Body> {
        let (_busy, is_http1) = (activity.busy(), request.version() < Version::HTTP_2);
        // hyper drops the body of an answer to `HEAD` in HTTP/1 alone.
        let is_head = !is_http1 && request.method() == Method::HEAD;
        // An answer to a ping is no begin of a head.
        activity.is_multiplexed.store(!is_http1, Relaxed);
        let service = self.service.clone();
        let mut response = match self.protocol {
            Protocol::Grpc => grpc::answer(service, request).await,
            Protocol::Http => {
                let response = http::answer(service, peer, &mut request).await;
                activity.is_in_body.store(is_http1 && !request.body().is_end_stream(), Relaxed);
                response
            }
            Protocol::Prometheus => http::metrics(&service, &request),
        };
        if is_head {
            *response.body_mut() = Body::empty();
        }
        if is_http1 && self.connections.are_closing() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn server(&self) -> auto::Builder<TokioExecutor> {
        let mut server = auto::Builder::new(TokioExecutor::new());
        if self.protocol == Protocol::Grpc {
            server = server.http2_only();
        }
        server.http1().timer(TokioTimer::new()).header_read_timeout(SILENCE + HEAD_TIME).max_buf_size(HEAD);
        server
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .max_concurrent_streams(STREAMS)
            .max_pending_accept_reset_streams(TAKEN_BACK)
            // It counts frames of calls that are over, as the rest of a message that was refused.
            .max_local_error_reset_streams(None)
            .max_header_list_size(GRPC_HEAD);
        server
    }

    /// Returns once the connection is to leave, with the time for its last answers.
    async fn leaves(&self, activity: &Activity) -> Duration {
        let settings = &self.service.in_force().settings;
        let is_grpc = self.protocol == Protocol::Grpc;
        let age = if is_grpc { around(settings.max_age) } else { Duration::MAX };
        let (head, silence) = if is_grpc { (SILENCE, Duration::MAX) } else { (HEAD_TIME, SILENCE) };
        let is_late = async {
            let mut ticks = interval(Duration::from_secs(1));
            while !activity.is_late(head, silence) {
                ticks.tick().await;
            }
        };
        tokio::select! {
            () = self.connections.late() => settings.drain,
            () = sleep(age) => settings.max_age_grace,
            // It has no call under way, and a newcomer waits for its place.
            () = activity.dismissed() => {
                self.service.closed(Closed::Idle);
                Duration::ZERO
            }
            () = is_late => LAST,
        }
    }
}

/// Returns a time within a tenth of it, so that connections of one moment do not end at one moment.
fn around(time: Duration) -> Duration {
    between(time.mul_f64(0.9), time.mul_f64(1.1))
}

impl Answer for Front {
    type Place = ();

    fn connections(&self) -> &Connections {
        &self.connections
    }

    fn admit(&self, _: IpAddr) -> Option<()> {
        Some(())
    }

    /// Returns the address, or the network of one of IPv6, which one client has.
    fn owner(&self, address: IpAddr) -> Owner {
        Some(ClientIp::peer().group(address))
    }

    fn refused(&self) {
        self.service.closed(Closed::Refused);
    }

    async fn converse(self: Arc<Self>, (socket, ()): (Socket, ()), member: Member, _watcher: Watcher) {
        let activity = member.activity.clone();
        let Some((stream, peer)) = self.connections.open(socket, &self.door(activity.clone())).await else {
            return;
        };
        activity.touch();
        let service = service_fn(|request| {
            let (front, activity) = (self.clone(), activity.clone());
            async move { Ok::<_, Infallible>(front.answer(&activity, peer.address, request).await) }
        });
        let server = self.server();
        let mut serving = std::pin::pin!(server.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            // An error is a client that left, and there is none to be told.
            _ = serving.as_mut() => (),
            last = self.leaves(&activity) => {
                serving.as_mut().graceful_shutdown();
                tokio::select! {
                    _ = timeout(last, serving) => (),
                    () = activity.dismissed() => self.service.closed(Closed::Idle),
                }
            }
        }
    }

    fn under_way(&self) -> usize {
        // A connection ends after its last answer.
        0
    }

    fn patience(&self) -> (Duration, Duration) {
        (SLOW_READER, self.service.in_force().settings.drain)
    }
}

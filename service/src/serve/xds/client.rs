//! The client of a control plane: it asks for the rules of this node, and accepts or refuses each
//! update.
//!
//! A control plane that is gone changes nothing: the rules that were accepted last stay in force.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::PingPong;
use h2::client::SendRequest;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::{self, PathAndQuery, Scheme};
use hyper::{Method, Request, Uri};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tollgate_common::net::connect::connect;
use tollgate_common::net::io::Io;
use tonic::Code;

use super::back_off::BackOff;
use super::messages::{DiscoveryRequest, DiscoveryResponse, NodeMessage, RpcStatus, TYPE};
use super::plane::ControlPlane;
use super::settings::{BackOffSettings, XdsSettings};
use super::stream::{DiscoveryCall, keep_alive, open, ping};
use super::update::Update;
use crate::rules::error::bounded;
use crate::serve::jitter::between;
use crate::serve::reload::{Source, UpdateRefusal};

const PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// The longest time to connect.
const CONNECT: Duration = Duration::from_secs(20);
/// The time after which a connection was a good one, also without an update.
const HEALTHY: Duration = Duration::from_secs(300);
/// The most bytes of the reason of a refusal.
const REASON: usize = 4 << 10;
/// Before the answer to an update that is refused again. A control plane may send it once more at
/// each refusal.
const REPEAT: Duration = Duration::from_secs(1);

/// An attempt to connect.
pub(super) type Dialed = Pin<Box<dyn Future<Output = Result<Box<dyn Io>, String>> + Send>>;

/// Follows the control plane over TCP, until the process ends.
pub(in crate::serve) async fn follow(source: Arc<Source>, plane: Arc<ControlPlane>) {
    let dialed = plane.clone();
    let dial = move || -> Dialed {
        let plane = dialed.clone();
        Box::pin(async move {
            let ((host, port), tls) = (plane.settings.address(), plane.settings.tls());
            let connected = timeout(CONNECT, connect(host, port, tls)).await;
            connected.unwrap_or_else(|_| Err(format!("no connection within {CONNECT:?}")))
        })
    };
    follow_over(dial, source, &plane).await;
}

/// Follows the control plane over the connections that a call makes.
pub(super) async fn follow_over(mut dial: impl FnMut() -> Dialed, source: Arc<Source>, plane: &ControlPlane) {
    let XdsSettings { back_off, connect_retry, .. } = &plane.settings;
    let repeats = BackOffSettings { first: REPEAT, most: back_off.most, factor: 2.0, has_jitter: false };
    let mut client = Client { source, plane, version: String::new(), repeats: BackOff::new(&repeats) };
    let mut back_off = BackOff::new(back_off);
    loop {
        let wait = match dial().await {
            Ok(io) => {
                let (before, began) = (plane.status().accepted, Instant::now());
                let why = client.serve(io).await;
                plane.lost(&why);
                if plane.status().accepted > before || began.elapsed() > HEALTHY {
                    back_off.reset();
                }
                back_off.next()
            }
            Err(why) => {
                plane.lost(&why);
                between(connect_retry.mul_f64(0.5), connect_retry.mul_f64(1.5))
            }
        };
        sleep(wait).await;
    }
}

/// The client, over all connections.
struct Client<'p> {
    source: Arc<Source>,
    plane: &'p ControlPlane,
    /// The version that was accepted last.
    version: String,
    /// The waits before answers to one update that is refused again and again.
    repeats: BackOff<'p>,
}

impl Client<'_> {
    /// Serves one connection, and returns the reason of its end.
    async fn serve(&mut self, io: impl Io) -> String {
        let (sender, pings, drive) = match open(io).await {
            Ok(opened) => opened,
            Err(why) => return why,
        };
        let Err(why) = tokio::select! {
            ended = self.talk(sender, pings) => ended,
            never = drive => Ok(never),
        };
        why
    }

    /// Answers each update of a connection on which the server has answered.
    async fn talk(&mut self, sender: SendRequest<Bytes>, mut pings: PingPong) -> Result<Infallible, String> {
        ping(&mut pings).await?;
        self.plane.connected();
        self.exchange(sender, pin!(keep_alive(pings))).await
    }

    /// Answers updates until the server is lost. A load that has begun goes on to its end.
    async fn exchange(
        &mut self,
        sender: SendRequest<Bytes>,
        mut lost: Pin<&mut impl Future<Output = Result<Infallible, String>>>,
    ) -> Result<Infallible, String> {
        // It names no version: a control plane that begins anew may give other rules the same one.
        let first = DiscoveryRequest { version_info: String::new(), ..self.request(String::new(), None) };
        let mut call = tokio::select! {
            begun = DiscoveryCall::begin(sender, self.head(), &first) => begun?,
            lost = &mut lost => return lost,
        };
        loop {
            let update = tokio::select! {
                update = call.next(self.plane.settings.most) => update?,
                lost = &mut lost => return lost,
            };
            call.send(&self.answer(update).await).await?;
        }
    }

    fn head(&self) -> Request<()> {
        let settings = &self.plane.settings;
        let mut parts = uri::Parts::default();
        parts.scheme = Some(if settings.tls().is_some() { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = Some(settings.server.clone());
        parts.path_and_query = Some(PathAndQuery::from_static(PATH));
        let mut head = Request::new(());
        *head.method_mut() = Method::POST;
        // A URI of all three parts is one.
        *head.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        let fixed = [("content-type", "application/grpc"), ("te", "trailers"), ("user-agent", "tollgate")];
        let fixed =
            fixed.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        head.headers_mut().extend(fixed.into_iter().chain(settings.headers.iter().cloned()));
        head
    }

    /// Returns a request: the first of a stream, an acceptance, or a refusal with its reason.
    fn request(&self, nonce: String, refusal: Option<String>) -> DiscoveryRequest {
        let XdsSettings { node_id, node_metadata, .. } = &self.plane.settings;
        DiscoveryRequest {
            version_info: self.version.clone(),
            node: Some(NodeMessage { id: node_id.clone(), metadata: Some(node_metadata.clone()) }),
            type_url: TYPE.to_owned(),
            response_nonce: nonce,
            error_detail: refusal.map(|message| RpcStatus { code: Code::InvalidArgument.into(), message }),
        }
    }

    /// Puts an update in force, and returns its acceptance; or its refusal, after which the rules
    /// are as before.
    async fn answer(&mut self, response: DiscoveryResponse) -> DiscoveryRequest {
        let (version, nonce) = (response.version_info.clone(), response.nonce.clone());
        let source = self.source.clone();
        let loaded = spawn_blocking(move || source.load_update(Update(response))).await;
        let loaded = loaded.unwrap_or_else(|error| Err(UpdateRefusal::new(format!("cannot load: {error}"))));
        self.plane.updated(loaded.is_ok());
        let Err(UpdateRefusal { why, is_repeated }) = loaded else {
            self.repeats.reset();
            self.version = version;
            return self.request(nonce, None);
        };
        if is_repeated {
            sleep(self.repeats.next()).await;
        } else {
            self.repeats.reset();
        }
        self.request(nonce, Some(bounded(&why, REASON).into_owned()))
    }
}

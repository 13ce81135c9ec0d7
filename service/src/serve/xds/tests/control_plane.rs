//! A control plane for tests, which says what a test lets it say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::{RecvStream, SendStream};
use hyper::{HeaderMap, Request, Response};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tollgate_common::log::LogHandle;

use super::super::client::{Dialed, follow_over};
use super::super::messages::{
    AnyMessage, ConfigDescriptor, ConfigLimit, ConfigMessage, DiscoveryRequest, DiscoveryResponse, TYPE,
};
use super::super::plane::ControlPlane;
use super::super::stream::framed;
use super::super::update::Update;
use crate::serve::messages::{Code, DescriptorEntry, RateLimitDescriptor, RateLimitRequest};
use crate::serve::options::ServeOptions;
use crate::serve::pages;
use crate::serve::reload::Source;
use crate::serve::sources;
use crate::serve::state::Service;

/// Far above each time of the client but that of its pings.
const PATIENCE: Duration = Duration::from_secs(120);

/// A service whose rules come from a control plane.
pub(super) struct World {
    pub(super) source: Arc<Source>,
    pub(super) plane: Arc<ControlPlane>,
}

impl World {
    /// Returns a service that does not follow its control plane yet.
    pub(super) fn new(given: &[(&str, &str)]) -> World {
        World::with(given, |_| ())
    }

    pub(super) fn with(given: &[(&str, &str)], change: impl FnOnce(&mut Service)) -> World {
        let given = [("CONFIG_TYPE", "GRPC_XDS_SOTW")].iter().chain(given);
        let environment: BTreeMap<String, String> =
            given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let options = ServeOptions::default();
        let settings = sources::load(&options, &environment).unwrap();
        let plane = Arc::new(ControlPlane::new(settings.xds.clone()));
        let mut service = Service::new(settings, &mut Vec::new());
        service.control_plane = Some(plane.clone());
        change(&mut service);
        let source = Source::new(options, environment, Arc::new(service), None, LogHandle::of_tests());
        World { source: Arc::new(source), plane }
    }

    pub(super) fn service(&self) -> &Service {
        &self.source.service
    }

    /// Puts an update in force, without a connection.
    pub(super) fn load(&self, response: DiscoveryResponse) -> Result<(), String> {
        self.source.load_update(Update(response)).map_err(|refusal| refusal.why)
    }

    /// Follows the control plane over pipes, whose other ends are returned.
    pub(super) fn follow(&self) -> Pipes {
        let (sender, dialed) = mpsc::unbounded_channel();
        let (source, plane) = (self.source.clone(), self.plane.clone());
        let following = tokio::spawn(async move {
            let dial = move || -> Dialed {
                let (own, other) = duplex(1 << 16);
                let is_open = sender.send(other).is_ok();
                Box::pin(async move {
                    if is_open { Ok(Box::new(own) as _) } else { Err("the test has ended".to_owned()) }
                })
            };
            follow_over(dial, source, &plane).await;
        });
        Pipes { dialed, following }
    }

    /// Decides on a request with these hits. Returns the code and the hits that are left.
    pub(super) async fn ask(&self, domain: &str, entries: &[(&str, &str)], hits: u32) -> (Code, u32) {
        let entry =
            |(key, value): &(&str, &str)| DescriptorEntry { key: (*key).into(), value: (*value).into() };
        let entries = entries.iter().map(entry).collect();
        let hits_addend = Some(hits.into());
        let descriptors =
            vec![RateLimitDescriptor { entries, hits_addend, ..RateLimitDescriptor::default() }];
        let request = RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 };
        let answer = self.service().ask(&request).await.expect("a decision");
        (answer.overall_code(), answer.statuses[0].limit_remaining)
    }

    pub(super) fn rlconfig(&self) -> String {
        pages::rules(self.service())
    }

    /// Returns a counter of the service.
    pub(super) fn counted(&self, name: &str) -> u64 {
        let lines = self.service().counts.statistics.lines();
        let start = format!("ratelimit.service.{name}: ");
        lines.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok()).unwrap_or(0)
    }
}

/// The ends of the connections that the client made.
pub(super) struct Pipes {
    pub(super) dialed: mpsc::UnboundedReceiver<DuplexStream>,
    following: JoinHandle<()>,
}

impl Pipes {
    /// Returns the next connection, once the client makes one.
    pub(super) async fn next(&mut self) -> DuplexStream {
        let next = timeout(PATIENCE, self.dialed.recv()).await.expect("the client comes back");
        next.expect("the client goes on")
    }

    /// Returns the stream on the next connection.
    pub(super) async fn stream(&mut self) -> Stream {
        Stream::over(self.next().await).await.expect("the client asks")
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        self.following.abort();
    }
}

/// The server's side of a stream. A drop of it ends the connection.
pub(super) struct Stream {
    pub(super) head: Request<()>,
    up: RecvStream,
    pub(super) down: SendStream<Bytes>,
    buffer: BytesMut,
    /// The work of the connection: it goes on while this is true.
    goes: watch::Sender<bool>,
    driving: JoinHandle<()>,
}

impl Stream {
    /// Waits for the call of a client, and begins its answer. `None` is a connection without a
    /// call.
    pub(super) async fn over(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Option<Stream> {
        let mut connection = h2::server::handshake(io).await.ok()?;
        let (call, mut respond) = connection.accept().await?.ok()?;
        let (goes, mut is_going) = watch::channel(true);
        let driving = tokio::spawn(async move {
            tokio::select! {
                // A frozen one keeps its socket.
                Ok(()) = async { is_going.wait_for(|goes| !goes).await.map(drop) } => std::future::pending().await,
                () = async { while let Some(Ok(_)) = connection.accept().await {} } => (),
            }
        });
        let (head, up) = call.into_parts();
        let head = Request::from_parts(head, ());
        let begin = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        let down = respond.send_response(begin, false).ok()?;
        Some(Stream { head, up, down, buffer: BytesMut::new(), goes, driving })
    }

    /// Returns the next request, or `None` at the end of the connection.
    pub(super) async fn request(&mut self) -> Option<DiscoveryRequest> {
        loop {
            if let Some(prefix) = self.buffer.first_chunk::<5>() {
                let length = u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize;
                if self.buffer.len() >= 5 + length {
                    let message = self.buffer.split_to(5 + length).split_off(5);
                    return Some(DiscoveryRequest::decode(message).unwrap());
                }
            }
            let part = timeout(PATIENCE, self.up.data()).await.expect("an answer")?.ok()?;
            let _ = self.up.flow_control().release_capacity(part.len());
            self.buffer.extend_from_slice(&part);
        }
    }

    pub(super) fn send(&mut self, response: &DiscoveryResponse) {
        self.send_bytes(framed(response).unwrap());
    }

    pub(super) fn send_bytes(&mut self, bytes: Bytes) {
        self.down.send_data(bytes, false).unwrap();
    }

    /// Sends an update, and returns the answer.
    pub(super) async fn update(&mut self, response: &DiscoveryResponse) -> DiscoveryRequest {
        self.send(response);
        self.request().await.expect("an answer")
    }

    /// Does no more work, and keeps the connection open.
    pub(super) fn freeze(&self) {
        self.goes.send_replace(false);
    }

    /// Ends the stream with a status.
    pub(super) fn end(&mut self, status: &str, why: &str) {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", status.parse().unwrap());
        trailers.insert("grpc-message", why.parse().unwrap());
        self.down.send_trailers(trailers).unwrap();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

/// Returns an update of these configurations, whose nonce is `n` and the version.
pub(super) fn update(version: &str, configs: &[ConfigMessage]) -> DiscoveryResponse {
    let resource = |config: &ConfigMessage| AnyMessage {
        type_url: TYPE.to_owned(),
        value: config.encode_to_vec().into(),
    };
    DiscoveryResponse {
        version_info: version.to_owned(),
        resources: configs.iter().map(resource).collect(),
        type_url: TYPE.to_owned(),
        nonce: format!("n{version}"),
    }
}

/// Returns a configuration of one limit: a number a year of each value of a key.
pub(super) fn yearly(domain: &str, key: &str, requests: u32) -> ConfigMessage {
    ConfigMessage {
        name: format!("{domain}-config"),
        domain: domain.to_owned(),
        descriptors: vec![limited(key, "", requests)],
    }
}

/// Returns a descriptor with a limit of a year.
pub(super) fn limited(key: &str, value: &str, requests: u32) -> ConfigDescriptor {
    ConfigDescriptor {
        key: key.to_owned(),
        value: value.to_owned(),
        rate_limit: Some(ConfigLimit { unit: 6, requests_per_unit: requests, ..ConfigLimit::default() }),
        ..ConfigDescriptor::default()
    }
}

//! One upstream of several: its connections, its limit, and one attempt to have its response.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use tokio::time::{Instant, timeout_at};
use tollgate_adaptive::Outcome;
use tollgate_http::ResponseHead;

use super::admission::TOO_LARGE;
use super::bodies::{Sent, Upload};
use super::connect::{BodyFault, Failure};
use super::health::{Health, Probe};
use super::inflight::Gate;
use super::pool::{Answered, Pool};
use crate::config::settings::{Settings, Upstream};
use crate::counters::Event;

/// The time after which a request that still sends its body gives the probe back.
const PROBE: Duration = Duration::from_secs(1);

pub(crate) struct Target {
    /// The upstream as the settings name it.
    pub(crate) name: Arc<str>,
    /// The host that it is asked for.
    pub(crate) host: HeaderValue,
    /// Whether it sees the host that the client asked for instead.
    pub(crate) preserves_host: bool,
    pub(crate) pool: Arc<Pool>,
    pub(crate) health: Arc<Health>,
    /// The limit on its requests in flight, if there is one.
    pub(crate) gate: Option<Arc<Gate>>,
}

impl Target {
    /// Returns a target with the limit and the health of the one before of the same name.
    pub(crate) fn new(upstream: &Upstream, settings: &Settings, before: &[Target]) -> Target {
        let host = match upstream.authority() {
            Some(authority) => HeaderValue::from_str(authority.as_str()),
            None => Ok(HeaderValue::from_static("localhost")),
        };
        // Idle connections of all targets are no more than the requests under way: the number of
        // sockets is bounded.
        let idle = settings.bounds.in_flight.div_ceil(settings.upstreams.len().max(1));
        let name: Arc<str> = upstream.to_string().into();
        let before = before.iter().find(|target| target.name == name);
        let gate = before.and_then(|target| target.gate.as_ref());
        Target {
            host: host.expect("an authority is visible ASCII"),
            preserves_host: settings.preserve_host,
            pool: Pool::new(upstream.clone(), settings, idle),
            health: before.map(|target| target.health.clone()).unwrap_or_default(),
            gate: settings.inflight.map(|limit| Gate::new(&name, limit, gate)),
            name,
        }
    }

    /// Sends a request, over a new connection if `fresh` is true, and waits for the head of the
    /// response. `upload` is the progress of a body that is on its way.
    ///
    /// A request whose body is still on its way after [`PROBE`] gives the probe back, and another
    /// one asks meanwhile: the client chooses how long that goes on.
    pub(crate) async fn ask(
        &self,
        fresh: bool,
        request: Request<Sent>,
        upload: Option<&Upload>,
        probe: &mut Option<Probe>,
    ) -> Answered {
        let (upstream, limit) = (&*self.name, self.pool.timeouts.response_head);
        let began = Instant::now();
        let last = || upload.map_or(began, |upload| upload.last().max(began));
        let mut answer = std::pin::pin!(self.pool.send(request, fresh));
        loop {
            let mut until = last() + limit;
            if upload.is_some() && probe.is_some() {
                until = until.min(Instant::now() + PROBE);
            }
            match timeout_at(until, answer.as_mut()).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err((failure, unsent))) => {
                    let failure = upload.and_then(Upload::fault).map_or(failure, Failure::OfClient);
                    match failure {
                        // An upstream that is down is logged once.
                        Failure::Unreached(_) | Failure::NotAccepted | Failure::OfClient(_) => (),
                        _ => tracing::warn!(upstream, error = %failure, "the upstream failed"),
                    }
                    return Err((failure, unsent));
                }
                // The client has sent a part meanwhile, or the proxy waits for the client.
                Err(_) if last() + limit > Instant::now() => {
                    probe.take_if(|_| upload.is_some() && last() + PROBE / 2 > Instant::now());
                }
                Err(_) => {
                    tracing::warn!(upstream, "the upstream did not begin to respond in time");
                    return Err((Failure::TooLate, None));
                }
            }
        }
    }

    /// Notes a response for the next requests.
    pub(crate) fn note_answer(&self) {
        if self.health.answered() {
            self.log_return();
        }
    }

    #[cold]
    fn log_return(&self) {
        tracing::info!(upstream = &*self.name, "the upstream answers again");
    }

    /// Notes a failure for the next requests, and logs the first. `answers` is their number before
    /// the attempt: one request without an answer tells nothing among others that have one.
    #[cold]
    pub(crate) fn note_failure(&self, failure: &Failure, answers: u64, now: u64, probe: Option<Probe>) {
        let is_down = match failure {
            Failure::Unreached(_) | Failure::NotAccepted => true,
            Failure::TooLate | Failure::Refused(_) => self.health.answers() == answers,
            _ => false,
        };
        if is_down && self.health.failed(now, probe) {
            let upstream = &*self.name;
            tracing::error!(upstream, error = %failure, "the upstream is down, and is passed over");
        }
    }
}

/// Appends the state of each upstream in the text format of Prometheus.
pub(crate) fn prometheus(targets: &[Target], text: &mut String) {
    let name = "tollgate_upstream_up";
    let _ = writeln!(text, "# HELP {name} Whether the upstream answers.\n# TYPE {name} gauge");
    for target in targets {
        let (upstream, is_up) = (escaped(&target.name), u8::from(target.health.is_up()));
        let _ = writeln!(text, "{name}{{name=\"{upstream}\"}} {is_up}");
    }
}

/// Returns the value of a label: the path of a Unix socket may have any byte but 0.
pub(crate) fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns the outcome of an attempt at the upstream.
pub(crate) fn outcome_of(attempt: &Answered) -> Outcome {
    match attempt {
        // The time to an upgrade is that of a handshake: it is no sample.
        Ok((response, _)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => Outcome::Failed,
        Ok((response, _)) => Outcome::from(ResponseHead::from(response)),
        Err((Failure::Unreached(_) | Failure::NotAccepted | Failure::Refused(_) | Failure::TooLate, _)) => {
            Outcome::Overloaded
        }
        Err(_) => Outcome::Failed,
    }
}

/// Returns the event of a failure, and its answer.
pub(crate) fn answer(failure: &Failure) -> (Event, StatusCode, &'static str) {
    match failure {
        Failure::OfClient(BodyFault::TimedOut) => {
            (Event::BodyTimeout, StatusCode::REQUEST_TIMEOUT, "Request timeout: the body came too slowly.\n")
        }
        Failure::OfClient(BodyFault::TooLarge) => {
            (Event::BodyTooLarge, StatusCode::PAYLOAD_TOO_LARGE, TOO_LARGE)
        }
        Failure::OfClient(BodyFault::Broken) => {
            (Event::BrokenBody, StatusCode::BAD_REQUEST, "Bad request: the body is malformed or cut.\n")
        }
        Failure::Unreached(_) | Failure::Refused(_) => {
            (Event::BadGateway, StatusCode::BAD_GATEWAY, "Bad gateway: the upstream cannot be reached.\n")
        }
        Failure::NotAccepted => (
            Event::ConnectTimeout,
            StatusCode::GATEWAY_TIMEOUT,
            "Gateway timeout: the upstream does not accept connections.\n",
        ),
        Failure::Broken(_) | Failure::Reset(_) | Failure::Mismatched => {
            (Event::BadGateway, StatusCode::BAD_GATEWAY, "Bad gateway: the upstream failed.\n")
        }
        Failure::TooLate => (
            Event::ResponseHeadTimeout,
            StatusCode::GATEWAY_TIMEOUT,
            "Gateway timeout: the upstream does not answer.\n",
        ),
    }
}

/// A request without a body that is on its way, for another attempt. Most are dropped, and a list
/// costs a third of another map.
pub(crate) struct Spare {
    method: Method,
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Full<Bytes>,
}

impl Spare {
    pub(crate) fn of(request: &Request<Sent>) -> Spare {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let mut headers = Vec::with_capacity(request.headers().len());
        headers.extend(request.headers().iter().map(|(name, value)| (name.clone(), value.clone())));
        let body = match request.body() {
            Either::Left(whole) => whole.clone(),
            Either::Right(_) => Full::default(),
        };
        Spare { method, uri, headers, body }
    }

    pub(crate) fn request(self) -> Request<Sent> {
        let mut request = Request::new(Either::Left(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        request.headers_mut().extend(self.headers);
        request
    }
}

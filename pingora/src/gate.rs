//! The gate: its limits, and its calls.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body::Frame;
use pingora_core::{Error, Result};
use pingora_http::ResponseHeader;
use pingora_proxy::Session;
use tollgate::{Places, RateLimiter};
use tollgate_adaptive::{Admission, Enter, InflightLayer, KeyFlight};
use tollgate_http::{BoxRateLimitLayer, DelayLayer, Head, KeyFrom, Verdict};

use crate::context::GateContext;
use crate::outcome::{outcome, status};
use crate::refusal::{answer, without_place};
use crate::response::Spelled;

/// Takes a place of the key of a request. An error is the want of a place.
type EnterKey = Box<dyn Fn(Head<'_>) -> Result<Option<KeyFlight<'static>>, ()> + Send + Sync>;

/// The time for which the body of a refused request is read.
const DRAIN: Duration = Duration::from_secs(5);

/// The time in which the whole body of a request comes from a client that is not slow.
const QUICK: Duration = Duration::from_millis(20);

/// The limits of a proxy. See the [front page](crate).
pub struct Gate {
    rates: BoxRateLimitLayer,
    delay: Option<DelayLayer>,
    places: Option<EnterKey>,
    upstream: Option<InflightLayer>,
    drain: Duration,
}

impl Gate {
    /// Creates a gate on the limits of a layer, from
    /// [`boxed`](tollgate_http::RateLimitLayer::boxed).
    #[must_use]
    pub fn new(rates: BoxRateLimitLayer) -> Gate {
        Gate { rates, delay: None, places: None, upstream: None, drain: DRAIN }
    }

    /// Lets requests over their rates wait for their turn.
    ///
    /// pingora does not watch the client meanwhile, so a client that has left keeps its place in
    /// line, up to the longest wait. Take a short one, and bound
    /// [the waiting requests of a key](tollgate_http::DelayLayer::max_waiting_per_key).
    #[must_use]
    pub fn delay(self, delay: DelayLayer) -> Gate {
        Gate { delay: Some(delay), ..self }
    }

    /// Limits the requests in flight of each key, such as of a
    /// [peer](tollgate_http::ClientIp::peer) over all its connections.
    ///
    /// A request holds its place until its end. Without a place it is refused: 429 with
    /// `Retry-After: 1`, or `UNAVAILABLE` for gRPC. A request without a key needs none. An exempt
    /// request of the layer needs one.
    #[must_use]
    pub fn places<F: KeyFrom + 'static>(self, limiter: RateLimiter<F::Key, Places>, key: F) -> Gate {
        let enter = move |head: Head<'_>| match key.key_from(head) {
            Some(key) => limiter.try_enter_owned(&key).map(Some).map_err(drop),
            None => Ok(None),
        };
        Gate { places: Some(Box::new(enter)), ..self }
    }

    /// Limits the requests in flight to the upstream of all requests. For several upstreams there is
    /// [`enter`](Gate::enter).
    ///
    /// The place is taken before pingora looks into its cache. With a cache leave this out, and call
    /// [`enter`](Gate::enter) in `proxy_upstream_filter`.
    #[must_use]
    pub fn upstream(self, inflight: InflightLayer) -> Gate {
        Gate { upstream: Some(inflight), ..self }
    }

    /// Sets the time for which the body of a refused request is read, 5 seconds by default.
    ///
    /// It bounds no bytes. A connection of HTTP/1 is kept if the body has ended by then, and closed
    /// otherwise.
    #[must_use]
    pub fn drain(self, drain: Duration) -> Gate {
        Gate { drain, ..self }
    }

    /// Decides on a request, in `request_filter`. Returns whether it was answered, as that does.
    ///
    /// A request is counted by each call: call one gate once. A subrequest of pingora's cache
    /// passes: its request was counted.
    ///
    /// # Errors
    ///
    /// The client left before it was answered.
    pub async fn request(&self, session: &mut Session, context: &mut GateContext) -> Result<bool> {
        if session.subrequest_ctx.is_some() {
            return Ok(false);
        }
        let deciding = self.rates.decide(head_of(session));
        let deciding = match &self.delay {
            Some(delay) => deciding.delayed_by(delay),
            None => deciding,
        };
        match deciding.await {
            Verdict::Passed(passed) => {
                if let Some((name, value)) = passed.upstream_field() {
                    tell_upstream(session, name, value)?;
                }
                context.passed = Some(passed);
            }
            Verdict::Refused(refusal) => return self.refuse(session, context, refusal).await,
        }
        if let Some(enter) = &self.places {
            match enter(head_of(session)) {
                Ok(place) => context.place = place.map(Box::new),
                Err(()) => {
                    let refusal = without_place(head_of(session));
                    return self.refuse(session, context, refusal).await;
                }
            }
        }
        match &self.upstream {
            Some(inflight) => self.enter(inflight, session, context).await,
            None => Ok(false),
        }
    }

    /// Takes a place at an upstream, in `request_filter` after [`request`](Gate::request). Returns
    /// whether the request was answered, for want of a place.
    ///
    /// `proxy_upstream_filter` comes after the look into pingora's cache, and returns the opposite:
    /// whether to go on. A second call gives the first place back.
    ///
    /// The refusal is that of the layer: by default 503 with `Retry-After: 1`, or `UNAVAILABLE` for
    /// gRPC. Of the layer's options [`until`](tollgate_adaptive::InflightLayerBuilder::until) does
    /// not apply: the place is held until the request has ended.
    ///
    /// # Errors
    ///
    /// The client left before it was answered.
    pub async fn enter(
        &self,
        inflight: &InflightLayer,
        session: &mut Session,
        context: &mut GateContext,
    ) -> Result<bool> {
        match inflight.decide(head_of(session)) {
            Admission::Exempt => {}
            Admission::Admitted(admitted) => {
                context.admitted = Some(admitted);
                context.slow = (!session.is_body_empty()).then(Instant::now);
            }
            Admission::Refused(refusal) => return self.refuse(session, context, refusal).await,
        }
        Ok(false)
    }

    /// Notes the end of the request's body, in `request_body_filter`: for an adaptive limit of the
    /// [upstream](Gate::upstream) alone.
    ///
    /// The latency of a request whose body took longer than 20 ms is no sample, and nor is that of
    /// any body without this call: the client may have been slow to send it.
    pub fn request_body(&self, end_of_stream: bool, context: &mut GateContext) {
        if end_of_stream && context.slow.is_some_and(|since| since.elapsed() <= QUICK) {
            context.slow = None;
        }
    }

    /// Settles the cost, and adds the fields of the limits, in `response_filter`.
    ///
    /// An informational response is left as it is.
    pub fn response(&self, head: &mut ResponseHeader, context: &mut GateContext) {
        if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS {
            return;
        }
        if let Some(admitted) = context.admitted.take() {
            context.flight = Some(admitted.answer(&**head, context.slow.is_none()));
        }
        if let Some(passed) = context.passed.take() {
            context.meter = passed.respond(&mut Spelled(head));
        }
    }

    /// Counts a part of the body, in `response_body_filter`: for a
    /// [cost](tollgate_http::Cost) by the body alone. Without this call such a request is settled for
    /// its least cost.
    pub fn body(&self, body: &Option<Bytes>, end_of_stream: bool, context: &mut GateContext) {
        let Some(meter) = &mut context.meter else { return };
        if let Some(bytes) = body {
            meter.see(Frame::data(bytes.clone()));
        }
        if end_of_stream {
            meter.end();
            context.meter = None;
        }
    }

    /// Reads the trailers, in `response_trailer_filter`: for a cost by a
    /// [trailer](tollgate_http::Cost::trailer) alone.
    pub fn trailers(&self, trailers: &HeaderMap, context: &mut GateContext) {
        if let Some(mut meter) = context.meter.take() {
            meter.see(Frame::<Bytes>::trailers(trailers.clone()));
        }
    }

    /// Ends a request, in `logging`: gives its places back, and settles its cost.
    ///
    /// Without the head of a response, the error tells the outcome at the upstream. The status that
    /// pingora then answers with is that of [`refund_on`](tollgate_http::LayerBuilder::refund_on)
    /// and [`settle_on`](tollgate_http::LayerBuilder::settle_on).
    pub fn logging(&self, error: Option<&Error>, context: &mut GateContext) {
        let GateContext { passed, admitted, .. } = std::mem::take(context);
        let Some(error) = error else { return };
        if let (Some(admitted), Some(outcome)) = (admitted, outcome(error)) {
            drop(admitted.end(outcome, true));
        }
        if let (Some(passed), Some(status)) = (passed, status(error)) {
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            drop(passed.respond(&mut response));
        }
    }

    /// Answers a request, and gives its places back. A request that was granted its tokens settles
    /// them by the refusal.
    #[cold]
    fn refuse<'a>(
        &self,
        session: &'a mut Session,
        context: &mut GateContext,
        mut refusal: Response<Bytes>,
    ) -> impl Future<Output = Result<bool>> + Send + use<'a> {
        if let Some(passed) = std::mem::take(context).passed {
            drop(passed.respond(&mut refusal));
        }
        let drain = self.drain;
        // In a box, so that the future of a granted request is small.
        Box::pin(async move {
            answer(session, refusal, drain).await.map_err(|error| error.into_down())?;
            Ok(true)
        })
    }
}

/// Returns the head of the request, with the peer of its connection.
#[inline]
fn head_of(session: &Session) -> Head<'_> {
    Head::from(&**session.req_header()).with_peer(peer_of(session))
}

fn peer_of(session: &Session) -> Option<IpAddr> {
    Some(session.client_addr()?.as_inet()?.ip())
}

/// Notes in the request whether it is over a limit. A client's own claim is removed.
#[cold]
fn tell_upstream(session: &mut Session, name: HeaderName, value: Option<HeaderValue>) -> Result<()> {
    let head = session.req_header_mut();
    head.remove_header(&name);
    value.map_or(Ok(()), |value| head.insert_header(name, value))
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("rates", &self.rates)
            .field("upstream", &self.upstream)
            .field("drain", &self.drain)
            .finish_non_exhaustive()
    }
}

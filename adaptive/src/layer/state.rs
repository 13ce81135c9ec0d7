//! The state of a layer of requests in flight, and a request that it has admitted.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::header::HeaderName;

use super::stats::{InflightCounters, InflightLayerStats, count};
use super::unavailable::Unavailable;
use crate::count::priority::Priority;
use crate::gate::flight::OwnedFlight;
use crate::gate::inflight::Inflight;
use crate::gate::overloaded::Overloaded;
use crate::signals::outcome::Outcome;
use tollgate_http::{Exempt, Head, ResponseHead};

/// The end of a request's place in an [`InflightLayer`](crate::InflightLayer).
///
/// The latency ends with the head of the response in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Until {
    /// The place ends with the head of the response. For bodies that are complete by then.
    #[default]
    Head,
    /// The place ends when the body ends or is dropped. For bodies that keep the inner service
    /// busy.
    Body,
}

pub(super) type ChoosePriority = Box<dyn Fn(Head<'_>) -> Priority + Send + Sync>;
pub(super) type Classify = Box<dyn Fn(ResponseHead<'_>) -> Outcome + Send + Sync>;
pub(super) type RejectUnavailable = Box<dyn Fn(&Unavailable<'_>) -> Response<Bytes> + Send + Sync>;

/// The parts of a layer that its services share.
pub(crate) struct InflightState {
    pub(super) inflight: Arc<Inflight>,
    pub(super) name: String,
    pub(super) priority: Option<ChoosePriority>,
    pub(super) classify: Option<Classify>,
    /// The outcome of an error of the inner service.
    pub(super) on_error: Outcome,
    pub(super) until: Until,
    pub(super) exempt: Vec<Exempt>,
    pub(super) reject: Option<RejectUnavailable>,
    pub(super) counters: Arc<InflightCounters>,
}

/// The decision on a request, from [`InflightLayer::decide`](crate::InflightLayer::decide).
#[derive(Debug)]
#[must_use = "an admitted request that is dropped leaves"]
pub enum Admission {
    /// No limit applies.
    Exempt,
    /// The request has a place.
    Admitted(Admitted),
    /// The response to send in place of another one. Its body is whole.
    Refused(Response<Bytes>),
}

impl InflightState {
    /// Decides on a request, without a wait.
    pub(super) fn admit(self: &Arc<Self>, head: Head<'_>) -> Admission {
        if self.exempt.iter().any(|exempt| exempt.applies(head)) {
            count(&self.counters.skipped);
            return Admission::Exempt;
        }
        let chosen = self.priority.as_ref().map(|priority| priority(head));
        let priority = chosen.unwrap_or_default();
        // Without priorities each request may use all of the limit.
        match self.enter(chosen.unwrap_or(Priority::Critical), priority) {
            Ok(admitted) => Admission::Admitted(admitted),
            Err(overloaded) => Admission::Refused(self.refuse(&Unavailable::new(head, priority, overloaded))),
        }
    }

    /// Takes a place by a priority, and counts it by another one.
    pub(super) fn enter(
        self: &Arc<Self>,
        priority: Priority,
        counted: Priority,
    ) -> Result<Admitted, Overloaded> {
        let flight = self.inflight.try_enter_owned(priority);
        let counts = if flight.is_ok() { &self.counters.admitted } else { &self.counters.refused };
        count(&counts[counted as usize]);
        Ok(Admitted { flight: Some(flight?), state: self.clone() })
    }

    #[cold]
    fn refuse(&self, refusal: &Unavailable<'_>) -> Response<Bytes> {
        let mut response = self.reject.as_ref().map_or_else(|| refusal.bare(), |reject| reject(refusal));
        refusal.complete(&mut response);
        response
    }

    pub(super) fn stats(&self) -> InflightLayerStats {
        self.counters.stats(&self.name, &self.inflight)
    }
}

/// An admitted request whose response has no head yet, from
/// [`InflightLayer::decide`](crate::InflightLayer::decide). A drop leaves its place, and counts as
/// given up.
#[must_use = "a request that is dropped leaves"]
pub struct Admitted {
    flight: Option<OwnedFlight>,
    state: Arc<InflightState>,
}

impl Admitted {
    /// Notes the head of a response, by the layer's
    /// [classes](crate::InflightLayerBuilder::classify). Returns the place, which is held until it
    /// is dropped.
    ///
    /// `is_sample` is that of [`end`](Admitted::end).
    #[must_use = "a flight that is dropped leaves"]
    pub fn answer<'a>(self, head: impl Into<ResponseHead<'a>>, is_sample: bool) -> OwnedFlight {
        let head = head.into();
        let classify = self.state.classify.as_ref();
        let outcome = classify.map_or_else(|| head.into(), |classify| classify(head));
        self.end(outcome, is_sample)
    }

    /// Notes the head of a response. Returns the place if the body is to hold it.
    pub(super) fn until_end<B>(self, response: &Response<B>) -> Option<OwnedFlight> {
        let until = self.state.until;
        let flight = self.answer(response, true);
        (until == Until::Body).then_some(flight)
    }

    /// Notes an error of the inner service.
    pub(super) fn error(self) {
        let outcome = self.state.on_error;
        drop(self.end(outcome, true));
    }

    /// Counts an outcome. Returns the place, which is held until it is dropped.
    ///
    /// `is_sample` is false if the latency of an answer tells nothing of the server, such as after
    /// a client that was slow to send its request: the limit then takes no notice.
    #[must_use = "a flight that is dropped leaves"]
    pub fn end(mut self, outcome: Outcome, is_sample: bool) -> OwnedFlight {
        let mut flight = self.flight.take().expect("no other call takes it");
        let counters = &self.state.counters;
        count(&counters.outcomes[outcome as usize]);
        let is_answer = outcome == Outcome::Answered;
        let noted = if is_answer && !is_sample { Outcome::Failed } else { outcome };
        if let Some(latency) = flight.note(noted)
            && is_answer
            && is_sample
        {
            counters.times.note(latency);
        }
        flight
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if self.flight.is_some() {
            count(&self.state.counters.given_up);
        }
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").finish_non_exhaustive()
    }
}

/// The outcome of a response, as a layer without
/// [`classify`](crate::InflightLayerBuilder::classify) takes it.
///
/// | response | `grpc-status` in the head | outcome |
/// |---|---|---|
/// | 429, 503, 504 | `DEADLINE_EXCEEDED`, `RESOURCE_EXHAUSTED`, `UNAVAILABLE` | overloaded |
/// | other 5xx | `UNKNOWN`, `INTERNAL`, `DATA_LOSS` | failed |
/// | any other | any other | answered |
impl From<ResponseHead<'_>> for Outcome {
    fn from(head: ResponseHead<'_>) -> Outcome {
        const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
        match (head.status.as_u16(), head.headers.get(GRPC_STATUS).map(|code| code.as_bytes())) {
            (429 | 503 | 504, _) | (_, Some(b"4" | b"8" | b"14")) => Outcome::Overloaded,
            (500..=599, _) | (_, Some(b"2" | b"13" | b"15")) => Outcome::Failed,
            _ => Outcome::Answered,
        }
    }
}

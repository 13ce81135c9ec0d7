//! The state of a layer of requests in flight, and a request that it has admitted.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::header::HeaderName;

use super::inflight_stats::{InflightCounters, InflightLayerStats};
use super::settle::Answer;
use super::stats::count;
use super::unavailable::Unavailable;
use crate::http::{Exempt, Head, grpc};
use crate::inflight::gate::{Inflight, OwnedFlight};
use crate::inflight::outcome::Outcome;
use crate::inflight::priority::Priority;

/// The end of a request's place in an [`InflightLayer`](super::InflightLayer).
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
pub(super) type Classify = Box<dyn Fn(Answer<'_>) -> Outcome + Send + Sync>;
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
    pub(super) counters: InflightCounters,
}

/// The decision on a request.
pub(super) enum Admission {
    /// No limit applies.
    Exempt,
    Admitted(Admitted),
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
        match self.inflight.try_enter_owned(chosen.unwrap_or(Priority::Critical)) {
            Ok(flight) => {
                count(&self.counters.admitted[priority as usize]);
                Admission::Admitted(Admitted { flight: Some(flight), state: self.clone() })
            }
            Err(overloaded) => {
                count(&self.counters.refused[priority as usize]);
                Admission::Refused(self.refuse(&Unavailable::new(head, priority, overloaded)))
            }
        }
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

/// An admitted request whose response has no head yet. A drop leaves its place.
pub(super) struct Admitted {
    flight: Option<OwnedFlight>,
    state: Arc<InflightState>,
}

impl Admitted {
    /// Notes the head of a response. Returns the place if the body is to hold it.
    pub(super) fn answer<B>(mut self, response: &Response<B>) -> Option<OwnedFlight> {
        let answer = Answer {
            status: response.status(),
            headers: response.headers(),
            extensions: response.extensions(),
        };
        let classify = self.state.classify.as_ref();
        let outcome = classify.map_or_else(|| answer.outcome(), |classify| classify(answer));
        let flight = self.end(outcome);
        flight.filter(|_| self.state.until == Until::Body)
    }

    /// Notes an error of the inner service.
    pub(super) fn error(mut self) {
        self.end(self.state.on_error);
    }

    /// Notes an outcome, and returns the place.
    fn end(&mut self, outcome: Outcome) -> Option<OwnedFlight> {
        let mut flight = self.flight.take()?;
        let counters = &self.state.counters;
        count(&counters.outcomes[outcome as usize]);
        if let Some(latency) = flight.note(outcome)
            && outcome == Outcome::Answered
        {
            counters.times.note(latency);
        }
        Some(flight)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if self.flight.is_some() {
            count(&self.state.counters.given_up);
        }
    }
}

impl Answer<'_> {
    /// Returns the outcome of a response, as a layer without
    /// [`classify`](super::InflightLayerBuilder::classify) takes it.
    ///
    /// | response | `grpc-status` in the head | outcome |
    /// |---|---|---|
    /// | 429, 503, 504 | `DEADLINE_EXCEEDED`, `RESOURCE_EXHAUSTED`, `UNAVAILABLE` | overloaded |
    /// | other 5xx | `UNKNOWN`, `INTERNAL`, `DATA_LOSS` | failed |
    /// | any other | any other | answered |
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        const GRPC_STATUS: HeaderName = grpc::STATUS;
        match (self.status.as_u16(), self.headers.get(GRPC_STATUS).map(|code| code.as_bytes())) {
            (429 | 503 | 504, _) | (_, Some(b"4" | b"8" | b"14")) => Outcome::Overloaded,
            (500..=599, _) | (_, Some(b"2" | b"13" | b"15")) => Outcome::Failed,
            _ => Outcome::Answered,
        }
    }
}

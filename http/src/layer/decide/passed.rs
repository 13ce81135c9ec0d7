//! The end of a decision: a request that is passed on, or a refusal.

use std::fmt;

use bytes::Bytes;
use http::Response;
use http::header::{HeaderName, HeaderValue};

use super::after::After;
use super::decision::Decision;
use super::settle::Meter;
use crate::response::head::ResponseMut;

/// The decision on a request, from [`RateLimitLayer::decide`](crate::RateLimitLayer::decide).
#[derive(Debug)]
#[must_use = "a refused request is passed on unless the verdict is obeyed"]
pub enum Verdict {
    /// The request is passed on.
    Passed(Passed),
    /// The response to send in place of another one. Its body is whole.
    Refused(Response<Bytes>),
}

/// Of [`LayerBuilder::tell_upstream`](crate::LayerBuilder::tell_upstream).
const EXCEEDED: HeaderName = HeaderName::from_static("x-ratelimit-exceeded");

/// A request that the layer passes on, from a [`Verdict`].
///
/// [`respond`](Passed::respond) does the layer's work on the response. A `Passed` that is dropped
/// without `respond` has spent its tokens, even where
/// [`refund_on`](crate::LayerBuilder::refund_on) or [`settle_on`](crate::LayerBuilder::settle_on)
/// would give some back.
#[must_use = "a response without `respond` reports no limit, and settles no cost"]
pub struct Passed {
    pub(crate) decision: Option<Decision>,
    pub(crate) after: After,
    /// Whether the upstream is told of a request over a limit.
    pub(crate) tells: bool,
}

impl Passed {
    /// Returns the decision; `None` if no limit applied.
    ///
    /// It is a refusal where a limit in shadow mode would have refused the request. A clone of it
    /// in the request's extensions keeps another layer from counting the request again.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// Returns the field that the request to the upstream has, in place of any of this name that
    /// the client sent. `None` as its value is no field.
    ///
    /// It is `None` unless the layer [tells the upstream](crate::LayerBuilder::tell_upstream).
    #[must_use]
    pub fn upstream_field(&self) -> Option<(HeaderName, Option<HeaderValue>)> {
        upstream_field(self.tells, self.decision.as_ref())
    }

    /// Settles the cost by the head of a response, and adds the fields that report the limits.
    ///
    /// The first response of the request counts, so an informational one is not for this. Returns
    /// the meter of the body if the [cost](crate::Cost) depends on it: it sees each frame, as by
    /// [`ResponseBody::metered`](crate::ResponseBody::metered).
    #[must_use = "a body without its meter costs the estimate"]
    pub fn respond(mut self, response: &mut impl ResponseMut) -> Option<Box<Meter>> {
        self.after.act(response)
    }
}

/// Returns the field for the upstream; `None` if the layer tells it nothing.
#[inline]
pub(crate) fn upstream_field(
    tells: bool,
    decision: Option<&Decision>,
) -> Option<(HeaderName, Option<HeaderValue>)> {
    if !tells {
        return None;
    }
    let over = decision.is_some_and(|decision| decision.result().is_err());
    Some((EXCEEDED, over.then(|| HeaderValue::from_static("1"))))
}

impl fmt::Debug for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passed").field("decision", &self.decision).finish_non_exhaustive()
    }
}

//! The state of a request.

use std::fmt;
use std::time::Instant;

use tollgate_adaptive::{Admitted, KeyFlight, OwnedFlight};
use tollgate_http::{Decision, Meter, Passed};

/// The state of a request at a [`Gate`](crate::Gate), for the context of a proxy.
///
/// A drop gives the places back. The tokens of a request that is dropped are spent.
#[derive(Default)]
pub struct GateContext {
    /// The request, until its response.
    pub(crate) passed: Option<Passed>,
    /// The meter of the body, if the cost depends on it.
    pub(crate) meter: Option<Box<Meter>>,
    /// The place of the key. In a box, as it is large.
    pub(crate) place: Option<Box<KeyFlight<'static>>>,
    /// The place at the upstream, until the head of the response, and then until the end.
    pub(crate) admitted: Option<Admitted>,
    pub(crate) flight: Option<OwnedFlight>,
    /// The arrival of a request with a body, unless all of it came soon.
    pub(crate) slow: Option<Instant>,
}

impl GateContext {
    /// Returns the decision of the rate limits until the head of the response; `None` if no limit
    /// applied.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        self.passed.as_ref()?.decision()
    }
}

impl fmt::Debug for GateContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateContext").field("decision", &self.decision()).finish_non_exhaustive()
    }
}

//! A limit whose decision is there already, as one of several limits.

use crate::bucket::receipt::Receipt;
use crate::limiter::all_of::TakeOne;
use crate::time::clock::{Clock, Moment};
use crate::word::decision::{Denied, Granted};

/// The decision of a limit, on the clock of its limiter.
pub(crate) struct DecidedLimit<'a> {
    pub(crate) decision: Result<Granted, Denied>,
    pub(crate) clock: &'a Clock,
}

impl TakeOne for DecidedLimit<'_> {
    fn clock(&self) -> &Clock {
        self.clock
    }

    fn look(&self, _: Moment) -> Result<(), Denied> {
        self.decision.map(drop)
    }

    fn take(&self) -> Result<(Granted, Receipt), Denied> {
        self.decision.map(|granted| (granted, Receipt::void(Moment(0))))
    }

    /// The layer gives the tokens back with the request.
    fn undo(&self, _: &Receipt) {}
}

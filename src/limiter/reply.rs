//! The reply of a limiter that a layer has asked, as one of several limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::bucket::receipt::Receipt;
use crate::limiter::all_of::{TakeOne, Tokens};
use crate::limiter::place::Place;
use crate::time::clock::{Clock, Moment};
use crate::word::decision::{Denied, Granted};
use crate::word::plan::PlanTerms;

/// A reply, with the tokens that it granted.
///
/// The tokens are there before the other limits decide. If one of these refuses, or the request is
/// dropped, they are given back: when the last reference is dropped, unless a take has used them.
///
/// # Orderings
///
/// Relaxed: one request has the flag, and its task reads and writes it in turn. The drop comes
/// after all of that, by the count of references.
pub(crate) struct Reply {
    result: Result<Granted, Denied>,
    plan: Option<PlanTerms>,
    used: AtomicBool,
    refund: Box<dyn Fn() + Send + Sync>,
}

impl Reply {
    /// `refund` gives the granted tokens back.
    pub(crate) fn new(
        result: Result<Granted, Denied>,
        plan: Option<PlanTerms>,
        refund: impl Fn() + Send + Sync + 'static,
    ) -> Reply {
        Reply { result, plan, used: AtomicBool::new(false), refund: Box::new(refund) }
    }

    /// Returns a refusal that took nothing.
    pub(crate) fn refused(denied: Denied) -> Reply {
        Reply::new(Err(denied), None, || {})
    }

    /// Returns the plan of the request.
    pub(crate) fn plan(&self) -> Option<PlanTerms> {
        self.plan
    }

    /// Uses the tokens, if they were granted.
    pub(crate) fn take(&self) -> Result<Granted, Denied> {
        self.used.store(self.result.is_ok(), Ordering::Relaxed);
        self.result
    }

    /// Uses the tokens. A dropped place gives them back.
    pub(crate) fn place(self: &Arc<Self>) -> Result<(Granted, Place), Denied> {
        let granted = self.take()?;
        let reply = self.clone();
        Ok((granted, Place::now(move || reply.leave())))
    }

    /// Uses the tokens no longer.
    fn leave(&self) {
        self.used.store(false, Ordering::Relaxed);
    }

    /// Returns the reply as one of several limits, on the clock of its limiter.
    pub(crate) fn on<'a>(&'a self, clock: &'a Clock) -> impl Tokens + 'a {
        Replied { reply: self, clock }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.result.is_ok() && !*self.used.get_mut() {
            (self.refund)();
        }
    }
}

/// A limit whose decision is there already.
struct Replied<'a> {
    reply: &'a Reply,
    clock: &'a Clock,
}

impl TakeOne for Replied<'_> {
    fn clock(&self) -> &Clock {
        self.clock
    }

    fn look(&self, _: Moment) -> Result<(), Denied> {
        self.reply.result.map(drop)
    }

    fn take(&self) -> Result<(Granted, Receipt), Denied> {
        self.reply.take().map(|granted| (granted, Receipt::void(Moment(0))))
    }

    fn undo(&self, _: &Receipt) {
        self.reply.leave();
    }
}

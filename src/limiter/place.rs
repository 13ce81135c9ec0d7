//! Places in line that own their limiter, for the layer of tower.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Mutex;
use std::task::Waker;
use std::time::Duration;

use crate::bucket::engine::Engine;
use crate::bucket::line::caller_line::LineTurn;
use crate::bucket::receipt::Settle;
use crate::bucket::reservation::Ledger;
use crate::limiter::all_of::TakeOne;
use crate::limiter::asked::{Patience, Target};
use crate::limiter::hook::DecisionHook;
use crate::limiter::options::CallOptions;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::rule::Rule;
use crate::limiter::ticket::{LineTicket, Promise};
use crate::limiter::waiting::{AnyRequest, NO_LIMIT, NextStep, Waiter, WaitsInLine};
use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted};
use crate::word::plan::PlanTerms;

/// Tokens that are there, or that are earned while their request waits in line.
///
/// A dropped place gives its tokens back: all that are not due yet, and those that were there at
/// once as a dropped [`Reservation`](crate::Reservation) does.
pub(crate) struct Place(PlaceKind);

enum PlaceKind {
    Waits {
        /// No thread locks it: it makes a place `Sync`.
        waiter: Box<Mutex<Waiter<AnyRequest<'static>>>>,
        timer: Duration,
        told: Duration,
    },
    Now {
        cancel: Box<dyn FnOnce() + Send + Sync>,
    },
    Used,
}

impl Place {
    /// Returns a place whose tokens are there now.
    pub(crate) fn now(cancel: impl FnOnce() + Send + Sync + 'static) -> Place {
        Place(PlaceKind::Now { cancel: Box::new(cancel) })
    }

    fn in_line(request: AnyRequest<'static>, ticket: LineTicket) -> Place {
        let [timer, told] = [ticket.waits.wait, ticket.waits.told].map(Duration::from_nanos);
        Place(PlaceKind::Waits {
            waiter: Box::new(Mutex::new(Waiter::in_line(request, ticket))),
            timer,
            told,
        })
    }

    /// Returns the longest time until the tokens are there, from the beginning.
    pub(crate) fn told(&self) -> Duration {
        match &self.0 {
            PlaceKind::Waits { told, .. } => *told,
            _ => Duration::ZERO,
        }
    }

    /// Returns the first setting of the place's timer, if it waits.
    pub(crate) fn first_timer(&self) -> Option<Duration> {
        match &self.0 {
            PlaceKind::Waits { timer, .. } => Some(*timer),
            _ => None,
        }
    }

    /// Returns the next step of a place that waits. `fired`: its timer is over.
    pub(crate) fn poll(&mut self, fired: bool, waker: &Waker) -> Option<NextStep> {
        let PlaceKind::Waits { waiter, .. } = &mut self.0 else { return None };
        let step = waiter.get_mut().ok()?.poll(fired, waker);
        if let NextStep::Done(_) = step {
            self.0 = PlaceKind::Used;
        }
        Some(step)
    }

    /// Uses the tokens.
    pub(crate) fn commit(mut self) {
        self.0 = PlaceKind::Used;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let PlaceKind::Now { cancel } = std::mem::replace(&mut self.0, PlaceKind::Used) {
            cancel();
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("told", &self.told()).finish_non_exhaustive()
    }
}

/// A request that owns its limiter and its key. Without a key it is for the bucket that all such
/// requests share.
struct OwnedRequest<K, R: Rule, S> {
    limiter: RateLimiter<K, R, S>,
    key: Option<K>,
    plan: Option<PlanTerms>,
    n: u64,
    max_waiting: usize,
}

impl<K, R: Rule, S> OwnedRequest<K, R, S> {
    fn options(&self) -> CallOptions<'_> {
        CallOptions { plan: self.plan.as_ref(), now: None }
    }
}

impl<K, R, S> WaitsInLine for OwnedRequest<K, R, S>
where
    K: Hash + Eq + Clone + Send + Sync,
    R: Rule,
    S: BuildHasher + Send + Sync,
{
    fn join(&self, max_wait: u64, waker: &Waker) -> Result<Promise, Denied> {
        let patience = Patience { n: self.n, max_wait, max_waiting: self.max_waiting };
        match &self.key {
            None => self.limiter.shared().bucket().join(patience, self.options(), waker),
            Some(key) => self.limiter.key(key).bucket().join(patience, self.options(), waker),
        }
    }

    fn look(&self, ticket: &LineTicket, fired: bool, waker: &Waker) -> (LineTurn, u64) {
        self.limiter.inner.keyspace.look_at_turn(ticket.line, &ticket.waits, fired, waker)
    }

    fn leave(&self, ticket: &LineTicket) {
        self.limiter.inner.keyspace.leave_line(ticket.line, &ticket.waits);
    }

    fn granted(&self, ticket: &LineTicket) -> Granted {
        self.limiter.inner.keyspace.granted_in_line(ticket.line, ticket.n)
    }

    fn engine(&self) -> &Engine {
        &self.limiter.inner.keyspace.engine
    }

    fn hook(&self) -> &DecisionHook {
        &self.limiter.inner.hook
    }

    /// The layer adds no jitter to its waits.
    fn jitter(&self) -> Jitter {
        Jitter::NONE
    }

    fn patience(&self) -> u64 {
        NO_LIMIT
    }
}

impl<K, R, S> RateLimiter<K, R, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    R: Rule,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Takes `n` tokens of a key, or a place in its line beside at most `max_waiting` others, if
    /// they come within `max_wait` nanoseconds. Without a key the bucket is the shared one.
    pub(crate) fn place_of(
        &self,
        key: Option<&K>,
        plan: Option<&PlanTerms>,
        n: u64,
        (max_wait, max_waiting): (u64, usize),
    ) -> Result<(Granted, Place), Denied> {
        let request =
            OwnedRequest { limiter: self.clone(), key: key.cloned(), plan: plan.copied(), n, max_waiting };
        match request.join(max_wait, Waker::noop())? {
            Promise::Granted(granted, receipt) => {
                let limiter = self.clone();
                let cancel = move || {
                    limiter.inner.keyspace.settle(&receipt, Settle::Cancel(&receipt));
                };
                Ok((granted, Place::now(cancel)))
            }
            Promise::Later(_) => unreachable!("a layer keeps no part"),
            Promise::Waits(ticket) => {
                let granted = request.granted(&ticket);
                Ok((granted, Place::in_line(Box::new(request), ticket)))
            }
        }
    }

    /// Takes `n` tokens of a key now, for a limiter without a debt.
    pub(crate) fn place_now(
        &self,
        key: &K,
        plan: Option<&PlanTerms>,
        n: u64,
    ) -> Result<(Granted, Place), Denied> {
        let (granted, receipt) = TakeOne::take(&self.key(key).n(n).under_terms(plan))?;
        let (limiter, key) = (self.clone(), key.clone());
        // The plan is in the receipt.
        Ok((granted, Place::now(move || TakeOne::undo(&limiter.key(&key), &receipt))))
    }
}

//! The parts of a limiter that do not depend on its keys.

use std::fmt::{Arguments, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tollgate::{AnyRule, Clock, Denied, Granted, Moment, Reason};

use super::counters::{Counters, Outcome};
use super::report::{Report, Reported};
use super::slot::Slot;
use super::slot::key_state::KeyState;
use super::sourced::{Source, Sourced};
use crate::lease::lease_time::nanos;
use crate::lease::terms::Terms;
use crate::lease::tokens::Lease;
use crate::outage::fallback::{Fallback, FallbackBucket};
use crate::outage::policy::OnOutage;
use crate::store::breaker::{Change, Pauses};
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::lanes::{Lane, Lanes};
use crate::store::op::Store;
use crate::store::random::random;

/// A decision of a shared limit, with its source.
pub type SharedDecision = Result<Sourced<Granted>, Sourced<Denied>>;

pub(crate) struct Shared<S> {
    pub(crate) store: S,
    pub(crate) name: String,
    pub(crate) clock: Clock,
    pub(crate) origin: Moment,
    pub(crate) deadline: Duration,
    pub(crate) on_outage: OnOutage,
    /// The pauses before the first probe of a lane that does not answer, and before the last.
    pub(crate) probes: (Duration, Duration),
    pub(crate) lanes: Lanes,
    /// The tokens of all keys without room, while the store does not answer.
    pub(crate) overflow: KeyState,
    pub(crate) counters: Counters,
    /// The requests that may wait for an answer.
    pub(crate) waiting: Arc<Semaphore>,
    /// The process that built the limiter.
    pub(crate) process: u32,
    /// The runtime of the background task and of the calls.
    pub(crate) runtime: Handle,
    /// Tells the background task that a call is late: its lane may begin another one.
    pub(crate) freed: Notify,
    /// It has no permits, and is closed with the limiter.
    pub(crate) closed: Semaphore,
    pub(crate) reported: Reported,
    /// The microseconds by which the clock of the store is ahead of the local one: its time since
    /// 1970, less the local time since the origin. It wraps, and is 0 before the first answer.
    pub(crate) store_ahead_us: AtomicU64,
}

impl<S> Shared<S> {
    pub(crate) fn now(&self) -> u64 {
        nanos(self.clock.now().since(self.origin))
    }

    /// Returns a slot of a key under terms.
    pub(crate) fn slot(&self, key: Arc<KeyState>, has_room: bool, terms: Arc<Terms>) -> Slot {
        let lease = Lease::new(&terms, self.clock.clone(), self.origin);
        Slot::new(key, has_room, terms, lease)
    }

    /// Tells whether this process is a child of the one that built the limiter. The background task
    /// is not in it, so the limiter is closed here.
    pub(crate) fn has_forked(&self) -> bool {
        let has_forked = std::process::id() != self.process;
        if has_forked && !self.closed.is_closed() {
            self.report(
                Report::NoRuntime,
                format_args!("the process has forked since the limiter was built"),
            );
            self.closed.close();
        }
        has_forked
    }

    pub(crate) fn pauses(&self) -> Pauses {
        let (first, last) = self.probes;
        Pauses { first, last, jitter: jitter() }
    }

    pub(crate) fn count_call(&self, outcome: Outcome, latency: Duration) {
        self.counters.count_call(outcome, latency);
        #[cfg(feature = "metrics")]
        {
            let (limiter, outcome) = (self.name.clone(), format!("{outcome:?}").to_lowercase());
            metrics::histogram!("tollgate_store_call_seconds", "limiter" => limiter, "outcome" => outcome)
                .record(latency.as_secs_f64());
        }
    }

    /// Notes the outcome of a call, and reports a change of its lane's breaker.
    pub(crate) fn note(&self, lane: &Lane, succeeded: bool, why: &dyn Display) {
        let of = match self.lanes.len() {
            1 => "the store".to_owned(),
            _ => format!("lane {} of the store", lane.number),
        };
        match self.lanes.note(lane, succeeded, &self.pauses()) {
            Some(Change::Opened) => self.report(Report::Outage, format_args!("{of} does not answer: {why}")),
            Some(Change::Closed) => self.report(Report::End, format_args!("{of} answers again")),
            None => {}
        }
    }

    pub(crate) fn report(&self, kind: Report, text: Arguments<'_>) {
        self.reported.report(kind, &self.name, self.on_outage, text);
    }

    /// Reports an error of the store, if it is permanent.
    pub(crate) fn report_permanent(&self, error: &StoreError) {
        if error.kind() == StoreErrorKind::Permanent {
            self.report(Report::Permanent, format_args!("{error}"));
        }
    }

    pub(crate) fn granted(&self, granted: Granted, source: Source) -> SharedDecision {
        self.counters.count(source);
        Ok(Sourced::new(granted, source))
    }

    pub(crate) fn denied(&self, denied: Denied, source: Source) -> SharedDecision {
        self.counters.count(source);
        self.counters.denied.fetch_add(1, Relaxed);
        Err(Sourced::new(denied, source))
    }
}

impl<S: Store> Shared<S> {
    /// Returns the present lane of a key.
    pub(crate) fn lane(&self, key: &[u8]) -> Arc<Lane> {
        self.lanes.lane(self.store.lane(key))
    }

    /// Tells whether the store does not answer for a key.
    #[inline]
    pub(crate) fn is_away(&self, key: &[u8]) -> bool {
        self.lanes.is_any_open() && self.lane(key).breaker.is_open()
    }

    /// Notes a decision of a rule that is open or shut.
    #[cold]
    pub(crate) fn at_gate(&self, decided: Result<Granted, Denied>) -> SharedDecision {
        match decided {
            Ok(granted) => self.granted(granted, Source::Lease),
            Err(denied) => self.denied(denied, Source::Lease),
        }
    }

    /// Decides by the policy of an outage.
    #[cold]
    pub(crate) fn without_store(&self, slot: &Slot, n: u64) -> SharedDecision {
        match self.on_outage {
            OnOutage::Allow => {
                self.spend(slot, n);
                self.granted(Granted::from_parts(n, 0, Duration::ZERO), Source::FailOpen)
            }
            OnOutage::Deny => {
                let lane = self.lane(&slot.key.stored);
                let wait = lane.breaker.until_probe(self.lanes.now()).unwrap_or_default().max(lane.rtt());
                let denied = Denied::from_parts(Reason::Unavailable, n, 0, Some(wait));
                self.denied(denied, Source::FailOpen)
            }
            OnOutage::Local { share } => match self.fall_back(slot, n, share) {
                Ok(granted) => {
                    self.spend(slot, n);
                    self.granted(granted, Source::Fallback)
                }
                Err(denied) => self.denied(denied, Source::Fallback),
            },
        }
    }

    fn fall_back(&self, slot: &Slot, n: u64, share: f64) -> Result<Granted, Denied> {
        let now = self.now();
        let key = if slot.has_room { &slot.key } else { &self.overflow };
        let quota = match slot.terms.rule {
            AnyRule::Quota(quota) => quota,
            AnyRule::Window(window) => {
                return self.fall_back_in_window((key, &slot.terms), window, n, share);
            }
        };
        let new = || Fallback::Bucket(FallbackBucket::new(key.share(&slot.terms, share, now), now));
        match key.fallback().get_or_insert_with(new) {
            Fallback::Bucket(bucket) => bucket.take(n, quota, share, now),
            Fallback::Count(_) => unreachable!("a limiter has one law"),
        }
    }
}

/// Returns a random number from 0 to 1.
fn jitter() -> f64 {
    random() as f64 / u64::MAX as f64
}

//! One call of the store, for a batch of keys.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, timeout};
use tollgate::Quota;

use super::counters::Outcome;
use super::shared::Shared;
use super::slot::Slot;
use super::slot::calls::Part;
use crate::law::amount::{Amount, StoreAnswer};
use crate::law::spec::Spec;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::lanes::Lane;
use crate::store::op::{Op, Store};

/// The most keys of a call.
pub(crate) const MAX_BATCH: usize = 64;

/// The most calls under way at a time, but for late ones.
pub(crate) const MAX_CALLS: usize = 4;

/// The longest wait for an answer after the deadline.
const GIVE_UP: Duration = Duration::from_secs(5);

/// The keys of a call that has begun, with their parts of it. A drop before the answer ends the
/// call with an unknown effect.
pub(crate) struct Batch<S> {
    shared: Arc<Shared<S>>,
    lane: Arc<Lane>,
    slots: Vec<(Arc<Slot>, Part)>,
}

impl<S: Store> Batch<S> {
    /// Begins a call for the keys of a lane that have something to ask for; `None` if there are
    /// none.
    pub(crate) fn begin(shared: &Arc<Shared<S>>, lane: Arc<Lane>, slots: Vec<Arc<Slot>>) -> Option<Batch<S>> {
        let begun = |slot: Arc<Slot>| {
            let count = slot.terms.window().and_then(|window| shared.spec_of(window));
            slot.begin(count).map(|part| (slot, part))
        };
        let slots: Vec<_> = slots.into_iter().filter_map(begun).collect();
        (!slots.is_empty()).then(|| Batch { shared: shared.clone(), lane, slots })
    }

    /// Calls the store. Returns the keys that have more to ask for.
    ///
    /// At the deadline the requests stop waiting, and the call gives its `permit` back. The call
    /// goes on: tokens of a late answer are kept or given back.
    pub(crate) async fn call(mut self, permit: OwnedSemaphorePermit) -> Vec<Arc<Slot>> {
        let (shared, lane) = (self.shared.clone(), self.lane.clone());
        let keys = self.slots.clone();
        let mut ops: Vec<Op<'_>> =
            keys.iter().map(|(slot, part)| Op::new(&slot.key.stored, part.law, part.amount)).collect();
        let sent = shared.now();
        let call = async {
            let called = acquire(&shared.store, &mut ops).await;
            (called, is_answered(&ops))
        };
        let on_late = || {
            keys.iter().for_each(|(slot, _)| slot.give_up());
            drop(permit);
            shared.freed.notify_one();
        };
        let failed = shared.run(&lane, keys.len() as u64, call, on_late).await;
        let answers: Vec<_> = ops.iter().map(|op| op.answer).collect();
        if let Some(answer) = answers.iter().find(|answer| answer.now_us > 0 && answer.edge_us > 0) {
            shared.note_time(*answer);
        }
        let more = self.end(answers, sent, failed);
        if failed == Some(StoreErrorKind::Permanent) {
            shared.suspect(&lane).await;
        }
        more
    }

    /// Ends the call. If it failed, only the keys whose answers have a time were decided.
    fn end(
        &mut self,
        answers: Vec<StoreAnswer>,
        sent: u64,
        failed: Option<StoreErrorKind>,
    ) -> Vec<Arc<Slot>> {
        let rtt = self.lane.rtt();
        let mut more = Vec::new();
        for ((slot, part), answer) in std::mem::take(&mut self.slots).into_iter().zip(answers) {
            let failed = failed.filter(|_| answer.now_us == 0);
            let has_more = match failed {
                None => slot.end(part, part.law.bound(part.amount, answer), sent, rtt),
                Some(kind) => {
                    let lost = kind == StoreErrorKind::Unknown;
                    let tokens = if lost { u64::try_from(part.amount.max).unwrap_or(0) } else { 0 };
                    self.shared.counters.lost.fetch_add(tokens, Relaxed);
                    slot.fail(part)
                }
            };
            self.shared.count_left(&slot);
            if has_more {
                more.push(slot);
            }
        }
        more
    }
}

impl<S> Drop for Batch<S> {
    fn drop(&mut self) {
        for (slot, part) in self.slots.drain(..) {
            slot.fail(part);
            self.shared.count_left(&slot);
        }
    }
}

/// Calls the store. A permanent error of all keys may be the fault of one, and had no effect: each
/// key has a call of its own then.
pub(super) async fn acquire<S: Store>(store: &S, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
    let mut failed = match store.acquire(ops).await {
        Err(error) if error.kind() == StoreErrorKind::Permanent && ops.len() > 1 && !is_answered(ops) => {
            Ok(())
        }
        answered => return answered,
    };
    for op in ops.chunks_mut(1) {
        match store.acquire(op).await {
            Err(error) if error.kind() == StoreErrorKind::Permanent => failed = Err(error),
            answered => answered?,
        }
    }
    failed
}

/// Tells whether the store decided some of the calls.
pub(super) fn is_answered(ops: &[Op<'_>]) -> bool {
    ops.iter().any(|op| op.answer.now_us != 0)
}

impl<S: Store> Shared<S> {
    /// Runs a call of a lane, and tells the breaker and the counts. Returns the kind of its error.
    ///
    /// The call returns its result, and whether the store decided some of its keys. At the deadline
    /// it goes on, after `on_late`. The breaker counts one failure for a late call, and probes tell
    /// whether the lane answers meanwhile.
    pub(super) async fn run(
        &self,
        lane: &Lane,
        keys: u64,
        call: impl Future<Output = (Result<(), StoreError>, bool)>,
        on_late: impl FnOnce(),
    ) -> Option<StoreErrorKind> {
        let sent = self.now();
        let mut call = pin!(call);
        let answered = timeout(self.deadline, &mut call).await;
        let is_late = answered.is_err();
        let (result, is_decided) = match answered {
            Ok(answered) => answered,
            Err(_) => {
                self.note(lane, false, &format_args!("no answer within {:?}", self.deadline));
                on_late();
                let why = || format!("no answer within {GIVE_UP:?}");
                let silent = |_| (Err(StoreError::new(StoreErrorKind::Unknown, why())), false);
                tokio::select! {
                    answered = timeout(GIVE_UP, call) => answered.unwrap_or_else(silent),
                    never = self.suspect_on(lane) => match never {},
                }
            }
        };
        let took = Duration::from_nanos(self.now().saturating_sub(sent));
        let failed = result.as_ref().err().map(StoreError::kind);
        match &result {
            Err(error) if failed == Some(StoreErrorKind::Permanent) => self.report_permanent(error),
            Ok(()) if !is_late => {
                self.note(lane, true, &"");
                lane.note_latency(took);
            }
            // A call that the store did not answer is a failure. A late one has been noted.
            Err(error) if !is_late && !is_decided => self.note(lane, false, error),
            _ => {}
        }
        self.counters.ops.fetch_add(keys, Relaxed);
        let in_time = if is_late { Outcome::Late } else { Outcome::Answered };
        self.count_call(failed.map_or(in_time, Outcome::of), took);
        failed
    }

    /// Takes a token of the lane's bucket for probes, and tells the breaker whether the lane
    /// answers. A locked file or a replica answers reads, so a read is no probe.
    pub(crate) async fn probe(&self, lane: &Lane) {
        let Ok(spec) = Spec::new(Quota::per_second(1_000_000), 0) else { return };
        let key = self.store.probe_key(lane.number);
        let mut ops = [Op::new(&key, spec, Amount { min: 1, max: 1, ..Amount::default() })];
        match timeout(self.deadline, self.store.acquire(&mut ops)).await {
            Ok(Ok(())) => self.note(lane, true, &""),
            Ok(Err(error)) => {
                self.report_permanent(&error);
                self.note(lane, false, &error);
            }
            Err(_) => self.note(lane, false, &"no answer to a probe"),
        }
    }

    /// Probes a lane after an error that may be that of a key, at most once in a deadline.
    pub(super) async fn suspect(&self, lane: &Lane) {
        let is_due = lane.take_suspicion(self.lanes.now(), self.deadline);
        if is_due && !lane.breaker.is_open() {
            self.probe(lane).await;
        }
    }

    /// Probes a lane while a call is late.
    async fn suspect_on(&self, lane: &Lane) -> Infallible {
        loop {
            self.suspect(lane).await;
            sleep(Duration::from_nanos(lane.suspected().saturating_sub(self.lanes.now()))).await;
        }
    }
}

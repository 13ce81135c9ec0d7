//! One call of the store, for a batch of keys.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::timeout;

use super::counters::Outcome;
use super::shared::Shared;
use super::slot::Slot;
use super::slot::calls::{Late, Part};
use crate::credits::bucket::Answer;
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::op::{Op, Store};

/// The most keys of a call.
pub(crate) const MAX_BATCH: usize = 64;

/// The most calls under way at a time, but for late ones.
const MAX_CALLS: usize = 4;

/// The longest wait for an answer after the deadline.
const GIVE_UP: Duration = Duration::from_secs(5);

/// The keys of a call that has begun, with their parts of it. A drop before the answer ends the
/// call with an unknown effect.
pub(crate) struct Batch<S> {
    shared: Arc<Shared<S>>,
    slots: Vec<(Arc<Slot>, Part)>,
}

impl<S: Store> Batch<S> {
    /// Begins a call for the keys that have something to ask for; `None` if there are none.
    pub(crate) fn begin(shared: &Arc<Shared<S>>, slots: impl Iterator<Item = Arc<Slot>>) -> Option<Batch<S>> {
        let begun = |slot: Arc<Slot>| match slot.begin() {
            Ok(part) => part.map(|part| (slot, part)),
            Err(Late) => {
                shared.note(false, &"the call before is late");
                None
            }
        };
        let slots: Vec<_> = slots.filter_map(begun).collect();
        (!slots.is_empty()).then(|| Batch { shared: shared.clone(), slots })
    }

    /// Calls the store. Returns the keys that have more to ask for.
    ///
    /// At the deadline the requests stop waiting, and the call gives its `permit` back. The call
    /// goes on: tokens of a late answer are kept.
    pub(crate) async fn call(mut self, permit: Permit<S>) -> Vec<Arc<Slot>> {
        let shared = self.shared.clone();
        let keys = self.slots.clone();
        let mut ops: Vec<Op<'_>> =
            keys.iter().map(|(slot, part)| Op::new(&slot.key.stored, part.spec, part.amount)).collect();
        let sent = shared.now();
        let outcome = within(&shared, &keys, &mut ops, permit).await;
        let took = Duration::from_nanos(shared.now().saturating_sub(sent));
        shared.counters.ops.fetch_add(ops.len() as u64, Relaxed);
        let failed = outcome.as_ref().err().map(StoreError::kind);
        shared.count_call(outcome.unwrap_or_else(|error| Outcome::of(error.kind())), took);
        let answers = ops.iter().map(|op| op.answer).collect();
        self.end(answers, sent, failed)
    }

    /// Ends the call. If it failed, only the keys whose answers have a time were decided.
    fn end(&mut self, answers: Vec<Answer>, sent: u64, failed: Option<StoreErrorKind>) -> Vec<Arc<Slot>> {
        let rtt = self.shared.rtt();
        let mut more = Vec::new();
        for ((slot, part), answer) in std::mem::take(&mut self.slots).into_iter().zip(answers) {
            let failed = failed.filter(|_| answer.now_us == 0);
            let has_more = match failed {
                None => slot.end(part, answer.within(&part.spec, part.amount), sent, rtt),
                Some(kind) => {
                    self.fail(&slot, part, kind == StoreErrorKind::Unknown);
                    false
                }
            };
            self.shared.count_left(&slot);
            if has_more {
                more.push(slot);
            }
        }
        more
    }

    fn fail(&self, slot: &Slot, part: Part, lost: bool) {
        if lost {
            self.shared.counters.lost.fetch_add(u64::try_from(part.amount.max).unwrap_or(0), Relaxed);
        }
        slot.fail(part, lost);
    }
}

impl<S> Drop for Batch<S> {
    fn drop(&mut self) {
        for (slot, part) in self.slots.drain(..) {
            slot.fail(part, true);
            self.shared.count_left(&slot);
        }
    }
}

/// Calls the store, and tells the breaker whether it answers in time.
async fn within<S: Store>(
    shared: &Arc<Shared<S>>,
    keys: &[(Arc<Slot>, Part)],
    ops: &mut [Op<'_>],
    permit: Permit<S>,
) -> Result<Outcome, StoreError> {
    let sent = shared.now();
    let mut acquire = pin!(shared.store.acquire(ops));
    match timeout(shared.deadline, &mut acquire).await {
        Ok(Ok(())) => {
            shared.note(true, &"");
            shared.note_latency(shared.now().saturating_sub(sent));
            return Ok(Outcome::Answered);
        }
        Ok(Err(error)) => {
            shared.note(false, &error);
            return Err(error);
        }
        Err(_) => {
            shared.note(false, &format_args!("no answer within {:?}", shared.deadline));
            keys.iter().for_each(|(slot, _)| slot.give_up());
        }
    }
    drop(permit);
    match timeout(GIVE_UP, acquire).await {
        Ok(answered) => answered.map(|()| Outcome::Late),
        Err(_) => Err(StoreError::new(StoreErrorKind::Unknown, format!("no answer within {GIVE_UP:?}"))),
    }
}

/// The right to one of the [`MAX_CALLS`] calls under way.
pub(crate) struct Permit<S>(Arc<Shared<S>>);

impl<S> Permit<S> {
    pub(crate) fn of(shared: &Arc<Shared<S>>) -> Option<Permit<S>> {
        // A drop wakes the background task, so a call that finds no permit must make and drop none.
        let is_free = shared.calls.fetch_add(1, Relaxed) < MAX_CALLS;
        if !is_free {
            shared.calls.fetch_sub(1, Relaxed);
        }
        is_free.then(|| Permit(shared.clone()))
    }
}

impl<S> Drop for Permit<S> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Relaxed);
        self.0.freed.notify_one();
    }
}

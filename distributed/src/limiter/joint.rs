//! One call of the store for requests of several limits, all or none.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tollgate::{Denied, Granted};

use super::flush::is_answered;
use super::shared::Shared;
use super::slot::Slot;
use crate::law::amount::Amount;
use crate::law::any_law::Law;
use crate::store::error::StoreErrorKind;
use crate::store::op::{Op, Store};

/// The part of a joint call that is for one request. A drop gives the tokens back that it holds.
pub(crate) struct JointPart {
    slot: Arc<Slot>,
    queue: UnboundedSender<Arc<Slot>>,
    law: Law,
    n: u64,
    /// The tokens of the request that are taken: at first those at hand.
    held: u64,
}

/// The tokens of all requests of a joint call, with their grants. A drop gives the tokens back.
pub(crate) struct JointTokens(Vec<(JointPart, Granted)>);

/// The answer to a joint call: the tokens, or the index of the refused request.
pub(crate) type Joint = Result<JointTokens, (usize, Denied)>;

/// A joint call that is under way. Its tokens come back if this is dropped.
pub(crate) struct JointAnswer {
    receiver: oneshot::Receiver<Joint>,
    deadline: Duration,
    _place: OwnedSemaphorePermit,
}

impl JointPart {
    /// Takes the tokens at hand for a request of `n`. The call asks for the others.
    pub(crate) fn new(
        slot: &Arc<Slot>,
        queue: UnboundedSender<Arc<Slot>>,
        law: Law,
        n: u64,
    ) -> Option<JointPart> {
        // One at least is asked for: a call for none is granted by any store.
        let held = slot.lease.take_up_to(n.checked_sub(1)?);
        Some(JointPart { slot: slot.clone(), queue, law, n, held })
    }

    fn op(&self) -> Op<'_> {
        // A request is for at most the capacity, which is below 2^53.
        let missing = (self.n - self.held) as i64;
        let amount = Amount { min: missing, max: missing, ..Amount::default() };
        Op::new(&self.slot.key.stored, self.law, amount)
    }
}

impl Drop for JointPart {
    fn drop(&mut self) {
        if self.held > 0 {
            self.slot.put_back(self.held, &self.queue);
        }
    }
}

impl JointTokens {
    /// Keeps the tokens, and returns the grants.
    pub(crate) fn keep(self) -> Vec<Granted> {
        let grants = self.0.into_iter().map(|(mut part, granted)| {
            part.held = 0;
            granted
        });
        grants.collect()
    }
}

impl JointAnswer {
    /// Waits for the answer, up to the deadline.
    pub(crate) async fn answer(self) -> Option<Joint> {
        timeout(self.deadline, self.receiver).await.ok()?.ok()
    }
}

impl<S: Store> Shared<S> {
    /// Starts a joint call, for requests of one lane; `None` if too many requests wait already.
    /// It outlives its caller: the tokens of a late answer are given back.
    pub(crate) fn call_jointly(self: &Arc<Self>, parts: Vec<JointPart>) -> Option<JointAnswer> {
        if self.has_forked() {
            return None;
        }
        let place = self.waiting.clone().try_acquire_owned().ok()?;
        let (sender, receiver) = oneshot::channel();
        self.runtime.spawn(self.clone().joint_call(parts, sender));
        Some(JointAnswer { receiver, deadline: self.deadline, _place: place })
    }

    async fn joint_call(self: Arc<Self>, mut parts: Vec<JointPart>, sender: oneshot::Sender<Joint>) {
        let Some(lane) = parts.first().map(|part| self.lane(&part.slot.key.stored)) else { return };
        let sent: Vec<u64> = parts.iter().map(|part| part.slot.lease.now()).collect();
        let mut ops: Vec<Op<'_>> = parts.iter().map(JointPart::op).collect();
        let (mut refused, mut sender) = (None, Some(sender));
        let call = async {
            let called = self.store.acquire_all(&mut ops).await;
            refused = called.as_ref().ok().copied().flatten();
            (called.map(drop), is_answered(&ops))
        };
        // The caller decides by the policies then.
        let failed = self.run(&lane, parts.len() as u64, call, || drop(sender.take())).await;
        let answers: Vec<_> = ops.iter().map(|op| op.answer).collect();
        drop(ops);
        if failed.is_some() {
            if failed == Some(StoreErrorKind::Unknown) {
                let lost = parts.iter().map(|part| part.n - part.held).sum();
                self.counters.lost.fetch_add(lost, Relaxed);
            }
            return;
        }
        let mut decided = Vec::new();
        for ((part, answer), sent) in parts.iter_mut().zip(answers).zip(sent) {
            let answer = part.law.bound(part.op().amount, answer);
            decided.push(part.slot.end_joint((part.n, part.held), (part.law, answer), sent));
            part.held += u64::try_from(answer.granted).unwrap_or(0);
            if part.slot.is_low(0) || part.slot.key.spent.load(Relaxed) > 0 {
                // A lease for the requests to come, and the tokens of an outage.
                part.slot.enqueue_request(&part.queue);
            }
        }
        let joint = match refused {
            Some(place) => match decided.swap_remove(place) {
                Err(denied) => Err((place, denied)),
                Ok(_) => return,
            },
            None => {
                let grants = parts.into_iter().zip(decided.into_iter().flatten());
                Ok(JointTokens(grants.collect()))
            }
        };
        // Without a caller the tokens come back by a drop.
        let _ = sender.map(|sender| sender.send(joint));
    }
}

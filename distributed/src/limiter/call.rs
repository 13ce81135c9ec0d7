//! Calls of the store that are not those of a verb.

use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::oneshot;
use tollgate::ToKey;

use super::distributed_limiter::DistributedLimiter;
use super::flush::{acquire, is_answered};
use super::shared::Shared;
use super::shared_rule::SharedRule;
use crate::key::StoreKey;
use crate::law::amount::StoreAnswer;
use crate::store::error::StoreErrorKind;
use crate::store::op::{Op, OwnedOp, Store};

impl<K, S, R> DistributedLimiter<K, S, R>
where
    K: StoreKey + Hash + Eq + Clone + Send + Sync + 'static,
    S: Store,
    R: SharedRule,
{
    /// Returns a key in the form in which the store of this limiter has it.
    pub fn store_key<Q: ToKey<K> + StoreKey + ?Sized>(&self, key: &Q) -> Vec<u8> {
        self.stored(Some(key))
    }

    /// Sends operations of the caller's own to the store, and returns their answers in the same
    /// order: for a count that no verb keeps, such as one that goes on beyond its limit.
    ///
    /// The call takes no lease and decides by no policy. It has the deadline, the breakers and the
    /// counters of this limiter. All operations of one lane are one call of the store, and the
    /// lanes are called at the same time. The caller sees to it that no two operations have the
    /// same key and law. An operation of any rule is right, also of another limiter on the store.
    ///
    /// An answer is `None` if the store did not decide the operation within the deadline. It may
    /// have had its effect then. While the breaker of its lane is open, no call is made for it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Window;
    /// use tollgate_distributed::{Amount, CountSpec, DistributedLimiter, MemoryStore, OwnedOp};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new(|| 1_000_000);
    /// let hourly = Window::per_hour(100).utc();
    /// let limiter = DistributedLimiter::<String, _>::builder(hourly, store).name("visits").build()?;
    /// // Three visits, also if they are beyond the limit.
    /// let amount = Amount { spent: 3, ..Amount::default() };
    /// let law = CountSpec::new(hourly, Duration::from_secs(1))?.into();
    /// let visits = OwnedOp { key: limiter.store_key("ada"), law, amount };
    /// let answers = limiter.call(vec![visits]).await;
    /// assert_eq!(answers[0].map(|answer| answer.credits), Some(97));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call(&self, ops: Vec<OwnedOp>) -> Vec<Option<StoreAnswer>> {
        let shared = &self.inner.shared;
        let mut answers = vec![None; ops.len()];
        if shared.has_forked() || shared.closed.is_closed() {
            return answers;
        }
        let Ok(_place) = shared.waiting.try_acquire() else { return answers };
        let mut of_lanes: Vec<(u32, Vec<usize>, Vec<OwnedOp>)> = Vec::new();
        for (place, op) in ops.into_iter().enumerate() {
            let number = shared.store.lane_of(&op.op());
            if shared.lanes.is_any_open() && shared.lanes.lane(number).breaker.is_open() {
                continue;
            }
            match of_lanes.iter_mut().find(|(of, ..)| *of == number) {
                Some((_, places, ops)) => {
                    places.push(place);
                    ops.push(op);
                }
                None => of_lanes.push((number, vec![place], vec![op])),
            }
        }
        let called = of_lanes.into_iter().map(|(number, places, ops)| {
            let (sender, receiver) = oneshot::channel();
            // It outlives its caller: the answer to a call that is late tells the breaker.
            shared.runtime.spawn(shared.clone().own_call(number, ops, sender));
            (places, receiver)
        });
        let called: Vec<_> = called.collect();
        for (places, receiver) in called {
            // The call itself keeps the deadline.
            if let Ok(of_lane) = receiver.await {
                places.into_iter().zip(of_lane).for_each(|(place, answer)| answers[place] = answer);
            }
        }
        answers
    }
}

/// The answers to the calls of one lane.
type Answers = Vec<Option<StoreAnswer>>;

impl<S: Store> Shared<S> {
    async fn own_call(self: Arc<Self>, lane: u32, owned: Vec<OwnedOp>, sender: oneshot::Sender<Answers>) {
        let lane = self.lanes.lane(lane);
        let mut ops: Vec<Op<'_>> = owned.iter().map(OwnedOp::op).collect();
        let mut sender = Some(sender);
        let call = async {
            let called = acquire(&self.store, &mut ops).await;
            (called, is_answered(&ops))
        };
        let failed = self.run(&lane, owned.len() as u64, call, || drop(sender.take())).await;
        let answer = |op: &Op<'_>| (op.answer.now_us != 0).then(|| op.law.bound(op.amount, op.answer));
        let answers: Answers = ops.iter().map(answer).collect();
        if let Some(answer) = answers.iter().flatten().find(|answer| answer.edge_us > 0) {
            self.note_time(*answer);
        }
        // Without a caller the answers are of no use.
        let _ = sender.map(|sender| sender.send(answers));
        if failed == Some(StoreErrorKind::Permanent) {
            // It may be the fault of all keys.
            self.suspect(&lane).await;
        }
    }
}

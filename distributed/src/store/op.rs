//! One call on one bucket, and the trait of stores.

use std::future::Future;

use super::error::StoreError;
use super::lanes::Lanes;
use crate::law::amount::{Amount, StoreAnswer};
use crate::law::any_law::Law;

/// A call on the bucket or on the count of one key.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    /// The key in the form of the store: at most [`MAX_KEY`] bytes.
    pub key: &'a [u8],
    /// The law of the call, with its rule. A bucket and a count of one key share nothing.
    pub law: Law,
    /// The tokens asked for.
    pub amount: Amount,
    /// The answer, which the store writes.
    pub answer: StoreAnswer,
}

/// A call that owns its key, as it may outlive its caller: for
/// [`DistributedLimiter::call`](crate::DistributedLimiter::call).
#[derive(Clone, Debug)]
pub struct OwnedOp {
    /// The key in the form of the store, as from
    /// [`DistributedLimiter::store_key`](crate::DistributedLimiter::store_key).
    pub key: Vec<u8>,
    /// The law of the call, with its rule.
    pub law: Law,
    /// The tokens asked for.
    pub amount: Amount,
}

impl OwnedOp {
    #[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "SQLite decides on a thread"))]
    pub(crate) fn new(op: &Op<'_>) -> OwnedOp {
        OwnedOp { key: op.key.into(), law: op.law, amount: op.amount }
    }

    /// Returns the call without an answer.
    pub(crate) fn op(&self) -> Op<'_> {
        Op::new(&self.key, self.law, self.amount)
    }
}

/// The longest key that a store takes, in bytes. A limiter stores a digest of a longer one.
pub const MAX_KEY: usize = 255;

impl<'a> Op<'a> {
    /// Returns a call without an answer.
    #[must_use]
    pub fn new(key: &'a [u8], law: impl Into<Law>, amount: Amount) -> Op<'a> {
        Op { key, law: law.into(), amount, answer: StoreAnswer::default() }
    }
}

/// Shared buckets and counts, in a server or a file.
///
/// A store decides by [`Bucket::step`](crate::Bucket::step) and by
/// [`Count::step`](crate::Count::step) on its own clock. A key that is not stored has a full
/// bucket, and a count of no token.
pub trait Store: Sized + Send + Sync + 'static {
    /// Decides all calls, in one round trip if it can, and writes their answers.
    ///
    /// The caller sees to it that no two calls have the same key and law. Each call is atomic. All
    /// calls together need not be, and their order is free. A call that changes nothing writes
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`] tells whether the calls may have had their effect. A store that decided some
    /// of them writes their answers all the same: those have a `now_us` that is not 0, and the
    /// error is that of the others.
    fn acquire(&self, ops: &mut [Op<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Decides calls that are granted together or not at all, in one round trip if it can. Returns
    /// the index of the first refusal; `None` if all are granted.
    ///
    /// Each call asks for at least one token, and has no spent ones. If one is refused, no call
    /// takes a token, `granted` is 0 in all answers, and the other numbers are those of a look.
    ///
    /// By default the calls are decided by [`acquire`](Store::acquire), and after a refusal the
    /// granted tokens are given back by one more call. Other callers miss them in between, and they
    /// are lost if that call fails.
    ///
    /// # Errors
    ///
    /// As those of [`acquire`](Store::acquire).
    fn acquire_all(
        &self,
        ops: &mut [Op<'_>],
    ) -> impl Future<Output = Result<Option<usize>, StoreError>> + Send {
        in_turn(self, ops)
    }

    /// Returns the lanes that all limiters on this handle and its clones share. By default each
    /// limiter has lanes of its own.
    ///
    /// A store keeps them in a field, and returns a clone.
    fn lanes(&self) -> Lanes {
        Lanes::default()
    }

    /// Returns the number of a key's lane: the part of the store that decides its calls. By default
    /// that is 0 for all keys.
    ///
    /// Each call has keys of one lane. Each lane has a breaker, calls and latencies of its own, so
    /// a part that fails or hangs takes nothing from the keys of the others. The lane of a key may
    /// change.
    fn lane(&self, key: &[u8]) -> u32 {
        let _ = key;
        0
    }

    /// Returns the number of a call's lane, for a store whose lanes are not by the key alone. By
    /// default it is that of its key.
    fn lane_of(&self, op: &Op<'_>) -> u32 {
        self.lane(op.key)
    }

    /// Returns a key of a lane whose bucket is for probes. No limiter has an empty name, so by
    /// default `:probe` is a bucket of none.
    fn probe_key(&self, lane: u32) -> Vec<u8> {
        let _ = lane;
        b":probe".to_vec()
    }
}

/// A store in an `Arc`, which several limiters may share.
impl<S: Store> Store for std::sync::Arc<S> {
    async fn acquire(&self, ops: &mut [Op<'_>]) -> Result<(), StoreError> {
        (**self).acquire(ops).await
    }

    async fn acquire_all(&self, ops: &mut [Op<'_>]) -> Result<Option<usize>, StoreError> {
        (**self).acquire_all(ops).await
    }

    fn lanes(&self) -> Lanes {
        (**self).lanes()
    }

    fn lane(&self, key: &[u8]) -> u32 {
        (**self).lane(key)
    }

    fn lane_of(&self, op: &Op<'_>) -> u32 {
        (**self).lane_of(op)
    }

    fn probe_key(&self, lane: u32) -> Vec<u8> {
        (**self).probe_key(lane)
    }
}

/// Makes the answers of calls those of calls that took nothing, if one of them was refused. Returns
/// the index of the first refusal.
pub(crate) fn settle(ops: &mut [Op<'_>]) -> Option<usize> {
    let refused = ops.iter().position(|op| op.answer.now_us != 0 && op.answer.granted < op.amount.min)?;
    undo(ops);
    Some(refused)
}

/// Makes the answers those of calls that took nothing. A granted number is at most that of the
/// tokens in the answer before it.
fn undo(ops: &mut [Op<'_>]) {
    for Op { law, answer, .. } in ops {
        let granted = std::mem::take(&mut answer.granted);
        match law {
            Law::Bucket(spec) => answer.credits += granted * spec.per_token() as i64,
            Law::Count(spec) => {
                answer.credits += granted;
                // The tokens used in a fixed window are freed at its end.
                answer.freed -= if spec.parts() == 1 { granted as u64 } else { 0 };
            }
        }
    }
}

/// Decides calls, and gives the granted tokens back if one was refused or failed.
pub(crate) async fn in_turn<S: Store>(store: &S, ops: &mut [Op<'_>]) -> Result<Option<usize>, StoreError> {
    let called = store.acquire(ops).await;
    let granted = ops.iter().filter(|op| op.answer.granted > 0);
    let back =
        |answer: StoreAnswer| Amount { max: -answer.granted, of_us: answer.edge_us, ..Amount::default() };
    let mut back: Vec<Op<'_>> = granted.map(|op| Op::new(op.key, op.law, back(op.answer))).collect();
    let refused = settle(ops);
    if refused.is_none() {
        if called.is_ok() {
            return Ok(None);
        }
        undo(ops);
    }
    if !back.is_empty() {
        // Without an answer the tokens may be lost: none is granted twice.
        let _ = store.acquire(&mut back).await;
    }
    called.map(|()| refused)
}

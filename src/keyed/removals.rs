//! Counts of removed keys, so that a receipt of a removed key reaches no later bucket of that key.
//!
//! A removed key starts anew, full, and its next bucket may stand just where the old one did. (An
//! evicted key does not: its bucket was full for the margin, and no later mark is the same.) A receipt
//! carries the count of its key's shard from before the take. Settling looks at the count again.
//!
//! Invariant: a bucket that was charged before its removal is settled by no receipt of that charge
//! after the removal. The remover counts between its load of the word and its seal of that very word.
//! The taker read the count before its commit, and the remover has seen that commit, or its seal fails
//! and it counts again. So the receipt's count is the lower one.
//!
//! A shard knows the hash of its latest removal. So one removal of another key leaves a receipt valid.
//! After two in its shard, a receipt may be void without need. It never is valid without right.
//!
//! # Orderings
//!
//! The count is raised with `AcqRel` before the seal, which is a `Release`. A caller that settles loads
//! the word with `Acquire`, then the count: a word of the key's next bucket was made by a thread that
//! had seen the seal, or the entry gone, so the count is the raised one. Partner: `Engine::seal`.
//! Checked by `a_receipt_of_a_removed_key_is_void` in `src/tests/models/map.rs`.

use crate::bucket::atomic::BucketRef;
use crate::fault::{Fault, injected};
use crate::sync::{AtomicU64, Ordering};
use crate::word::state::State;

/// Shards by hash, a power of two.
const SHARDS: usize = 1024;

/// The removals of each shard: their number in the upper half, the hash of the latest in the lower.
pub(crate) struct Removals(Box<[AtomicU64]>);

impl Removals {
    pub(crate) fn new() -> Removals {
        Removals((0..SHARDS).map(|_| AtomicU64::new(0)).collect())
    }

    /// The removals of the keys with this hash.
    pub(crate) fn of(&self, hash: u32) -> Shard<'_> {
        Shard { latest: &self.0[(hash >> (u32::BITS - SHARDS.ilog2())) as usize], hash }
    }
}

/// The removals that concern a key.
#[derive(Clone, Copy)]
pub(crate) struct Shard<'a> {
    pub(crate) latest: &'a AtomicU64,
    pub(crate) hash: u32,
}

impl<'a> Shard<'a> {
    /// The latest removal, for a receipt.
    pub(crate) fn latest(self) -> u64 {
        self.latest.load(Ordering::Acquire)
    }

    /// Counts a removal: after each load of the word that is to be sealed, and before the seal.
    pub(crate) fn raise(self) {
        let next = |latest: u64| Some(((latest >> 32) + 1) << 32 | u64::from(self.hash));
        let _ = self.latest.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// Whether the key was surely not removed since.
    fn is_there_since(self, then: u64) -> bool {
        let now = self.latest();
        let others = now >> 32 == (then >> 32) + 1 && now as u32 != self.hash;
        now == then || others || injected(Fault::RemovalUnseen)
    }

    /// A bucket of the key for a receipt that was made then.
    pub(crate) fn since<W>(self, then: u64, word: W) -> UnlessRemoved<'a, W> {
        UnlessRemoved { word, shard: self, then }
    }
}

/// The word of a bucket for a receipt. It reads as `SEALED` once the key was removed.
#[derive(Clone, Copy)]
pub(crate) struct UnlessRemoved<'a, W> {
    word: W,
    shard: Shard<'a>,
    then: u64,
}

impl<W: BucketRef> BucketRef for UnlessRemoved<'_, W> {
    fn state(self) -> State {
        let state = self.word.state();
        if self.shard.is_there_since(self.then) { state } else { State::SEALED }
    }

    fn commit(self, state: State, next: State) -> Result<(), State> {
        // A word that is committed on was loaded before: its bucket is not sealed.
        self.word.commit(state, next).map_err(|_| self.state())
    }

    fn still_has(self, state: State) -> bool {
        state == State::SEALED || self.word.still_has(state)
    }
}

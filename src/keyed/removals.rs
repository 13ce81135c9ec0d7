//! Counts of removed keys, so that a receipt of a removed key reaches no later bucket of that key.
//!
//! A removed key starts anew, full, and its next bucket may have the same empty time as the old
//! one. (An evicted key's cannot: the old bucket was full for the eviction grace, so every later
//! empty time differs.) A receipt has the count of its key's shard from before the take. A
//! settlement compares the count again.
//!
//! *Invariant:* no receipt settles its key after the key was removed, because the removing thread
//! counts between its load of the word and its seal of that very word. The taking thread read the
//! count before its commit. The removing thread has seen that commit, or its seal fails and it
//! counts again. So the receipt's count is the lower one.
//!
//! The counts are made by the first removal. *Invariant:* counts that are not made read as 0,
//! because no key was removed. Each reading of a count looks for them anew.
//!
//! A shard has the hash of its latest removal, so one removal of another key leaves a receipt
//! valid. After two removals in its shard a receipt may be void without need. An invalid receipt is
//! never accepted.
//!
//! # Orderings
//!
//! *Release: the count is raised before the seal, and pairs with the Acquire load of the word and
//! then of the count in a settlement, so that a thread that sees a word of the key's next bucket
//! sees the raised count: that word was made by a thread that had seen the seal, or the entry
//! gone.* The making of the counts is ordered in the same way, before their first raise. Partner:
//! `idle::seal`. Checked by `a_receipt_of_a_removed_key_is_void` in
//! `src/tests/models/map.rs`.

use crate::bucket::atomic::BucketRef;
use crate::fault::{Fault, injected};
use crate::sync::{AtomicU64, MODEL, OnceLock, Ordering};
use crate::word::state::{Origin, State};

/// Number of shards by hash, a power of two.
const SHARDS: usize = if MODEL { 2 } else { 1024 };

/// Removals by shard: their number in the upper 32 bits, the hash of the latest in the lower.
pub(crate) struct Removals(OnceLock<Box<[AtomicU64]>>);

impl Removals {
    pub(crate) fn new() -> Removals {
        Removals(OnceLock::new())
    }

    /// Returns the shard of the keys with this hash.
    pub(crate) fn of(&self, hash: u32) -> Shard<'_> {
        Shard { removals: self, hash }
    }

    fn make() -> Box<[AtomicU64]> {
        (0..SHARDS).map(|_| AtomicU64::new(0)).collect()
    }
}

/// The removals of a shard, as one key sees them.
#[derive(Clone, Copy)]
pub(crate) struct Shard<'a> {
    removals: &'a Removals,
    hash: u32,
}

impl<'a> Shard<'a> {
    /// Returns the count and the latest removal, for a receipt.
    pub(crate) fn latest(self) -> u64 {
        self.removals.0.get().map_or(0, |counts| counts[self.index()].load(Ordering::Acquire))
    }

    fn index(self) -> usize {
        (self.hash >> (u32::BITS - SHARDS.ilog2())) as usize
    }

    /// Counts a removal: after each load of the word, and before its seal.
    pub(crate) fn raise(self) {
        let next = |latest: u64| Some(((latest >> 32) + 1) << 32 | u64::from(self.hash));
        let latest = &self.removals.0.get_or_init(Removals::make)[self.index()];
        let _ = latest.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// Returns whether the key was certainly not removed since `then`.
    fn is_there_since(self, then: u64) -> bool {
        // Counts that were not made when the receipt was are looked for again.
        let now = if then == 0 && injected(Fault::RemovalsNotMadeLater) { 0 } else { self.latest() };
        let others = now >> 32 == (then >> 32) + 1 && now as u32 != self.hash;
        now == then || others || injected(Fault::RemovalUnseen)
    }

    /// Returns whether the latest removal since `then` is that of the key.
    fn was_removed_since(self, then: u64) -> bool {
        let now = self.latest();
        now != then && now as u32 == self.hash
    }

    /// Returns the key's bucket for a receipt with the count `then`.
    pub(crate) fn since<W>(self, then: u64, word: W) -> UnlessRemoved<'a, W> {
        UnlessRemoved { word, shard: Some(self), then }
    }
}

/// The word of a bucket for a receipt: it reads as `SEALED` once the key was removed.
#[derive(Clone, Copy)]
pub(crate) struct UnlessRemoved<'a, W> {
    word: W,
    /// `None` of a bucket that no caller removes.
    shard: Option<Shard<'a>>,
    then: u64,
}

impl<W> UnlessRemoved<'_, W> {
    /// Returns a bucket that no caller removes.
    pub(crate) fn never(word: W) -> Self {
        UnlessRemoved { word, shard: None, then: 0 }
    }
}

impl<W: BucketRef> UnlessRemoved<'_, W> {
    /// Returns whether the bucket is certainly not that of the receipt any more.
    pub(crate) fn is_gone(self) -> bool {
        self.word.state() == State::SEALED
            || self.shard.is_some_and(|shard| shard.was_removed_since(self.then))
    }
}

impl<W: BucketRef> BucketRef for UnlessRemoved<'_, W> {
    fn state(self) -> State {
        let state = self.word.state();
        let is_there = self.shard.is_none_or(|shard| shard.is_there_since(self.then));
        if is_there { state } else { State::SEALED }
    }

    fn origin(self) -> Origin {
        self.word.origin()
    }

    fn commit(self, state: State, next: State) -> Result<(), State> {
        // The word was loaded before, so its bucket was not sealed.
        self.word.commit(state, next).map_err(|_| self.state())
    }

    fn still_has(self, state: State) -> bool {
        state == State::SEALED || self.word.still_has(state)
    }
}

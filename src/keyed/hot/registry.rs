//! The spread keys, from promotion to demotion.

use super::guarded::Guarded;
use super::slots::{HotSlot, HotSlots, Tenure};
use crate::bucket::atomic::BucketRef;
use crate::bucket::engine::Engine;
use crate::bucket::lease::{Mode, Spread};
use crate::fault::{Fault, injected};
use crate::keyed::id::BucketId;
use crate::keyed::id::EntryId;
use crate::keyed::idle;
use crate::sync::{Ordering, fence};

/// Binary logarithm of the counts of the clock after which the next hot slot is probed.
const TURN: u32 = 20;

/// The keys that are spread.
#[derive(Debug)]
pub(crate) struct HotKeys {
    pub(crate) slots: HotSlots,
}

impl HotKeys {
    pub(crate) fn new() -> HotKeys {
        HotKeys { slots: HotSlots::new() }
    }

    /// Returns whether a bucket is spread, or about to be.
    ///
    /// Such a bucket must not be evicted: an evictor has loaded the word before.
    #[inline]
    pub(crate) fn is_hot(&self, id: BucketId) -> bool {
        self.slot(id).tenure_of(id).is_some() && !injected(Fault::SpreadEvicted)
    }

    /// Returns the hot slot in which a bucket would be spread.
    #[inline]
    pub(crate) fn slot(&self, id: BucketId) -> &HotSlot {
        self.slots.of(id)
    }

    /// Returns a bucket in its present mode; `None` if the mode changes meanwhile.
    #[inline]
    pub(crate) fn found<'a, W: BucketRef>(
        &'a self,
        word: W,
        id: BucketId,
        engine: &'a Engine,
    ) -> Option<Mode<'a, Guarded<'a, W>>> {
        let slot = self.slot(id);
        let Some(tenure) = slot.tenure_of(id) else { return Some(Mode::Plain(self.whole(word, id))) };
        let (tenant, _) = slot.tenant(tenure)?;
        if tenant == id || injected(Fault::ForeignCells) {
            return Some(Mode::Spread(self.spread(word, id, tenure, engine)));
        }
        // The cells were opened for the key that had the table slot before.
        slot.drop_unused(tenure);
        None
    }

    /// Returns the hot slot whose turn it is to be probed at a count of the clock, if it has a key.
    ///
    /// The next slot's turn is 2^`TURN` counts later.
    #[inline(always)]
    pub(crate) fn in_turn(&self, count: u64) -> Option<&HotSlot> {
        Some(self.slots.at(count >> TURN)).filter(|slot| slot.tenure().is_some())
    }

    /// Returns a word that is valid while the bucket is plain.
    #[inline(always)]
    pub(crate) fn whole<W>(&self, word: W, id: BucketId) -> Guarded<'_, W> {
        Guarded { word, slot: self.slot(id), id, tenure: None }
    }

    /// Returns a bucket that is valid while it is spread in this tenure.
    pub(crate) fn spread<'a, W: BucketRef>(
        &'a self,
        word: W,
        id: BucketId,
        tenure: Tenure,
        engine: &'a Engine,
    ) -> Spread<'a, Guarded<'a, W>> {
        let slot = self.slot(id);
        let bucket = Guarded { word, slot, id, tenure: Some(tenure) };
        Spread { bucket, engine, cells: &slot.cells, generation: tenure.generation() }
    }

    /// Seals a bucket of a map that has been full for the eviction grace.
    ///
    /// Like [`idle::seal_if_idle`], but a spread bucket stays: the result is then `Ok(false)`.
    pub(crate) fn seal_if_idle<W: BucketRef>(
        &self,
        word: W,
        id: BucketId,
        engine: &Engine,
    ) -> Result<bool, u64> {
        if injected(Fault::SpreadEvicted) {
            return idle::seal_if_idle(engine, word);
        }
        let sealed = idle::seal_if_idle(engine, self.whole(word, id))?;
        if sealed {
            // The bucket may have been promoted just before the seal; it has no leases then.
            self.drop_leases(id);
        }
        Ok(sealed)
    }

    /// Spreads a bucket over the cells of its hot slot, unless another bucket or thread has them.
    ///
    /// `now` is the clock's reading in nanoseconds. `sealed` returns whether the bucket is sealed
    /// for good. It is called after the promotion. The promotion of a sealed bucket is undone.
    #[cold]
    pub(crate) fn promote(&self, id: BucketId, tag: EntryId, now: u64, sealed: impl Fn() -> bool) {
        let slot = self.slot(id);
        let Some(tenure) = slot.give(id, tag, now) else { return };
        fence(Ordering::SeqCst);
        if sealed() && !injected(Fault::PromoteSealed) {
            slot.leave(tenure);
        }
    }

    /// Drops the leases of a sealed bucket. The caller keeps other keys from its entry meanwhile.
    ///
    /// A thread that has found the cells may still take from them, as if before the seal.
    #[cold]
    pub(crate) fn drop_leases(&self, id: BucketId) {
        if injected(Fault::LeasesInherited) {
            return;
        }
        fence(Ordering::SeqCst);
        let slot = self.slot(id);
        while let Some(tenure) = slot.tenure_of(id) {
            slot.leave(tenure);
        }
    }

    /// Demotes a bucket: returns the tokens in its cells to the word.
    ///
    /// The bucket stays spread if another thread keeps a cell.
    #[cold]
    pub(crate) fn demote<W: BucketRef>(&self, spread: Spread<'_, Guarded<'_, W>>) {
        if spread.close() {
            spread.bucket.leave();
        }
    }

    /// Returns the number of keys that are spread now.
    pub(crate) fn len(&self) -> usize {
        self.slots.all().filter(|slot| slot.tenure().is_some()).count()
    }
}

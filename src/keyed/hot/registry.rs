//! Which keys are spread: from when they are to when they are no more.

use super::guarded::Guarded;
use super::slots::{HotSlot, HotSlots, Tenure};
use crate::bucket::atomic::BucketRef;
use crate::bucket::engine::Engine;
use crate::bucket::lease::Spread;
use crate::fault::{Fault, injected};
use crate::keyed::id::BucketId;
use crate::keyed::id::EntryId;
use crate::keyed::idle;
use crate::sync::{Ordering, fence};

/// The keys that are spread.
#[derive(Debug)]
pub(crate) struct HotKeys {
    pub(crate) slots: HotSlots,
}

/// A bucket as it was found.
pub(crate) enum Mode<'a, W> {
    /// Spread over cells.
    Spread(Spread<'a, Guarded<'a, W>>),
    Plain(Guarded<'a, W>),
}

impl HotKeys {
    pub(crate) fn new() -> HotKeys {
        HotKeys { slots: HotSlots::new() }
    }

    /// Whether a bucket is spread, or just about to be, and so not to be evicted. To be asked after its word was loaded.
    pub(crate) fn is_hot(&self, id: BucketId) -> bool {
        self.slot(id).time_of(id).is_some() && !injected(Fault::SpreadEvicted)
    }

    /// Where a bucket would be.
    #[inline]
    pub(crate) fn slot(&self, id: BucketId) -> &HotSlot {
        self.slots.of(id)
    }

    /// A bucket as it is now. Nothing if that changes meanwhile.
    #[inline]
    pub(crate) fn found<'a, W: BucketRef>(
        &'a self,
        word: W,
        id: BucketId,
        engine: &'a Engine,
    ) -> Option<Mode<'a, W>> {
        let slot = self.slot(id);
        let Some(time) = slot.time_of(id) else { return Some(Mode::Plain(self.whole(word, id))) };
        let (tenant, _) = slot.tenant(time)?;
        if tenant == id || injected(Fault::OthersCells) {
            return Some(Mode::Spread(self.spread(word, id, time, engine)));
        }
        // They are of the key that had the slot before: nobody's.
        slot.drop_unused(time);
        None
    }

    /// A word while it is not spread.
    #[inline]
    pub(crate) fn whole<W>(&self, word: W, id: BucketId) -> Guarded<'_, W> {
        Guarded { word, slot: self.slot(id), id, time: None }
    }

    /// A word while it is spread so.
    pub(crate) fn spread<'a, W: BucketRef>(
        &'a self,
        word: W,
        id: BucketId,
        time: Tenure,
        engine: &'a Engine,
    ) -> Spread<'a, Guarded<'a, W>> {
        let slot = self.slot(id);
        let bucket = Guarded { word, slot, id, time: Some(time) };
        Spread { bucket, engine, cells: &slot.cells, generation: time.generation() }
    }

    /// Seals a bucket of a map that has been full for the margin. As [`Engine::seal_if_idle`], but one that is spread stays: then it
    /// is neither sealed by this call nor was it before.
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
            // It may have been spread just before the seal, and has no leases then.
            self.drop_leases(id);
        }
        Ok(sealed)
    }

    /// Spreads a bucket, if its seat is free. `sealed` tells whether it has been sealed for good.
    #[cold]
    pub(crate) fn promote(&self, id: BucketId, tag: EntryId, now: u64, sealed: impl Fn() -> bool) {
        let slot = self.slot(id);
        let Some(time) = slot.give(id, tag, now) else { return };
        fence(Ordering::SeqCst);
        if sealed() && !injected(Fault::GhostSpread) {
            slot.leave(time);
        }
    }

    /// The bucket was sealed: whatever is leased of it dies with it. While the caller keeps others from its place.
    ///
    /// Who has found the cells may still take of them, as if before the seal.
    #[cold]
    pub(crate) fn drop_leases(&self, id: BucketId) {
        if injected(Fault::LeasesInherited) {
            return;
        }
        fence(Ordering::SeqCst);
        let slot = self.slot(id);
        while let Some(time) = slot.time_of(id) {
            slot.leave(time);
        }
    }

    /// Spreads a bucket no more: what is at hand in its cells goes back to the word. Nothing comes of it if somebody else keeps a
    /// cell.
    #[cold]
    pub(crate) fn demote<W: BucketRef>(&self, spread: Spread<'_, Guarded<'_, W>>) {
        if spread.close() {
            spread.bucket.leave();
        }
    }

    /// Keys that are spread now.
    pub(crate) fn len(&self) -> usize {
        self.slots.all().filter(|slot| slot.time().is_some()).count()
    }
}

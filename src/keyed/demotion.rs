//! Demotion: how a spread key becomes plain again.

use crate::bucket::atomic::Bucket;
use crate::keyed::hot::{HotKeys, HotSlot};
use crate::keyed::id::{BucketId, EntryId};
use crate::keyed::idle;
use crate::keyed::keyspace::Keyspace;
use crate::keyed::store::{FoundBucket, StoreGuard};
use crate::word::state::State;

impl<K: Eq> Keyspace<K> {
    /// Demotes the key of the hot slot [in turn](HotKeys::in_turn) if it has been idle.
    #[cold]
    #[inline(never)]
    pub(crate) fn demote_in_turn(&self, hot: &HotKeys, pin: &StoreGuard<'_, K>, count: u64) {
        if let Some(slot) = hot.in_turn(count) {
            self.demote_if_idle(hot, pin, slot, self.engine.clock.nanos());
        }
    }

    /// Drops the leases of a bucket that this thread has sealed and still owns.
    pub(crate) fn sealed(&self, bucket: &Bucket) {
        if let Some(hot) = &self.hot {
            hot.drop_leases(BucketId::of(bucket));
        }
    }

    /// Demotes the key of a hot slot if it has been idle.
    #[cold]
    pub(crate) fn demote_if_idle(&self, hot: &HotKeys, pin: &StoreGuard<'_, K>, slot: &HotSlot, now: u64) {
        let Some(tenure) = slot.tenure().filter(|_| slot.is_idle(now)) else { return };
        let Some((id, tag)) = slot.tenant(tenure) else { return };
        match bucket_of(pin, id, tag) {
            Some(found) => hot.demote(hot.spread(found, id, tenure, &self.engine)),
            // The bucket is being removed, or its slot is another key's: it has no leases then.
            None => slot.drop_unused(tenure),
        }
    }

    /// Ends the spreading of all keys that have not leased for 100 ms.
    pub(crate) fn demote_idle(&self) {
        if let Some(hot) = &self.hot {
            let (pin, now) = (self.store.pin(), self.engine.clock.nanos());
            hot.slots.all().for_each(|slot| self.demote_if_idle(hot, &pin, slot, now));
        }
    }

    /// Seals a bucket that has been full for the eviction grace, unless it is spread. Otherwise
    /// returns the clock reading at which it may be sealed.
    pub(crate) fn seal_if_idle(&self, bucket: &Bucket, now: u64) -> Result<bool, u64> {
        let Some(hot) = &self.hot else { return idle::seal_if_idle(&self.engine, bucket) };
        let id = BucketId::of(bucket);
        let sealed = hot.seal_if_idle(bucket, id, &self.engine)?;
        if !sealed && bucket.state() != State::SEALED {
            self.demote_if_idle(hot, &self.store.pin(), hot.slot(id), self.engine.clock.nanos());
            return Err(now);
        }
        Ok(sealed)
    }

    /// Ends the leases of all spread keys after a change to a lower burst.
    pub(crate) fn recall_after_a_lower_burst(&self) {
        let Some(hot) = &self.hot else { return };
        let pin = self.store.pin();
        for slot in hot.slots.all() {
            if let Some(tenure) = slot.latest()
                && let Some((id, tag)) = slot.tenant(tenure)
                && let Some(found) = bucket_of(&pin, id, tag)
            {
                hot.spread(found, id, tenure, &self.engine).recall_after_a_lower_burst();
            }
        }
    }
}

/// Returns the bucket of a hot slot, unless it is being removed or its table slot is another key's.
fn bucket_of<'a, K: Eq>(pin: &'a StoreGuard<'_, K>, id: BucketId, tag: EntryId) -> Option<FoundBucket<'a>> {
    let found = match pin {
        StoreGuard::Map(buckets, guard) => buckets.map.get(&tag, guard).map(FoundBucket::Map),
        StoreGuard::Table(table) => table.held_at(id.address).map(FoundBucket::Table),
    };
    found.filter(|found| found.id() == id)
}

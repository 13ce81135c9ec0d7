//! The entry of a key in the limiter's store: its insertion, and decisions without room for it.

use std::hash::Hash;
use std::sync::atomic::Ordering;

use papaya::{Guard, LocalGuard};

use crate::bucket::atomic::{Bucket, BucketRef, ReadClock};
use crate::bucket::engine::Done;
use crate::keyed::id::EntryId;
use crate::keyed::idle;
use crate::keyed::key::{EntryKey, KeyQuery, Map, ToKey};
use crate::keyed::keyspace::{Keyspace, Parts};
use crate::keyed::moves;
use crate::keyed::overflow::{OverflowSet, WhenFull};
use crate::keyed::protocol;
use crate::keyed::protocol::{Entry, is_removable};
use crate::keyed::ring::{Probe, Ticket};
use crate::keyed::same_hash::SameHash;
use crate::keyed::store::{FoundBucket, Store, StoreGuard};
use crate::keyed::table::Table;
use crate::sync::yield_now;
use crate::word::decision::Denied;
use crate::word::plan::PlanTerms;
use crate::word::state::{Origin, State, TakeOutcome};
use crate::word::terms::EVICTION_GRACE;
use crate::word::verb::Call;

/// Largest number of held keys with one hash. papaya probes at least some 30 places, then grows its
/// table, and would grow it for ever if that does not separate the keys.
const MAX_COLLISIONS: usize = 8;

/// The entry of a key: its place in the store, whether there is a bucket or not.
pub(crate) struct KeyEntry<'a, K, Q: ?Sized> {
    pub(crate) keyspace: &'a Keyspace<K>,
    pub(crate) pin: &'a StoreGuard<'a, K>,
    pub(crate) key: KeyQuery<'a, Q>,
    /// Overflow buckets that the key uses while it has no entry.
    overflow_set: OverflowSet,
}

impl<K, Q: ?Sized> KeyEntry<'_, K, Q> {
    /// Returns the same entry, for a call under a plan.
    pub(crate) fn under(self, plan: Option<&PlanTerms>) -> Self {
        KeyEntry { overflow_set: OverflowSet::of(plan), ..self }
    }
}

impl<K, Q: ?Sized> Clone for KeyEntry<'_, K, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, Q: ?Sized> Copy for KeyEntry<'_, K, Q> {}

impl<'a, K: Hash + Eq, Q: ToKey<K> + ?Sized> Entry<'a> for KeyEntry<'a, K, Q> {
    type BucketRef = FoundBucket<'a>;

    fn get(self) -> Option<FoundBucket<'a>> {
        self.find_stored().1
    }

    fn is_present(self) -> bool {
        match self.pin {
            StoreGuard::Map(..) => self.get().is_some(),
            StoreGuard::Table(table) => table.present(self.key.full).is_some(),
        }
    }

    fn insert(self, read: impl ReadClock, call: &Call<'_>) -> Option<Result<Done, Denied>> {
        let done = match self.pin {
            StoreGuard::Map(map, guard) => self.enter_map(map, guard, read, call),
            StoreGuard::Table(table) => self.enter_table(table, read, call),
        };
        if let Some(Ok(Done {
            outcome: TakeOutcome { origin: Origin::Own | Origin::Entry(_), .. }, ..
        })) = done
        {
            self.keyspace.wake_outside(self.pin, self.key.full);
        }
        done
    }

    fn close_outside(self) {
        self.keyspace.close_outside(self.key.full);
    }

    fn back_off(self) {
        if let StoreGuard::Table(_) = self.pin {
            yield_now();
        }
    }

    fn remove_sealed(self) {
        // A slot of a table is emptied by the thread that sealed it.
        let StoreGuard::Map(map, guard) = self.pin else { return };
        let _ = map.remove_if(&self.key.in_map(), |_, bucket| is_removable(bucket), guard);
    }

    fn overflow_bucket(self) -> &'a Bucket {
        self.keyspace.parts().overflow.bucket(self.overflow_set, self.key.hash())
    }

    fn overflow_or_full(self) -> &'a Bucket {
        self.keyspace.parts().overflow.bucket_or_full(self.overflow_set, self.key.hash())
    }
}

impl<'a, K: Hash + Eq, Q: ToKey<K> + ?Sized> KeyEntry<'a, K, Q> {
    /// Returns the stored key and its bucket, by a look-up that is inlined. A table has no keys.
    #[inline(always)]
    pub(crate) fn find_stored(self) -> (Option<&'a K>, Option<FoundBucket<'a>>) {
        match self.pin {
            StoreGuard::Map(map, guard) => match map.get_key_value(&self.key.in_map(), guard) {
                Some((stored, bucket)) => {
                    let found = FoundBucket::Map(bucket, Origin::Entry(stored.tag.packed()));
                    (Some(&stored.key), Some(found))
                }
                None => (None, None),
            },
            StoreGuard::Table(table) => {
                let slot = table.search(self.key.full);
                (None, slot.map(|slot| FoundBucket::in_table(slot, self.key.full)))
            }
        }
    }

    /// Returns an origin that finds the bucket without the key. `None` if the map has no entry.
    ///
    /// In a table the origin is the key's fingerprint, which is there without an entry, too.
    pub(crate) fn origin(self) -> Option<Origin> {
        match self.pin {
            StoreGuard::Map(..) => self.get().map(BucketRef::origin),
            StoreGuard::Table(_) => Some(Origin::Inline(self.key.full)),
        }
    }

    /// Returns the outcome that a call would have on the key's bucket, or on its overflow bucket if
    /// it was never charged; and whether it was.
    pub(crate) fn look(self, read: impl ReadClock, call: Call<'_>) -> (bool, Done) {
        let engine = &self.keyspace.engine;
        let seen = self.get().map(|found| engine.look(found, read, call)).filter(|(charged, _)| *charged);
        seen.unwrap_or_else(|| (false, engine.look(self.overflow_or_full(), read, call).1))
    }

    /// Returns a ticket for the key, perhaps that of an idle one; without room, the time at which
    /// there is some, if known.
    pub(super) fn ticket(
        self,
        map: &Map<K>,
        guard: &LocalGuard<'_>,
        now: u64,
    ) -> Result<Ticket<'a>, Option<u64>> {
        let (keyspace, hash) = (self.keyspace, self.key.hash());
        let Parts { ring, counters, .. } = keyspace.parts();
        if SameHash::new(map, hash, guard).take(MAX_COLLISIONS).count() == MAX_COLLISIONS {
            // Room comes when one of them has been evicted.
            return Err(Some(now.saturating_add(EVICTION_GRACE)));
        }
        // Evicts the entry of an id, if it is still there and may be evicted.
        let look = |id: EntryId| {
            let Some(entry) = SameHash::entry(map, id, guard) else { return Probe::Gone };
            match idle::seal_if_idle(&keyspace.engine, entry.1) {
                Ok(sealed) => {
                    counters.evicted.fetch_add(u64::from(sealed.is_some()), Ordering::Relaxed);
                    SameHash::remove(map, entry, guard, |bucket| is_removable(bucket));
                    Probe::Gone
                }
                Err(due) => Probe::Stays { due },
            }
        };
        ring.admit(now, look)
    }

    /// Makes an entry for a key that has none; if there is no room, decides without.
    fn enter_map(
        self,
        map: &Map<K>,
        guard: &LocalGuard<'_>,
        read: impl ReadClock,
        call: &Call<'_>,
    ) -> Option<Result<Done, Denied>> {
        let (keyspace, hash) = (self.keyspace, self.key.hash());
        // `State::FULL` forces a fresh clock reading.
        let reading = read.read(State::FULL);
        if call.never_writes(&reading) {
            return Some(Ok(self.look(read, *call).1));
        }
        let mut ticket = match self.ticket(map, guard, reading.nanos()) {
            Ok(ticket) => ticket,
            Err(due) => return self.without_room(read, call, || due),
        };
        let key = self.key.key.to_key();
        let tag = ticket.admits(hash);
        let (stored, origin) = (EntryKey { tag, key }, Origin::Entry(tag.packed()));
        // If another thread inserted the key first, the ticket keeps a stale id; the ring's hand
        // will reclaim it.
        let insert = || keyspace.insert(map, stored, Bucket::new(), guard);
        // While the ticket is held, the hand passes by.
        let (bucket, start) = protocol::insert_uncharged(self, insert)?;
        if ticket.is_rare() {
            // A table that the map has grown out of waits for 31 more entries to be removed.
            guard.flush();
        }
        keyspace.engine.charge(FoundBucket::Map(bucket, origin), Some(start), read, *call).map(Ok)
    }

    /// Makes an entry for a key that has none; if there is no room, decides without.
    fn enter_table(
        self,
        table: &Table,
        read: impl ReadClock,
        call: &Call<'_>,
    ) -> Option<Result<Done, Denied>> {
        let (engine, hash) = (&self.keyspace.engine, self.key.full);
        let look = table.look(hash, engine);
        if call.never_writes(&look.idle.reading) {
            return Some(Ok(self.look(read, *call).1));
        }
        let no_room = || self.without_room(read, call, || Some(table.due(hash, engine)));
        table.insert(engine, self, (hash, &look), read, call, no_room)
    }

    fn without_room(
        self,
        read: impl ReadClock,
        call: &Call<'_>,
        due: impl FnOnce() -> Option<u64>,
    ) -> Option<Result<Done, Denied>> {
        let (Keyspace { engine, when_full, .. }, Parts { counters, .. }) =
            (self.keyspace, self.keyspace.parts());
        match when_full {
            WhenFull::Share if self.overflow_set != OverflowSet::None => {
                let mut done = protocol::acquire_overflow(engine, self, read, *call)?;
                counters.shared.fetch_add(1, Ordering::Relaxed);
                done.outcome.origin = Origin::Overflow(self.key.full);
                Some(Ok(done))
            }
            // The thread that took the last room may have done so for this very key.
            _ if self.get().is_some() => None,
            WhenFull::Share | WhenFull::Deny => {
                counters.refused_full.fetch_add(1, Ordering::Relaxed);
                Some(Err(Denied::full(call.take.n(), read.read(State::FULL).nanos(), due())))
            }
            WhenFull::Allow => {
                counters.allowed_full.fetch_add(1, Ordering::Relaxed);
                // The outcome on a full bucket.
                let reading = read.read(State::FULL);
                let (outcome, _) = call.apply(State::FULL, &reading);
                Some(Ok((TakeOutcome { origin: Origin::Nowhere, ..outcome }, reading).into()))
            }
        }
    }
}

impl<K: Hash + Eq> Keyspace<K> {
    /// Inserts a key into the map, if it is not there. An insertion that moves entries says so.
    pub(crate) fn insert<'g>(
        &self,
        map: &Map<K>,
        key: EntryKey<K>,
        bucket: Bucket,
        guard: &'g LocalGuard<'_>,
    ) -> Option<&'g Bucket> {
        let (inserted, moved) = moves::insert(|| map.try_insert(key, bucket, guard).ok());
        if let (Some(moved), Store::Map(buckets)) = (moved, &self.store) {
            buckets.moves.begin(moved);
        }
        inserted
    }

    /// Returns the entry of a key, for a call that is not decided by an attempt.
    #[inline]
    pub(crate) fn entry<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        pin: &'a StoreGuard<'a, K>,
        key: KeyQuery<'a, Q>,
    ) -> KeyEntry<'a, K, Q> {
        self.sweep_if_due();
        KeyEntry { keyspace: self, pin, key, overflow_set: OverflowSet::Own }
    }
}

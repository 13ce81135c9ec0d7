//! A key's place in the limiter's store: how it gets an entry, and what becomes of it if there is no room.

use std::hash::Hash;
use std::sync::atomic::Ordering;

use papaya::LocalGuard;

use crate::bucket::atomic::{Bucket, Read};
use crate::bucket::engine::Done;
use crate::keyed::id::BucketId;
use crate::keyed::id::EntryId;
use crate::keyed::key::{CollisionCount, EntryKey, KeyQuery, ToKey};
use crate::keyed::keyspace::Keyspace;
use crate::keyed::overflow::{OverflowSet, WhenFull};
use crate::keyed::protocol;
use crate::keyed::protocol::{Entry, is_removable};
use crate::keyed::ring::Probe;
use crate::keyed::store::{FoundBucket, MapStore, StoreGuard};
use crate::keyed::table::{Insertion, Table};
use crate::sync::yield_now;
use crate::word::decision::Denied;
use crate::word::plan::Plan;
use crate::word::state::{Origin, Outcome, State};
use crate::word::terms::{EVICTION_GRACE, Reading, Refill};
use crate::word::verb::Take;

/// Keys of one hash that are held. papaya probes some 30 places at least and then moves to a larger table, for ever
/// if that does not spread the keys.
const MAX_COLLISIONS: usize = 8;

/// A key's place in the store.
pub(crate) struct KeyEntry<'a, K, Q: ?Sized> {
    pub(crate) keyspace: &'a Keyspace<K>,
    pub(crate) pin: &'a StoreGuard<'a, K>,
    pub(crate) key: KeyQuery<'a, Q>,
    /// What it shares while it has no entry.
    overflow_set: OverflowSet,
}

impl<K, Q: ?Sized> KeyEntry<'_, K, Q> {
    /// The same place, for a call under a plan.
    pub(crate) fn under(self, plan: &Plan) -> Self {
        KeyEntry { overflow_set: OverflowSet::of(Some(plan)), ..self }
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
        match self.pin {
            StoreGuard::Map(buckets, guard) => buckets.map.get(&self.key, guard).map(FoundBucket::Map),
            StoreGuard::Table(table) => table.search(self.key.full).map(FoundBucket::Table),
        }
    }

    fn is_present(self) -> bool {
        match self.pin {
            StoreGuard::Map(..) => self.get().is_some(),
            StoreGuard::Table(table) => table.is_present(self.key.full),
        }
    }

    fn insert<P: Refill>(self, read: impl Read<Reading<P>>, step: Take) -> Option<Done<P>> {
        // A new reading: that of a reserved word is never one from before.
        let reading = read.read(State::FULL);
        if step.never_writes(&reading.refill) {
            return Some(Ok(protocol::peek(&self.keyspace.engine, self, read, step)));
        }
        match self.pin {
            StoreGuard::Map(buckets, guard) => self.enter_map(buckets, guard, read, step, reading),
            StoreGuard::Table(table) => self.enter_table(table, read, step, reading),
        }
    }

    fn is_spread(self, bucket: &Bucket) -> bool {
        let Some(hot) = &self.keyspace.hot else { return false };
        let id = BucketId::of(bucket);
        let stays = hot.is_hot(id);
        if stays {
            // It is due, but for that.
            self.keyspace.demote_if_idle(hot, self.pin, hot.slot(id), self.keyspace.engine.clock.nanos());
        }
        stays
    }

    fn back_off(self) {
        if let StoreGuard::Table(_) = self.pin {
            yield_now();
        }
    }

    fn remove_sealed(self) {
        if let StoreGuard::Map(MapStore { map, .. }, guard) = self.pin {
            let _ = map.remove_if(&self.key, |_, bucket| is_removable(bucket), guard);
        }
    }

    fn overflow_bucket(self) -> &'a Bucket {
        self.keyspace.overflow.bucket(self.overflow_set, self.key.hash)
    }
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized> KeyEntry<'_, K, Q> {
    /// Makes an entry for a key that has none; if there is no room, decides without.
    #[cold]
    fn enter_map<P: Refill>(
        self,
        MapStore { map, ring }: &MapStore<K>,
        guard: &LocalGuard<'_>,
        read: impl Read<Reading<P>>,
        step: Take,
        reading: Reading<P>,
    ) -> Option<Done<P>> {
        let (keyspace, KeyQuery { hash, key, .. }) = (self.keyspace, self.key);
        let now = reading.nanos();
        if CollisionCount::count(map, hash, guard) >= MAX_COLLISIONS {
            // Until one of them has been forgotten.
            return self.without_room(read, step, reading, Some(now.saturating_add(EVICTION_GRACE)));
        }
        // Evicts the entry of a tag, if it is still there and may be evicted.
        let look = |tag: EntryId| {
            let Some(bucket) = map.get(&tag, guard) else { return Probe::Gone };
            match keyspace.seal_if_idle(bucket, now) {
                Ok(sealed) => {
                    keyspace.counters.evicted.fetch_add(u64::from(sealed), Ordering::Relaxed);
                    let _ = map.remove_if(&tag, |_, bucket| is_removable(bucket), guard);
                    Probe::Gone
                }
                Err(due) => Probe::Stays { due },
            }
        };
        let mut ticket = match ring.admit(now, look) {
            Ok(ticket) => ticket,
            Err(due) => return self.without_room(read, step, reading, due),
        };
        let key = key.to_key();
        let stored = EntryKey { tag: ticket.admits(hash), key };
        // Somebody else may have inserted the key. Then the ticket is found to be nobody's by the next who needs it.
        let bucket = map.try_insert(stored, Bucket::new(), guard).ok()?;
        // While the ticket is held, the hand passes by.
        let done = match &keyspace.hot {
            None => protocol::charge_new(&keyspace.engine, bucket, self.overflow_bucket(), read, step),
            // Others may have charged it meanwhile, and often.
            Some(hot) => protocol::charge_new(
                &keyspace.engine,
                hot.whole(bucket, BucketId::of(bucket)),
                self.overflow_bucket(),
                read,
                step,
            ),
        };
        done.map(Ok)
    }

    /// Makes an entry for a key that has none; if there is no room, decides without.
    #[cold]
    fn enter_table<P: Refill>(
        self,
        table: &Table,
        read: impl Read<Reading<P>>,
        step: Take,
        reading: Reading<P>,
    ) -> Option<Done<P>> {
        match table.insert(&self.keyspace.engine, self, self.key.full, read, step) {
            Insertion::Decided(done) => Some(Ok(done)),
            Insertion::Already => None,
            Insertion::NoRoom { due } => self.without_room(read, step, reading, Some(due)),
        }
    }

    fn without_room<P: Refill>(
        self,
        read: impl Read<Reading<P>>,
        step: Take,
        reading: Reading<P>,
        due: Option<u64>,
    ) -> Option<Done<P>> {
        // Whoever took the last room may have done so for this very key.
        if self.get().is_some() {
            return None;
        }
        let keyspace = self.keyspace;
        match keyspace.when_full {
            WhenFull::Share if self.overflow_set != OverflowSet::None => {
                let (outcome, reading) = protocol::acquire_overflow(&keyspace.engine, self, read, step)?;
                keyspace.counters.shared.fetch_add(1, Ordering::Relaxed);
                Some(Ok((Outcome { origin: Origin::Overflow(self.key.hash), ..outcome }, reading)))
            }
            WhenFull::Share | WhenFull::Deny => {
                keyspace.counters.refused_full.fetch_add(1, Ordering::Relaxed);
                Some(Err(Denied::full(step.tokens(), reading.nanos(), due)))
            }
            WhenFull::Allow => {
                keyspace.counters.allowed_full.fetch_add(1, Ordering::Relaxed);
                let (refill, terms) = (&reading.refill, reading.refill.terms());
                let taken = terms.units(step.tokens()).min(refill.capacity() - terms.empty_level);
                let level = refill.capacity() - taken;
                let outcome = Outcome { granted: true, taken, level, lag: 0, origin: Origin::Nowhere };
                Some(Ok((outcome, reading)))
            }
        }
    }
}

impl<K: Hash + Eq> Keyspace<K> {
    #[inline]
    pub(crate) fn entry<'a, Q: ToKey<K> + ?Sized>(
        &'a self,
        pin: &'a StoreGuard<'a, K>,
        key: KeyQuery<'a, Q>,
    ) -> KeyEntry<'a, K, Q> {
        KeyEntry { keyspace: self, pin, key, overflow_set: OverflowSet::Own }
    }
}

//! Changes to many keys, and removals: a new rule, `remove`, `clear`, `evict_idle`.

use std::hash::Hash;
use std::sync::atomic::Ordering;

use crate::bucket::atomic::Bucket;
use crate::keyed::idle;
use crate::keyed::key::{EntryKey, KeyQuery, ToKey};
use crate::keyed::keyspace::Keyspace;
use crate::keyed::protocol::Entry;
use crate::keyed::store::{FoundBucket, Store, StoreGuard};
use crate::keyed::table::SlotRef;
use crate::word::state::State;

impl<K: Eq> Keyspace<K> {
    /// Lets new keys look for room, and callers in line set their timers anew, after a change of
    /// the rule.
    pub(crate) fn rule_was_set(&self) {
        self.made_room();
        self.unset_timers();
    }
}

impl<K: Hash + Eq> Keyspace<K> {
    pub(crate) fn remove<Q: ToKey<K> + ?Sized>(&self, pin: &StoreGuard<'_, K>, key: KeyQuery<'_, Q>) -> bool {
        let origin = self.parts().lines.are_made().then(|| self.entry(pin, key).origin()).flatten();
        let live = self.remove_bucket(pin, key);
        if let Some(origin) = origin {
            self.serve_lines(pin, Some(origin));
        }
        live
    }

    fn remove_bucket<Q: ToKey<K> + ?Sized>(&self, pin: &StoreGuard<'_, K>, key: KeyQuery<'_, Q>) -> bool {
        let entry = self.entry(pin, key);
        let Some(found) = entry.get() else { return false };
        if let (StoreGuard::Table(_), true) = (pin, idle::forgets_in_place(&self.engine)) {
            return idle::forget(&self.engine, found, || self.shard(entry.key).raise());
        }
        if idle::forgets_only_idle(&self.engine) {
            let Ok(Some(sealed)) = idle::seal_if_idle(&self.engine, found) else { return false };
            match (pin, found) {
                (StoreGuard::Table(table), FoundBucket::Table(held, _)) => {
                    table.leave_idle(held, idle::vacated(&self.engine, sealed));
                }
                _ => entry.remove_sealed(),
            }
            self.made_room();
            return true;
        }
        let live = idle::seal(found, || self.shard(entry.key).raise());
        match (pin, found) {
            (StoreGuard::Table(table), FoundBucket::Table(held, _)) if live => {
                table.vacate(held, &self.engine)
            }
            _ => entry.remove_sealed(),
        }
        self.made_room();
        live
    }

    /// Removes every key.
    pub(crate) fn clear(&self) {
        if idle::forgets_only_idle(&self.engine) {
            self.evict_idle();
            return;
        }
        match &self.store {
            Store::Map(buckets) => {
                let Some(map) = buckets.if_made() else { return };
                let stays = |stored: &EntryKey<K>, bucket: &Bucket| {
                    idle::seal(bucket, || self.parts().removals.of(stored.tag.hash).raise());
                    false
                };
                map.retain(stays, &map.guard());
            }
            Store::Table(table) => {
                let seal = |held: SlotRef<'_>| {
                    let raise = || self.parts().removals.of(held.hash()).raise();
                    if !idle::forgets_in_place(&self.engine) {
                        return idle::seal(held, raise);
                    }
                    idle::forget(&self.engine, held, raise);
                    false
                };
                table.clear(&self.engine, seal);
            }
        }
        self.made_room();
        self.serve_lines(&self.store.pin(), None);
    }

    /// Evicts idle windows if the stamps of others that are left alone may be about to wrap.
    pub(crate) fn sweep_if_due(&self) {
        self.engine.sweep_if_due(|| _ = self.evict_idle());
    }

    pub(crate) fn evict_idle(&self) -> usize {
        if !self.engine.starts_full() {
            return 0;
        }
        let before = self.engine.read();
        let evicted = match &self.store {
            Store::Map(buckets) => {
                let mut evicted = 0;
                let stays = |_: &EntryKey<K>, bucket: &Bucket| {
                    // Never charged: another thread's first take is under way.
                    if bucket.state() == State::FULL {
                        return true;
                    }
                    let sealed = idle::seal_if_idle(&self.engine, bucket);
                    evicted += usize::from(matches!(sealed, Ok(Some(_))));
                    sealed.is_err()
                };
                if let Some(map) = buckets.if_made() {
                    map.retain(stays, &map.guard());
                }
                evicted
            }
            Store::Table(table) => table.evict_idle(|bucket| {
                let sealed = idle::seal_if_idle(&self.engine, bucket).ok().flatten();
                sealed.map(|sealed| idle::vacated(&self.engine, sealed))
            }),
        };
        if self.engine.counts_windows() {
            if let Some(parts) = self.parts_if_made() {
                parts.overflow.each_own(|bucket| idle::restamp(&self.engine, bucket));
            }
            self.engine.swept(&before);
        }
        if evicted > 0 {
            self.parts().counters.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
            self.made_room();
        }
        evicted
    }
}

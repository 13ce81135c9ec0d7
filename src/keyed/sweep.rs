//! Changes to many keys, and removals: a new quota, `remove`, `clear`, `evict_idle`.

use std::hash::Hash;
use std::sync::atomic::Ordering;

use crate::bucket::atomic::Bucket;
use crate::bucket::engine::Place;
use crate::bucket::live_terms::Change;
use crate::keyed::key::{ByKey, Stored, ToKey};
use crate::keyed::keyspace::Keyspace;
use crate::keyed::store::{Buckets, Found, Pin, Store};
use crate::keyed::table::Held;
use crate::quota::rate::{InvalidQuota, Quota};
use crate::word::state::State;

impl<K: Eq> Keyspace<K> {
    pub(crate) fn set_quota(&self, quota: Quota) -> Result<(), InvalidQuota> {
        if self.rules.source.set(quota, &self.rules.clock)? == Change::LowerBurst {
            self.gather_after_a_lower_burst();
        }
        self.made_room();
        Ok(())
    }
}

impl<K: Hash + Eq> Keyspace<K> {
    pub(crate) fn remove<Q: ToKey<K> + ?Sized>(&self, pin: &Pin<'_, K>, key: ByKey<'_, Q>) -> bool {
        let place = self.place(pin, key);
        let Some(found) = place.search() else { return false };
        let live = self.rules.seal(found, || self.shard(pin, place.key).raise());
        if live && let Some(hot) = &self.hot {
            hot.forget(found.id());
        }
        match (pin, found) {
            (Pin::Table(table), Found::Inline(held)) if live => table.vacate(held, &self.rules),
            _ => place.bury(),
        }
        self.made_room();
        live
    }

    /// Forgets every key.
    pub(crate) fn clear(&self) {
        match &self.store {
            Store::Map(Buckets { map, .. }) => {
                let stays = |stored: &Stored<K>, bucket: &Bucket| {
                    if self.rules.seal(bucket, || self.removals.of(stored.tag.hash).raise()) {
                        self.sealed(bucket);
                    }
                    false
                };
                map.retain(stays, &map.guard());
            }
            Store::Table(table) => {
                let seal = |held: Held<'_>| self.rules.seal(held, || self.removals.of(held.hash()).raise());
                table.clear(&self.rules, seal, |bucket| self.sealed(bucket));
            }
        }
        self.made_room();
    }

    pub(crate) fn evict_idle(&self) -> usize {
        if !self.rules.starts_full() {
            return 0;
        }
        self.fold_idle();
        let evicted = match &self.store {
            Store::Map(Buckets { map, .. }) => {
                let mut evicted = 0;
                let stays = |_: &Stored<K>, bucket: &Bucket| {
                    // Never charged: somebody's first use is under way.
                    if bucket.state() == State::FULL {
                        return true;
                    }
                    let sealed = self.seal_if_idle(bucket, 0);
                    evicted += usize::from(sealed == Ok(true));
                    sealed.is_err()
                };
                map.retain(stays, &map.guard());
                evicted
            }
            Store::Table(table) => table.evict_idle(|bucket| self.seal_if_idle(bucket, 0) == Ok(true)),
        };
        self.counters.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
        if evicted > 0 {
            self.made_room();
        }
        evicted
    }
}

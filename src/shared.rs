//! What all handles to one limiter share: the map, its bound, and what happens at the bound.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use papaya::LocalGuard;

use crate::bucket::Bucket;
use crate::builder::{Builder, WhenFull};
use crate::decision::{Denied, Granted, Snapshot};
use crate::entry::{Place, Rules};
use crate::eviction::{Look, Ring};
use crate::key::{Alike, ByKey, Carried, Map, Stored, Tag, ToKey};
use crate::quota::Quota;
use crate::state::{Outcome, State};

/// Buckets that keys without room share.
const OVERFLOW: usize = 1024;
/// Keys of one hash that are held. papaya probes some 30 places at least and then moves to a larger table, for ever
/// if that does not spread the keys.
const MOST_ALIKE: usize = 8;

pub(crate) struct Shared<K, S> {
    pub(crate) map: Map<K>,
    hasher: S,
    rules: Rules,
    pub(crate) quota: Quota,
    pub(crate) when_full: WhenFull,
    overflow: Box<[Bucket]>,
    ring: Ring,
    counters: CachePadded<Counters>,
}

#[derive(Default)]
struct Counters {
    evicted: AtomicU64,
    shared: AtomicU64,
    refused_full: AtomicU64,
    allowed_full: AtomicU64,
}

/// What a limiter holds and did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys held now.
    pub keys: usize,
    /// Buckets evicted, full, to make room or by [`evict_idle`](crate::RateLimiter::evict_idle).
    pub evicted: u64,
    /// Decisions on shared buckets, by [`WhenFull::Share`].
    pub shared: u64,
    /// Decisions denied for want of room, by [`WhenFull::Deny`].
    pub refused_full: u64,
    /// Decisions granted for want of room, by [`WhenFull::Allow`].
    pub allowed_full: u64,
}

impl<K, S> Shared<K, S> {
    pub(crate) fn new(set: Builder<K, S>) -> Shared<K, S> {
        Shared {
            map: Map::with_capacity_and_hasher(set.presize.min(set.max_keys), Carried::default()),
            hasher: set.hasher,
            rules: Rules { terms: set.quota.compile(), clock: set.clock },
            quota: set.quota,
            when_full: set.when_full,
            overflow: (0..OVERFLOW).map(|_| Bucket::new()).collect(),
            ring: Ring::new(set.max_keys),
            counters: CachePadded::default(),
        }
    }
}

impl<K: Eq, S> Shared<K, S> {
    pub(crate) fn stats(&self) -> Stats {
        let Counters { evicted, shared, refused_full, allowed_full } = &*self.counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            keys: self.map.len(),
            evicted: count(evicted),
            shared: count(shared),
            refused_full: count(refused_full),
            allowed_full: count(allowed_full),
        }
    }
}

/// A key's place in papaya's map.
struct Slot<'a, K, Q: ?Sized> {
    map: &'a Map<K>,
    guard: &'a LocalGuard<'a>,
    key: ByKey<'a, Q>,
}

impl<K: Hash + Eq, Q: ToKey<K> + ?Sized> Place for Slot<'_, K, Q> {
    #[inline]
    fn find(&self) -> Option<&Bucket> {
        self.map.get(&self.key, self.guard)
    }

    #[cold]
    fn bury(&self) {
        let _ = self.map.remove_if(&self.key, |_, bucket| bucket.state() == State::SEALED, self.guard);
    }
}

impl<K: Hash + Eq, S: BuildHasher> Shared<K, S> {
    #[inline]
    fn place<'a, Q: ToKey<K> + ?Sized>(&'a self, guard: &'a LocalGuard<'a>, key: &'a Q) -> Slot<'a, K, Q> {
        Slot { map: &self.map, guard, key: ByKey::new(&self.hasher, key) }
    }

    /// The bucket a key shares when there is no room for it.
    #[inline]
    fn overflow(&self, hash: u32) -> &Bucket {
        &self.overflow[(hash >> (u32::BITS - OVERFLOW.ilog2())) as usize]
    }

    #[inline]
    pub(crate) fn try_acquire_n<Q: ToKey<K> + ?Sized>(
        &self,
        guard: &LocalGuard<'_>,
        key: &Q,
        n: u64,
    ) -> Result<Granted, Denied> {
        let terms = &self.rules.terms;
        let need = match terms.need(n) {
            None => return Err(Denied::too_many(self.peek(guard, key))),
            Some(0) => return Ok(self.peek(guard, key).granted()),
            Some(need) => need,
        };
        let place = self.place(guard, key);
        self.rules.acquire(
            &place,
            need,
            self.overflow(place.key.hash),
            |outcome, now| outcome.decision(terms, need, now),
            || self.admit(&place, need),
        )
    }

    /// Makes an entry for a key that has none; if there is no room, decides without.
    #[cold]
    fn admit<Q: ToKey<K> + ?Sized>(
        &self,
        place: &Slot<'_, K, Q>,
        need: u64,
    ) -> Option<Result<Granted, Denied>> {
        let now = self.rules.clock.nanos();
        let ByKey { hash, key } = place.key;
        // Whoever took the last room may have done so for this very key.
        let no_room = |due| match place.find() {
            Some(_) => None,
            None => self.without_room(place, need, now, due),
        };
        if Alike::count(place.map, hash, place.guard) >= MOST_ALIKE {
            return no_room(Some(now));
        }
        let mut ticket = match self.ring.admit(now, |tag| self.look(place.guard, tag)) {
            Ok(ticket) => ticket,
            Err(due) => return no_room(due),
        };
        let key = key.to_key();
        let stored = Stored { tag: ticket.admits(hash), key };
        let Ok(bucket) = self.map.try_insert(stored, Bucket::new(), place.guard) else {
            ticket.free();
            return None;
        };
        // While the ticket is held, the hand passes by.
        let (outcome, now) = self.rules.first_charge(bucket, need, self.overflow(hash))?;
        Some(outcome.decision(&self.rules.terms, need, now))
    }

    fn without_room<Q: ToKey<K> + ?Sized>(
        &self,
        place: &Slot<'_, K, Q>,
        need: u64,
        now: u64,
        due: Option<u64>,
    ) -> Option<Result<Granted, Denied>> {
        let Rules { terms, .. } = &self.rules;
        match self.when_full {
            WhenFull::Share => {
                let overflow = self.overflow(place.key.hash);
                let (outcome, now) = self.rules.acquire_overflow(place, need, overflow)?;
                self.counters.shared.fetch_add(1, Ordering::Relaxed);
                Some(outcome.decision(terms, need, now))
            }
            WhenFull::Deny => {
                self.counters.refused_full.fetch_add(1, Ordering::Relaxed);
                Some(Err(Denied::full(now, due)))
            }
            WhenFull::Allow => {
                self.counters.allowed_full.fetch_add(1, Ordering::Relaxed);
                let outcome = Outcome { granted: true, level: terms.capacity - need, lag: 0 };
                Some(outcome.decision(terms, need, now))
            }
        }
    }

    /// Evicts the entry of this tag, if it is still there and may be evicted.
    fn look(&self, guard: &LocalGuard<'_>, tag: Tag) -> Look {
        let Some(bucket) = self.map.get(&tag, guard) else { return Look::Gone };
        match self.rules.seal_if_idle(bucket) {
            Ok(sealed) => {
                self.counters.evicted.fetch_add(u64::from(sealed), Ordering::Relaxed);
                let _ = self.map.remove_if(&tag, |_, bucket| bucket.state() == State::SEALED, guard);
                Look::Gone
            }
            Err(due) => Look::Stays { due },
        }
    }

    pub(crate) fn peek<Q: ToKey<K> + ?Sized>(&self, guard: &LocalGuard<'_>, key: &Q) -> Snapshot {
        let Rules { terms, .. } = &self.rules;
        let place = self.place(guard, key);
        self.rules.peek(place.find(), self.overflow(place.key.hash), |state, now| {
            Snapshot::new(terms, state.at(terms, terms.ticks.tick(now)), now)
        })
    }

    pub(crate) fn remove<Q: ToKey<K> + ?Sized>(&self, guard: &LocalGuard<'_>, key: &Q) -> bool {
        let place = self.place(guard, key);
        let Some(bucket) = place.find() else { return false };
        let live = self.rules.seal(bucket);
        place.bury();
        live
    }

    /// Forgets every key.
    pub(crate) fn clear(&self) {
        let seal = |_: &Stored<K>, bucket: &Bucket| {
            self.rules.seal(bucket);
            false
        };
        self.map.retain(seal, &self.map.guard());
    }

    pub(crate) fn evict_idle(&self) -> usize {
        let mut evicted = 0;
        let stays = |_: &Stored<K>, bucket: &Bucket| {
            // Never charged: somebody's first use is under way.
            if bucket.state() == State::FULL {
                return true;
            }
            let sealed = self.rules.seal_if_idle(bucket);
            evicted += usize::from(sealed == Ok(true));
            sealed.is_err()
        };
        self.map.retain(stays, &self.map.guard());
        self.counters.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
        evicted
    }
}

//! Two-choice hashing: the two sets of a key, and how its slot is found and given up.

use std::sync::atomic::{self, AtomicUsize, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use super::memory::{self, Memory};
use super::set::{LATCH, Set, Slot, SlotRef, fingerprint};
use crate::bucket::atomic::{Bucket, BucketRef};
use crate::bucket::engine::Engine;
use crate::fault::{Fault, injected};
use crate::keyed::key::mix;
use crate::sync::{MODEL, Ordering};
use crate::word::state::State;
use crate::word::terms::Reading;

/// Keys of a set on average, of 8 slots: both sets of a key are then hardly ever in use.
pub(super) const KEYS_PER_SET: usize = if MODEL { 1 } else { 6 };
pub(crate) struct Table {
    sets: Memory,
    pub(super) counts: CachePadded<Counts>,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) held: AtomicUsize,
    pub(super) evicted: atomic::AtomicU64,
}

impl Table {
    pub(crate) fn new(keys: usize) -> Table {
        let sets = keys.div_ceil(KEYS_PER_SET).max(1);
        Table { sets: memory::empty(sets), counts: CachePadded::default() }
    }

    /// Returns the number of keys held.
    pub(crate) fn len(&self) -> usize {
        self.counts.held.load(Relaxed)
    }

    /// Returns the number of keys evicted so far.
    pub(crate) fn evicted(&self) -> u64 {
        self.counts.evicted.load(Relaxed)
    }

    /// Returns the sets of a key, the primary one first.
    #[inline(always)]
    pub(super) fn sets(&self, hash: u64) -> [&Set; 2] {
        let mixed = mix(hash);
        [self.set(mixed >> 32), self.set(mixed & u64::from(u32::MAX))]
    }

    /// Returns a set by a number below 2^32.
    #[inline(always)]
    fn set(&self, part: u64) -> &Set {
        // The product fits, and the index is below the number of sets.
        &self.sets[((part * self.sets.len() as u64) >> 32) as usize]
    }

    #[cfg(all(test, any(loom, shuttle)))]
    pub(crate) fn has_sets(&self, hash: u64, [primary, secondary]: [usize; 2]) -> bool {
        let [first, second] = self.sets(hash);
        std::ptr::eq(first, &self.sets[primary]) && std::ptr::eq(second, &self.sets[secondary])
    }

    /// Returns the first slot with the key's fingerprint. (Of two, one is about to be another
    /// key's.)
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64) -> Option<SlotRef<'_>> {
        let [primary, secondary] = self.sets(hash);
        let fingerprint = fingerprint(hash);
        match primary.find(fingerprint) {
            None => secondary.find(fingerprint),
            found => found,
        }
    }

    /// Returns the slot that the key holds.
    pub(crate) fn search(&self, hash: u64) -> Option<SlotRef<'_>> {
        self.of(hash).find(|held| held.state() != State::SEALED)
    }

    /// Returns whether the key has a slot, or a thread is inserting it.
    pub(crate) fn is_present(&self, hash: u64) -> bool {
        self.of(hash).any(|held| held.slot.bucket.state() != State::SEALED)
    }

    fn of(&self, hash: u64) -> impl Iterator<Item = SlotRef<'_>> {
        let fingerprint = fingerprint(hash);
        let slots = self.sets(hash).into_iter().flat_map(|set| &set.0);
        slots.filter(move |slot| slot.has(fingerprint)).map(move |slot| SlotRef { slot, fingerprint })
    }

    /// Brings the primary set of a key into the cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) -> u64 {
        let [primary, _] = self.sets(hash);
        let [first, .., last] = &primary.0[..] else { return 0 };
        first.fingerprint.load(Ordering::Relaxed) ^ last.fingerprint.load(Ordering::Relaxed)
    }

    /// Removes all keys that `seal` seals. Calls `sealed` for each while this thread owns the slot.
    pub(crate) fn clear(
        &self,
        engine: &Engine,
        seal: impl Fn(SlotRef<'_>) -> bool,
        sealed: impl Fn(&Bucket),
    ) {
        for slot in self.slots().filter(|slot| slot.is_held()) {
            let held = SlotRef { slot, fingerprint: slot.fingerprint.load(Ordering::Acquire) & !LATCH };
            if seal(held) {
                sealed(&slot.bucket);
                self.vacate(held, engine);
            }
        }
    }

    /// Evicts each key whose bucket `seal` seals, and returns their number.
    pub(crate) fn evict_idle(&self, seal: impl Fn(&Bucket) -> bool) -> usize {
        let sealed = |slot: &&Slot| slot.is_held() && seal(&slot.bucket);
        // A slot that another thread emptied first is not counted.
        self.slots().filter(sealed).filter(|slot| self.leave(slot, State::FULL)).count()
    }

    /// Returns the slot whose bucket has this address, with any key.
    pub(crate) fn held_at(&self, address: u64) -> Option<SlotRef<'_>> {
        let from = usize::try_from(address).ok()?.checked_sub(self.sets.as_ptr().addr())?;
        let set = self.sets.get(from / size_of::<Set>())?;
        let slot = set.0.get(from % size_of::<Set>() / size_of::<Slot>())?;
        let fingerprint = slot.fingerprint.load(Ordering::Acquire) & !LATCH;
        Some(SlotRef { slot, fingerprint })
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.sets.iter().flat_map(|set| &set.0)
    }

    /// Gives up a slot that this thread has sealed, with any level.
    ///
    /// No key gets the slot within the eviction grace. Otherwise the next key could have, at this
    /// very tick, the word of this one, and be charged by a thread that is about to commit on that.
    pub(crate) fn vacate(&self, SlotRef { slot, .. }: SlotRef<'_>, engine: &Engine) {
        let Reading { refill, tick, .. } = engine.read();
        self.leave(
            slot,
            if injected(Fault::RemovedAtOnce) { State::FULL } else { State::tombstone(&refill, tick) },
        );
    }

    /// Empties a slot that this thread has sealed. Returns whether it had a key.
    pub(super) fn leave(&self, slot: &Slot, state: State) -> bool {
        let held = slot.change(0);
        if held {
            self.counts.held.fetch_sub(1, Relaxed);
        }
        slot.bucket.set(state);
        held
    }
}

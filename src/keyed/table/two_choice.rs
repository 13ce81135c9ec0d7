//! The slots of a key in a table: two sets by hash, found, given up and emptied.

use std::sync::atomic::{self, AtomicUsize, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use super::memory::{self, Memory};
use super::set::{LATCH, Set, Slot, SlotRef, fingerprint};
use crate::bucket::atomic::{Bucket, BucketRef};
use crate::bucket::engine::Engine;
use crate::fault::{Fault, injected};
use crate::keyed::id::mix;
use crate::sync::Ordering;
use crate::word::state::State;
use crate::word::terms::Reading;

/// A table of so many keys has sets for a third more: then hardly ever are both sets of a key in use.
pub(super) const KEYS_PER_SET: usize = if cfg!(all(test, any(loom, shuttle))) { 1 } else { 6 };
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

    /// Keys held.
    pub(crate) fn len(&self) -> usize {
        self.counts.held.load(Relaxed)
    }

    /// Keys that were evicted so far.
    pub(crate) fn evicted(&self) -> u64 {
        self.counts.evicted.load(Relaxed)
    }

    /// The sets of a key, the home first.
    #[inline(always)]
    pub(super) fn sets(&self, hash: u64) -> [&Set; 2] {
        let mixed = mix(hash);
        [self.set(mixed >> 32), self.set(mixed & u64::from(u32::MAX))]
    }

    /// By a number below 2^32.
    #[inline(always)]
    fn set(&self, part: u64) -> &Set {
        // So the product fits, and the index is below the number of sets.
        &self.sets[((part * self.sets.len() as u64) >> 32) as usize]
    }

    #[cfg(all(test, any(loom, shuttle)))]
    pub(crate) fn has_sets(&self, hash: u64, [primary, secondary]: [usize; 2]) -> bool {
        let [first, second] = self.sets(hash);
        std::ptr::eq(first, &self.sets[primary]) && std::ptr::eq(second, &self.sets[secondary])
    }

    /// The slot that has the key's digest, if there is one; of two, the first. (One is then about to be another's.)
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64) -> Option<SlotRef<'_>> {
        let [primary, secondary] = self.sets(hash);
        let fingerprint = fingerprint(hash);
        match primary.find(fingerprint) {
            None => secondary.find(fingerprint),
            found => found,
        }
    }

    /// The slot of the key.
    pub(crate) fn search(&self, hash: u64) -> Option<SlotRef<'_>> {
        self.of(hash).find(|held| held.state() != State::SEALED)
    }

    /// Whether the key has a slot, or is just getting one.
    pub(crate) fn is_present(&self, hash: u64) -> bool {
        self.of(hash).any(|held| held.slot.bucket.state() != State::SEALED)
    }

    fn of(&self, hash: u64) -> impl Iterator<Item = SlotRef<'_>> {
        let fingerprint = fingerprint(hash);
        let slots = self.sets(hash).into_iter().flat_map(|set| &set.0);
        slots.filter(move |slot| slot.has(fingerprint)).map(move |slot| SlotRef { slot, fingerprint })
    }

    /// Brings the home of a key into the cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) -> u64 {
        let [primary, _] = self.sets(hash);
        let [first, .., last] = &primary.0[..] else { return 0 };
        first.fingerprint.load(Ordering::Relaxed) ^ last.fingerprint.load(Ordering::Relaxed)
    }

    /// Forgets all keys that `seal` seals; `sealed` is told of each before it is another's.
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

    /// Forgets each key whose bucket this seals, as it may be forgotten; and tells how many.
    pub(crate) fn evict_idle(&self, seal: impl Fn(&Bucket) -> bool) -> usize {
        let sealed = |slot: &&Slot| slot.is_held() && seal(&slot.bucket);
        // One that somebody else has emptied by then was no key's.
        self.slots().filter(sealed).filter(|slot| self.leave(slot, State::FULL)).count()
    }

    /// The slot whose bucket is there, whosever it is now.
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

    /// Gives up a slot that this call has sealed, whatever its bucket held.
    ///
    /// Within the margin nobody gets it: a key that did might have, at this very tick, the word that this one had, and be
    /// charged by who is still about to commit on that.
    pub(crate) fn vacate(&self, SlotRef { slot, .. }: SlotRef<'_>, engine: &Engine) {
        let Reading { refill, tick, .. } = engine.read();
        self.leave(
            slot,
            if injected(Fault::RemovedAtOnce) { State::FULL } else { State::tombstone(&refill, tick) },
        );
    }

    /// Takes the key of a slot from it, which this call has sealed. True if it had one.
    pub(super) fn leave(&self, slot: &Slot, state: State) -> bool {
        let held = slot.change(0);
        if held {
            self.counts.held.fetch_sub(1, Relaxed);
        }
        slot.bucket.set(state);
        held
    }
}

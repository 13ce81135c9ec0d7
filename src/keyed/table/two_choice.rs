//! Two-choice hashing: the two sets of a key, its line in each, and how its slot is found and given
//! up.

#![allow(clippy::modulo_one, reason = "a model has one line of one slot")]

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{self, AtomicUsize, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use super::set::{LATCH, LINES, Line, SLOTS, SLOTS_PER_LINE, Set, Slot, SlotRef, fingerprint};
use crate::bucket::atomic::{Bucket, BucketRef};
use crate::bucket::engine::Engine;
use crate::fault::{Fault, injected};
use crate::keyed::key::mix;
use crate::sync::{MODEL, Ordering};
use crate::word::state::{Reading, State};

/// Keys of a set on average, of 8 slots: both sets of a key are then hardly ever in use.
pub(super) const KEYS_PER_SET: usize = if MODEL { 1 } else { 6 };

pub(crate) struct Table {
    sets: Box<[Set]>,
    /// Made with the first key.
    counts: OnceLock<Box<CachePadded<Counts>>>,
}

/// A set of a key, and the line of the set that the key prefers.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) set: &'a Set,
    pub(super) preferred: usize,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) held: AtomicUsize,
    pub(super) evicted: atomic::AtomicU64,
}

impl<'a> Choice<'a> {
    /// Returns the lines of the set, the preferred one first.
    fn lines(self) -> [&'a Line; LINES] {
        array::from_fn(|index| &self.set.0[index ^ self.preferred])
    }

    /// Returns the slots of the set, those of the preferred line first.
    pub(super) fn slots(self) -> [&'a Slot; SLOTS] {
        let lines = self.lines();
        array::from_fn(|index| &lines[index / SLOTS_PER_LINE].0[index % SLOTS_PER_LINE])
    }
}

impl Table {
    pub(crate) fn new(keys: usize) -> Table {
        let sets = keys.div_ceil(KEYS_PER_SET).max(1);
        Table { sets: (0..sets).map(|_| Set::empty()).collect(), counts: OnceLock::new() }
    }

    /// Returns the number of keys held.
    pub(crate) fn len(&self) -> usize {
        self.counts.get().map_or(0, |counts| counts.held.load(Relaxed))
    }

    /// Returns the number of keys evicted so far.
    pub(crate) fn evicted(&self) -> u64 {
        self.counts.get().map_or(0, |counts| counts.evicted.load(Relaxed))
    }

    pub(super) fn counts(&self) -> &Counts {
        self.counts.get_or_init(Box::default)
    }

    /// Returns the choices of a key, the primary one first. They depend on its fingerprint only, so
    /// that a saved one is found again.
    #[inline(always)]
    pub(super) fn choices(&self, hash: u64) -> [Choice<'_>; 2] {
        let mixed = mix(fingerprint(hash));
        [self.choice(mixed >> 32), self.choice(mixed & u64::from(u32::MAX))]
    }

    /// Returns a choice by a number below 2^32.
    #[inline(always)]
    fn choice(&self, part: u64) -> Choice<'_> {
        // The product fits: a table has less than 2^32 sets. Its whole part, in units of 2^32, is
        // the set, and the first bits of the rest are the line.
        let product = part * self.sets.len() as u64;
        let line = ((product & u64::from(u32::MAX)) * LINES as u64) >> 32;
        Choice { set: &self.sets[(product >> 32) as usize], preferred: line as usize }
    }

    /// Returns whether a key's primary and secondary set have these indexes.
    #[cfg(test)]
    #[cfg(any(loom, shuttle))]
    pub(crate) fn has_sets(&self, hash: u64, [primary, secondary]: [usize; 2]) -> bool {
        let [first, second] = self.choices(hash);
        std::ptr::eq(first.set, &self.sets[primary]) && std::ptr::eq(second.set, &self.sets[secondary])
    }

    /// Returns the first slot with the key's fingerprint. (Of two, one is about to be another
    /// key's.)
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64) -> Option<SlotRef<'_>> {
        let fingerprint = fingerprint(hash);
        let Choice { set, preferred } = self.choice(mix(fingerprint) >> 32);
        match set.0[preferred].find(fingerprint) {
            None => self.find_further(hash),
            found => found,
        }
    }

    /// Returns the first slot with the key's fingerprint, beyond the line that the key prefers.
    ///
    /// At three quarters of the keys that fit, this is one look in five.
    #[inline(never)]
    fn find_further(&self, hash: u64) -> Option<SlotRef<'_>> {
        let fingerprint = fingerprint(hash);
        let [home, other] = self.choices(hash).map(Choice::lines);
        // Loops: a chain of iterators takes three times the instructions.
        for line in &home[1..] {
            if let Some(found) = line.find(fingerprint) {
                return Some(found);
            }
        }
        for line in other {
            if let Some(found) = line.find(fingerprint) {
                return Some(found);
            }
        }
        None
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
        let slots = self.choices(hash).into_iter().flat_map(Choice::slots);
        slots.filter(move |slot| slot.has(fingerprint)).map(move |slot| SlotRef { slot, fingerprint })
    }

    /// Brings the line that a key prefers into the cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) -> u64 {
        let Choice { set, preferred } = self.choice(mix(fingerprint(hash)) >> 32);
        set.0[preferred].0[0].fingerprint.load(Ordering::Relaxed)
    }

    /// Removes all keys that `seal` seals.
    pub(crate) fn clear(&self, engine: &Engine, seal: impl Fn(SlotRef<'_>) -> bool) {
        for slot in self.slots().filter(|slot| slot.is_held()) {
            let held = SlotRef { slot, fingerprint: slot.fingerprint.load(Ordering::Acquire) & !LATCH };
            if seal(held) {
                self.vacate(held, engine);
            }
        }
    }

    /// Evicts each key whose bucket `seal` seals, and returns their number. `seal` returns the word
    /// of the empty slot.
    pub(crate) fn evict_idle(&self, seal: impl Fn(&Bucket) -> Option<State>) -> usize {
        let evicted = |slot: &&Slot| {
            // A slot that another thread emptied first is not counted.
            slot.is_held() && seal(&slot.bucket).is_some_and(|vacant| self.leave(slot, vacant))
        };
        self.slots().filter(evicted).count()
    }

    /// Returns the number of slots.
    pub(crate) fn slots_in_all(&self) -> usize {
        self.sets.len() * SLOTS
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.sets.iter().flat_map(Set::slots)
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

    /// Empties the slot of a key that this thread has evicted.
    pub(crate) fn leave_idle(&self, SlotRef { slot, .. }: SlotRef<'_>, vacant: State) {
        self.leave(slot, vacant);
    }

    /// Empties a slot that this thread has sealed. Returns whether it had a key.
    pub(super) fn leave(&self, slot: &Slot, state: State) -> bool {
        let held = slot.change(0);
        if held {
            self.counts().held.fetch_sub(1, Relaxed);
        }
        slot.bucket.set(state);
        held
    }
}

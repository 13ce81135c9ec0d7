//! Two-choice hashing: the two sets of a key, its line in each, and how its slot is found and given
//! up.

#![allow(clippy::modulo_one, reason = "a model has one line of one slot")]

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{self, AtomicUsize, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use super::set::{
    LATCH, LINES, Line, SLOTS, SLOTS_PER_LINE, Slot, SlotRef, USED, find_in, fingerprint, mixed,
};
use crate::bucket::atomic::{Bucket, BucketRef};
use crate::bucket::engine::Engine;
use crate::fault::{Fault, injected};
use crate::sync::{AtomicU64, MODEL, Ordering};
use crate::word::state::{Reading, State};

/// Keys of a set on average, of 8 slots: both sets of a key are then hardly ever in use.
pub(super) const KEYS_PER_SET: usize = if MODEL { 1 } else { 6 };

/// Slots by which the first set may be off, to be at the beginning of a pair of cache lines.
const PADDING: usize = SLOTS - 1;

/// The phases of a table: no key was inserted, a restore [fills](super::Filling) it, keys are
/// inserted.
///
/// *Acquire:* a thread that finds it open sees the keys of the restore. Partner: the end of
/// [`Filling`](super::Filling).
pub(super) const NO_KEY: u64 = 0;
pub(super) const FILLING: u64 = 1;
pub(super) const OPEN: u64 = 2;

pub(crate) struct Table {
    /// Those of the sets, and empty ones around them.
    pub(super) slots: Vec<Slot>,
    /// Index of the first slot of the first set, below `SLOTS`.
    first: u32,
    /// Number of slots of all sets, a multiple of `SLOTS`.
    in_sets: u64,
    pub(super) phase: AtomicU64,
    /// Made with the first key.
    counts: OnceLock<Box<CachePadded<Counts>>>,
}

/// The line that a key prefers, of one of its sets.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    table: &'a Table,
    /// Index of the first slot of the line, from that of the first set on.
    line: usize,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) held: AtomicUsize,
    pub(super) evicted: atomic::AtomicU64,
}

impl<'a> Choice<'a> {
    /// Returns the lines of the set, the preferred one first.
    #[inline]
    pub(super) fn lines(self) -> impl Iterator<Item = &'a Line> {
        (0..LINES).map(move |index| self.table.line(self.line ^ (index * SLOTS_PER_LINE)))
    }

    /// Returns the states of the slots.
    pub(super) fn states(self) -> [State; SLOTS] {
        let mut states = [State::SEALED; SLOTS];
        // Loops: a chain of iterators takes three times the time.
        for (line, states) in self.lines().zip(states.chunks_exact_mut(SLOTS_PER_LINE)) {
            for (slot, state) in line.iter().zip(states) {
                *state = slot.state();
            }
        }
        states
    }

    /// Returns a slot of the lines.
    pub(super) fn slot(self, index: usize) -> &'a Slot {
        let line = self.table.line(self.line ^ (index / SLOTS_PER_LINE * SLOTS_PER_LINE));
        &line[index % SLOTS_PER_LINE]
    }

    /// Returns the word whose lowest bit is the latch of the set.
    pub(super) fn latch(self) -> &'a AtomicU64 {
        &self.table.line(self.line / SLOTS * SLOTS)[0].fingerprint
    }
}

impl Table {
    /// Returns a table, or `None` if there is no memory for it.
    pub(crate) fn new(keys: usize) -> Option<Table> {
        let len = Table::slots_for(keys)?;
        // Zeroed pages, which are not touched: slots stay in place, and the compiler removes the
        // loop. If it saw that the words are 0, it would write them.
        let slots: Vec<Slot> = black_box(vec![[0; 2]; len]).into_iter().map(Slot::of).collect();
        let first = (SLOTS - slots.as_ptr().addr() / size_of::<Slot>() % SLOTS) % SLOTS;
        let (first, in_sets) = (first as u32, (len - PADDING) as u64);
        Some(Table { slots, first, in_sets, phase: AtomicU64::new(NO_KEY), counts: OnceLock::new() })
    }

    /// Returns the largest number of keys, by halves, for which there is memory.
    pub(crate) fn most(keys: usize) -> usize {
        let mut fewer = std::iter::successors(Some(keys), |keys| Some(keys / 2));
        fewer.find(|keys| Table::slots_for(*keys).is_some()).expect("few are not tried")
    }

    /// Returns the number of slots for `keys` keys, or `None` if there is no memory for them.
    fn slots_for(keys: usize) -> Option<usize> {
        let len = (keys.div_ceil(KEYS_PER_SET).max(1)).checked_mul(SLOTS)? + PADDING;
        // 33 MiB or more: glibc keeps less once it is freed, and zeros it for the table by writing.
        let tried = if len < 1 << 13 { 0 } else { len.max(33 << 16) };
        black_box(&mut Vec::<Slot>::new()).try_reserve_exact(tried).ok().map(|()| len)
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

    /// Returns whether keys may be inserted, and opens a table that had no key.
    pub(super) fn is_open(&self) -> bool {
        if self.phase.load(Ordering::Acquire) == OPEN {
            return true;
        }
        let opened = self.phase.compare_exchange(NO_KEY, OPEN, Ordering::Acquire, Ordering::Acquire);
        matches!(opened, Ok(_) | Err(OPEN)) || injected(Fault::InsertsWhileFilled)
    }

    /// Returns the choices of a key, the primary one first.
    #[inline(always)]
    pub(super) fn choices(&self, hash: u64) -> [Choice<'_>; 2] {
        self.choices_by(mixed(fingerprint(hash)))
    }

    #[inline(always)]
    fn choices_by(&self, mixed: u64) -> [Choice<'_>; 2] {
        [self.choice(mixed >> 32), self.choice(mixed & u64::from(u32::MAX))]
    }

    /// Returns a choice by a number below 2^32.
    #[inline(always)]
    fn choice(&self, part: u64) -> Choice<'_> {
        // The product fits: a table has less than 2^32 slots. In units of 2^32 it is a slot.
        let slot = ((part * self.in_sets) >> 32) as usize;
        Choice { table: self, line: slot / SLOTS_PER_LINE * SLOTS_PER_LINE }
    }

    #[inline(always)]
    fn line(&self, index: usize) -> &Line {
        // Both are below 2^32, so that the end is compared alone.
        let end = self.first as usize + index + SLOTS_PER_LINE;
        self.slots[..end].last_chunk().expect("a line has as many")
    }

    /// Returns whether a key's primary and secondary set have these indexes.
    #[cfg(test)]
    #[cfg(any(loom, shuttle))]
    pub(crate) fn has_sets(&self, hash: u64, sets: [usize; 2]) -> bool {
        self.choices(hash).map(|choice| choice.line / SLOTS) == sets
    }

    /// Returns the first slot with the key's fingerprint. (Of two, one is about to be another
    /// key's.)
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64) -> Option<SlotRef<'_>> {
        let fingerprint = fingerprint(hash);
        let mixed = mixed(fingerprint);
        match find_in(self.line(self.choice(mixed >> 32).line), fingerprint) {
            None => self.find_further(fingerprint, mixed),
            found => found,
        }
    }

    /// Returns the first slot with the key's fingerprint, beyond the line that the key prefers.
    ///
    /// At three quarters of the keys that fit, this is one look in five.
    #[inline(never)]
    fn find_further(&self, fingerprint: u64, mixed: u64) -> Option<SlotRef<'_>> {
        let [home, other] = self.choices_by(mixed).map(|Choice { line, .. }| line);
        let further = [home ^ SLOTS_PER_LINE, other, other ^ SLOTS_PER_LINE];
        // A loop: a chain of iterators takes three times the instructions.
        for line in if MODEL { &further[1..2] } else { &further } {
            if let Some(found) = find_in(self.line(*line), fingerprint) {
                return Some(found);
            }
        }
        None
    }

    /// Returns the slot that the key holds.
    pub(crate) fn search(&self, hash: u64) -> Option<SlotRef<'_>> {
        self.first_of(hash, |held| held.state() != State::SEALED)
    }

    /// Returns the slot that the key holds, or that a thread is giving to it.
    pub(crate) fn present(&self, hash: u64) -> Option<SlotRef<'_>> {
        self.first_of(hash, |held| held.slot.bucket.state() != State::SEALED)
    }

    /// Returns the first slot with the key's fingerprint that `is` one.
    #[inline(always)]
    fn first_of(&self, hash: u64, is: impl Fn(SlotRef<'_>) -> bool) -> Option<SlotRef<'_>> {
        let fingerprint = fingerprint(hash);
        // Loops: a chain of iterators takes three times the time.
        for choice in self.choices(hash) {
            for line in choice.lines() {
                // Most lines have no such slot.
                if !MODEL && find_in(line, fingerprint).is_none() {
                    continue;
                }
                for slot in line {
                    let held = SlotRef { slot, fingerprint };
                    if slot.has(fingerprint) && is(held) {
                        return Some(held);
                    }
                }
            }
        }
        None
    }

    /// Returns whether a slot is in the primary set of the key with this fingerprint.
    pub(super) fn is_at_home(&self, slot: &Slot, fingerprint: u64) -> bool {
        let [primary, _] = self.choices_by(mixed(fingerprint));
        let begin = &raw const self.slots[self.first as usize + primary.line / SLOTS * SLOTS];
        (&raw const *slot).addr().wrapping_sub(begin.addr()) < SLOTS * size_of::<Slot>()
    }

    /// Brings both sets of a key into the cache.
    pub(super) fn touch(&self, hash: u64) -> u64 {
        let lines = self.choices(hash).map(|Choice { line, .. }| [line, line ^ SLOTS_PER_LINE]);
        let lines = lines.as_flattened().iter();
        lines.fold(0, |all, line| all ^ self.line(*line)[0].fingerprint.load(Ordering::Relaxed))
    }

    /// Brings the line that a key prefers into the cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) -> u64 {
        // The fingerprint, but of the few hashes that have the smallest one.
        let line = self.choice(mixed(hash << 1) >> 32).line;
        self.line(line)[0].fingerprint.load(Ordering::Relaxed)
    }

    /// Removes all keys that `seal` seals.
    pub(crate) fn clear(&self, engine: &Engine, seal: impl Fn(SlotRef<'_>) -> bool) {
        for slot in self.slots.iter().filter(|slot| slot.is_held()) {
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
        self.slots.iter().filter(evicted).count()
    }

    /// Returns the number of slots that keys may have.
    pub(crate) fn slots_in_all(&self) -> usize {
        self.in_sets as usize
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
        let held = slot.change(USED);
        if held {
            self.counts().held.fetch_sub(1, Relaxed);
        }
        slot.bucket.set(state);
        held
    }
}

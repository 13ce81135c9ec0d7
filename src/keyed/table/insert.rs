//! Insertion of a key into a table.

use std::hint;
use std::sync::atomic::Ordering::Relaxed;

use super::set::{LATCH, SLOTS, SLOTS_PER_LINE, Slot, SlotRef, fingerprint};
use super::two_choice::{Choice, KEYS_PER_SET, Table};
use crate::bucket::atomic::{ReadClock, stop};
use crate::bucket::engine::{Done, Engine};
use crate::fault::{Fault, injected};
use crate::keyed::idle::{self, IdleCheck};
use crate::keyed::protocol;
use crate::keyed::protocol::Entry;
use crate::sync::{AtomicU64, MODEL, Ordering, yield_now};
use crate::word::state::State;
use crate::word::verb::Call;

/// Free slots of the primary set below which a key goes to its secondary set, if that has more.
pub(super) const FREE_IN_PRIMARY: usize = SLOTS - KEYS_PER_SET + 1;

/// Tries for a latch: for some hundred nanoseconds at once, then for some time slices.
const TRIES: usize = if MODEL { 1 } else { 128 };
const TRIES_AT_ONCE: usize = 64;

/// The result of an insertion.
pub(crate) enum Insertion {
    /// The key has a bucket, which was charged.
    Decided(Done),
    /// Another thread has inserted the key.
    Already,
    NoRoom {
        due: u64,
    },
}

impl Table {
    /// Inserts a key, and runs a call on its bucket.
    ///
    /// The bucket is published already charged. An uncharged word is identical for every key, so a
    /// late compare-and-swap could mistake it for the previous key's. The clock is read while no
    /// other thread can insert the key.
    pub(crate) fn insert<'a>(
        &self,
        engine: &Engine,
        entry: impl Entry<'a>,
        hash: u64,
        read: impl ReadClock,
        call: Call,
    ) -> Insertion {
        let early = stop(Fault::ClockBeforeLatch, read);
        if !self.is_open() {
            return Insertion::NoRoom { due: engine.clock.nanos() };
        }
        let claim = match self.claim(hash, engine) {
            Ok(claim) => claim,
            Err(due) => return Insertion::NoRoom { due },
        };
        let Some(_latch) = self.latch(hash) else {
            return Insertion::NoRoom { due: engine.clock.nanos() };
        };
        if self.search(hash).is_some() {
            return Insertion::Already;
        }
        let enter = || {
            claim.enter(hash);
            Some(())
        };
        let Some(((), initial_state)) = protocol::insert_uncharged(entry, enter) else {
            return Insertion::Already;
        };
        let reading = early.read(State::FULL);
        let from = match engine.initialized(initial_state, &reading, call.plan) {
            State::FULL => claim.vacant,
            from => from,
        };
        let (outcome, next) = call.apply(from, &reading);
        claim.open(next.unwrap_or_else(|| call.view(from, &reading).initialized(&reading.refill)));
        Insertion::Decided((outcome, reading).into())
    }

    /// Waits a bounded time for the latch of the key's primary set.
    ///
    /// A thread holds a latch for tens of nanoseconds. If it is descheduled meanwhile, inserting
    /// threads of that set find no room.
    pub(crate) fn latch(&self, hash: u64) -> Option<Latch<'_>> {
        let [primary, _] = self.choices(hash);
        let word = primary.latch();
        for tried in 0..TRIES {
            if word.fetch_or(LATCH, Ordering::Acquire) & LATCH == 0 || injected(Fault::NoLatch) {
                return Some(Latch { word });
            }
            if tried < TRIES_AT_ONCE { hint::spin_loop() } else { yield_now() }
        }
        None
    }

    /// Returns a slot for the key: an empty one, or one whose bucket may be evicted. Otherwise
    /// returns the clock reading at which one is due.
    pub(crate) fn claim(&self, hash: u64, engine: &Engine) -> Result<Vacancy<'_>, u64> {
        loop {
            let slots = self.choices(hash).map(Choice::slots);
            let states = slots.map(|set| set.map(Slot::state));
            // The clock is read after the words.
            let idle = IdleCheck::now(engine);
            let [primary, secondary] = [0, 1].map(|set: usize| Occupancy::of(&states[set], &idle));
            let (set, room) = match primary.free >= FREE_IN_PRIMARY || primary.free >= secondary.free {
                true => (0, primary),
                false => (1, secondary),
            };
            if room.free == 0 {
                return Err(idle.due_at(primary.soonest.min(secondary.soonest)));
            }
            let (slot, state) = (slots[set][room.first], states[set][room.first]);
            if slot.seal(state) {
                let evicts = slot.has_key();
                self.counts().evicted.fetch_add(u64::from(evicts), Relaxed);
                let vacant = idle::vacated(engine, state);
                return Ok(Vacancy { table: self, slot, evicts, vacant });
            }
        }
    }
}

/// The room of a set.
#[derive(Clone, Copy)]
struct Occupancy {
    /// Number of slots that are empty, or whose bucket may be evicted.
    free: usize,
    /// Index of one of those, if there are any.
    first: usize,
    /// [Wait](IdleCheck::wait_until_idle) until a slot is due.
    soonest: u64,
}

impl Occupancy {
    /// Returns the room of a set, from the states of its slots, those of the preferred line first.
    fn of(states: &[State; SLOTS], idle: &IdleCheck) -> Occupancy {
        let mut room = Occupancy { free: 0, first: 0, soonest: u64::MAX };
        for (index, state) in states.iter().enumerate().filter(|(_, state)| !state.is_claimed()) {
            let wait = idle.wait_until_idle(*state);
            room.soonest = room.soonest.min(wait);
            if wait == 0 {
                // A slot of the first line with room, and there an empty one.
                let same_line = index / SLOTS_PER_LINE == room.first / SLOTS_PER_LINE;
                if room.free == 0 || same_line && !state.is_level() {
                    room.first = index;
                }
                room.free += 1;
            }
        }
        room
    }
}

/// A latch that is held.
pub(crate) struct Latch<'a> {
    word: &'a AtomicU64,
}

impl Drop for Latch<'_> {
    fn drop(&mut self) {
        self.word.fetch_and(!LATCH, Ordering::Release);
    }
}

/// An exclusively owned slot. A drop empties it.
pub(crate) struct Vacancy<'a> {
    table: &'a Table,
    slot: &'a Slot,
    /// Whether the slot held another key before.
    evicts: bool,
    /// The word of the slot while it is empty.
    vacant: State,
}

impl Vacancy<'_> {
    /// Gives the slot the fingerprint of the key.
    pub(crate) fn enter(&self, hash: u64) {
        self.slot.change(fingerprint(hash));
        if !self.evicts {
            self.table.counts().held.fetch_add(1, Relaxed);
        }
        self.slot.bucket.set(State::INSERTING);
    }

    /// Publishes the bucket of the key.
    pub(crate) fn open(self, state: State) {
        self.slot.bucket.set(state);
        // Disarms the drop.
        std::mem::forget(self);
    }
}

impl<'a> Vacancy<'a> {
    /// Gives the slot to the key, with a word that it had before.
    pub(super) fn enter_with(self, hash: u64, state: State) -> SlotRef<'a> {
        self.enter(hash);
        let held = SlotRef { slot: self.slot, fingerprint: fingerprint(hash) };
        self.open(state);
        held
    }
}

impl Drop for Vacancy<'_> {
    fn drop(&mut self) {
        self.table.leave(self.slot, self.vacant);
    }
}

//! Insertion of a key into a table.

use std::hint;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering::Relaxed;

use super::set::{LATCH, SLOTS, SLOTS_PER_LINE, Slot, SlotRef, fingerprint};
use super::two_choice::{Choice, KEYS_PER_SET, Table};
use crate::bucket::atomic::{ReadClock, stop};
use crate::bucket::engine::{Done, Engine};
use crate::fault::{Fault, injected};
use crate::keyed::idle::{self, IdleCheck};
use crate::keyed::protocol;
use crate::keyed::protocol::Entry;
use crate::sync::{AtomicU64, MODEL, Ordering, Turns};
use crate::word::decision::Denied;
use crate::word::state::State;
use crate::word::verb::Call;

/// Free slots of the primary set below which a key goes to its secondary set, if that has more.
pub(super) const FREE_IN_PRIMARY: usize = SLOTS - KEYS_PER_SET + 1;

/// Tries for a latch that is held: for some hundred nanoseconds at once, then for many time slices.
const TRIES_AT_ONCE: usize = if MODEL { 0 } else { 64 };
const TRIES: usize = if MODEL { 0 } else { 1 << 14 };

impl Table {
    /// Looks at the slots of a key, and then at the plans and the clock.
    ///
    /// A caller that charges under a plan admits the plan first. So a word that it charged is
    /// judged by its plan.
    #[inline(always)]
    pub(crate) fn look<'a>(&'a self, hash: u64, engine: &'a Engine) -> Look<'a> {
        let states = || self.choices(hash).map(Choice::states);
        if injected(Fault::PlansReadEarly) {
            let idle = IdleCheck::now(engine);
            return Look { states: states(), idle };
        }
        Look { states: states(), idle: IdleCheck::now(engine) }
    }

    /// Inserts a key that had no slot at a look, and runs a call on its bucket. Returns `None` if
    /// another thread has inserted the key, and the result of `no_room` if there is none.
    ///
    /// The bucket is published already charged. An uncharged word is identical for every key, so a
    /// late compare-and-swap could mistake it for the previous key's. The clock is read while no
    /// other thread can insert the key.
    pub(crate) fn insert<'a>(
        &self,
        engine: &Engine,
        entry: impl Entry<'a>,
        (hash, look): (u64, &Look<'_>),
        read: impl ReadClock,
        call: &Call<'_>,
        no_room: impl FnOnce() -> Option<Result<Done, Denied>>,
    ) -> Option<Result<Done, Denied>> {
        let early = stop(Fault::ClockBeforeLatch, read);
        // The last slot may be missing because another thread is giving it to this very key.
        if !self.is_open() || !(look.has_vacancy() || self.is_latched(hash)) {
            return no_room();
        }
        let Some(latch) = self.latch(hash) else { return no_room() };
        if self.search(hash).is_some() {
            return None;
        }
        let Some(claim) = self.claim_seen(hash, look, engine) else {
            drop(latch);
            return no_room();
        };
        let enter = || {
            claim.enter(hash);
            Some(())
        };
        let ((), initial_state) = protocol::insert_uncharged(entry, enter)?;
        let reading = early.read(State::FULL);
        let from = match engine.initialized(initial_state, &reading, call.plan) {
            State::FULL => claim.vacant,
            from => from,
        };
        let (outcome, next) = call.apply(from, &reading);
        claim.open(next.unwrap_or_else(|| call.view(from, &reading).initialized(&reading.refill)));
        Some(Ok((outcome, reading).into()))
    }

    /// Returns whether a thread holds the latch of the key's primary set.
    fn is_latched(&self, hash: u64) -> bool {
        let [primary, _] = self.choices(hash);
        primary.latch().load(Ordering::Relaxed) & LATCH != 0
    }

    /// Waits a bounded time for the latch of the key's primary set.
    ///
    /// A thread holds a latch for some hundred nanoseconds. If it is descheduled meanwhile, an
    /// inserting thread of that set yields until it is back. It finds no room if it never is.
    pub(crate) fn latch(&self, hash: u64) -> Option<Latch<'_>> {
        let [primary, _] = self.choices(hash);
        let word = primary.latch();
        let mut at_once = TRIES_AT_ONCE;
        let mut turns = Turns::new(TRIES);
        while word.fetch_or(LATCH, Ordering::Acquire) & LATCH != 0 && !injected(Fault::NoLatch) {
            if at_once > 0 {
                at_once -= 1;
                hint::spin_loop();
            } else {
                turns.pass()?;
            }
        }
        Some(Latch { word })
    }

    /// Returns the clock reading at which there is a slot for the key.
    pub(crate) fn due(&self, hash: u64, engine: &Engine) -> u64 {
        let Look { states, idle } = self.look(hash, engine);
        let held = states.as_flattened().iter().filter(|state| !state.is_claimed());
        idle.due_at(held.map(|state| idle.wait_until_idle(*state)).min().unwrap_or(u64::MAX))
    }

    /// Returns a slot for the key, if there is one that is empty, or whose bucket may be evicted.
    pub(crate) fn claim(&self, hash: u64, engine: &Engine) -> Option<Vacancy<'_>> {
        self.claim_seen(hash, &self.look(hash, engine), engine)
    }

    /// Claims a slot as [`claim`](Table::claim) does, after a first look.
    fn claim_seen(&self, hash: u64, first: &Look<'_>, engine: &Engine) -> Option<Vacancy<'_>> {
        let mut again;
        let mut look = first;
        loop {
            let (set, index) = look.vacancy()?;
            let (slot, state) = (self.choices(hash)[set].slot(index), look.states[set][index]);
            if slot.seal(state) {
                let evicts = slot.has_key();
                self.counts().evicted.fetch_add(u64::from(evicts), Relaxed);
                let vacant = idle::vacated(engine, state);
                return Some(Vacancy { table: self, slot, evicts, vacant });
            }
            again = self.look(hash, engine);
            look = &again;
        }
    }
}

/// The states of a key's slots by its choices, and a check by a clock that was read after them.
pub(crate) struct Look<'a> {
    states: [[State; SLOTS]; 2],
    pub(crate) idle: IdleCheck<'a>,
}

impl Look<'_> {
    fn has_vacancy(&self) -> bool {
        self.vacancy().is_some()
    }

    /// Returns the choice and the index of a slot that is empty, or whose bucket may be evicted.
    fn vacancy(&self) -> Option<(usize, usize)> {
        let primary = Room::of(&self.states[0], &self.idle);
        let (set, room) = match primary.len() {
            FREE_IN_PRIMARY.. => (0, primary),
            len => match Room::of(&self.states[1], &self.idle) {
                secondary if secondary.len() > len => (1, secondary),
                _ => (0, primary),
            },
        };
        Some((set, room.first()?))
    }
}

/// The slots of a set that are empty, or whose bucket may be evicted: a bit for each, those of the
/// preferred line first.
#[derive(Clone, Copy)]
struct Room {
    free: u32,
    empty: u32,
}

impl Room {
    fn of(states: &[State; SLOTS], idle: &IdleCheck) -> Room {
        let mut room = Room { free: 0, empty: 0 };
        // No branch between the slots: which of them are free cannot be predicted.
        for (index, state) in states.iter().enumerate() {
            let is_empty = *state == State::FULL;
            room.free |= u32::from(is_empty | (state.is_level() & idle.is_idle(*state))) << index;
            room.empty |= u32::from(is_empty) << index;
        }
        room
    }

    fn len(self) -> usize {
        self.free.count_ones() as usize
    }

    /// Returns the index of a slot of the first line with room, there of an empty one.
    fn first(self) -> Option<usize> {
        let free = NonZeroU32::new(self.free)?;
        let line = free.trailing_zeros() as usize / SLOTS_PER_LINE * SLOTS_PER_LINE;
        let of_line = self.free & ((1 << SLOTS_PER_LINE) - 1) << line;
        let best = if of_line & self.empty == 0 { of_line } else { of_line & self.empty };
        Some(best.trailing_zeros() as usize)
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

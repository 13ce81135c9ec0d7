//! The keys of a table as a save sees them, and the restored ones.

use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;

use super::insert::FREE_IN_PRIMARY;
use super::set::{LATCH, Slot, SlotRef, USED, hashes_of};
use super::two_choice::{Choice, FILLING, NO_KEY, OPEN, Table};
use crate::bucket::atomic::BucketRef;
use crate::bucket::engine::Engine;
use crate::sync::Ordering;
use crate::word::state::State;

/// Number of keys that are restored at once: at least the number of cache misses that a core
/// overlaps.
pub(crate) const AT_ONCE: usize = 16;

/// The sets of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    Primary,
    Secondary,
}

/// The result of restoring a key.
pub(crate) enum Resumed<'a> {
    Inserted(SlotRef<'a>),
    /// The key has a slot.
    Already(SlotRef<'a>),
    NoRoom,
}

/// The right to fill a table that never had a key. A drop opens the table to new keys.
///
/// No other thread takes a slot, so stores suffice: a locked instruction takes as long as all else
/// for a key.
pub(crate) struct Filling<'a> {
    table: &'a Table,
    /// Whether the table has the number of slots that it had at the save. Each key then gets the
    /// set that it had.
    same_sets: bool,
}

/// The empty slots of a set that is filled.
struct Empty<'a> {
    first: Option<&'a Slot>,
    free: usize,
}

impl Table {
    /// Calls `see` with the fingerprint, the set and the word of each held slot, in the order of
    /// the slots.
    pub(crate) fn each(&self, mut see: impl FnMut(u64, Set, State)) {
        for (fingerprint, held) in self.held() {
            let state = held.state();
            // Else the slot passes to another key.
            if state.is_level() {
                let set = if self.is_at_home(held.slot, fingerprint) { Set::Primary } else { Set::Secondary };
                see(fingerprint, set, state);
            }
        }
    }

    /// Returns the slots that have a key, or are getting or losing one, with its fingerprint.
    pub(crate) fn held(&self) -> impl Iterator<Item = (u64, SlotRef<'_>)> {
        self.slots.iter().filter_map(|slot| {
            let fingerprint = slot.fingerprint.load(Ordering::Acquire) & !LATCH;
            (fingerprint > USED).then_some((fingerprint, SlotRef { slot, fingerprint }))
        })
    }

    /// Returns the right to fill the table with keys of one that had this number of slots; `None`
    /// if a key was inserted.
    pub(crate) fn filling(&self, slots: u64) -> Option<Filling<'_>> {
        let same_sets = self.slots_in_all() as u64 == slots;
        let begun = self.phase.compare_exchange(NO_KEY, FILLING, Ordering::Relaxed, Ordering::Relaxed);
        begun.is_ok().then(|| Filling { table: self, same_sets })
    }

    /// Inserts a key with its word. `fills`: this thread fills the table.
    pub(crate) fn resume(&self, hash: u64, state: State, engine: &Engine, fills: bool) -> Resumed<'_> {
        if !fills && !self.is_open() {
            return Resumed::NoRoom;
        }
        let Some(_latch) = self.latch(hash) else { return Resumed::NoRoom };
        if let Some(held) = self.search(hash) {
            return Resumed::Already(held);
        }
        let Some(claim) = self.claim(hash, engine) else { return Resumed::NoRoom };
        Resumed::Inserted(claim.enter_with(hash, state))
    }
}

impl<'a> Filling<'a> {
    /// Gives keys empty slots, whose words are to be [given](SlotRef::open) after a fence. A key
    /// gets none if it has one, or if none is empty.
    ///
    /// Keys of primary sets come first.
    pub(crate) fn enter(&self, keys: &[(u64, State)], set: Set) -> [Option<SlotRef<'a>>; AT_ONCE] {
        if !self.same_sets || set == Set::Secondary {
            // No load depends on another, so none waits for another.
            let hashes = keys.iter().map(|(fingerprint, _)| hashes_of(*fingerprint)[0]);
            black_box(hashes.fold(0, |all, hash| all ^ self.table.touch(hash)));
        }
        let (mut entered, mut len) = ([None; AT_ONCE], 0);
        for (entered, (fingerprint, _)) in entered.iter_mut().zip(keys) {
            *entered = self.enter_one(*fingerprint, set);
            len += usize::from(entered.is_some());
        }
        self.table.counts().held.fetch_add(len, Relaxed);
        entered
    }

    fn enter_one(&self, fingerprint: u64, set: Set) -> Option<SlotRef<'a>> {
        let [primary, secondary] = self.table.choices(hashes_of(fingerprint)[0]);
        let room = Empty::of(primary, fingerprint)?;
        let first = match set {
            // No key was given its secondary set before.
            Set::Primary if self.same_sets => room.first,
            _ => {
                let other = Empty::of(secondary, fingerprint)?;
                let at_home = match self.same_sets {
                    true => false,
                    false => room.free >= FREE_IN_PRIMARY || room.free >= other.free,
                };
                if at_home { room.first } else { other.first }
            }
        };
        let slot = first?;
        slot.bucket.set(State::INSERTING);
        slot.fingerprint.store(fingerprint, Ordering::Release);
        Some(SlotRef { slot, fingerprint })
    }
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.table.phase.store(OPEN, Ordering::Release);
    }
}

impl<'a> Empty<'a> {
    /// Returns the empty slots of a set; `None` if the key is there.
    fn of(choice: Choice<'a>, fingerprint: u64) -> Option<Empty<'a>> {
        let (mut empty, mut is_there) = (0_u32, false);
        // No branch: which slots are empty cannot be predicted.
        for (index, slot) in choice.lines().flatten().enumerate() {
            let found = slot.fingerprint.load(Ordering::Relaxed) & !LATCH;
            empty |= u32::from(found == 0) << index;
            is_there |= found == fingerprint;
        }
        let first = (empty != 0).then(|| choice.slot(empty.trailing_zeros() as usize));
        (!is_there).then_some(Empty { first, free: empty.count_ones() as usize })
    }
}

impl SlotRef<'_> {
    /// Gives the slot its word.
    pub(crate) fn open(self, state: State) {
        self.slot.bucket.set(state);
    }
}

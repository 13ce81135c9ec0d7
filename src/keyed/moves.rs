//! The move of a map's entries to its next table, and its end.
//!
//! papaya moves a step of places in an insertion that finds none, and the rest in later ones. A
//! look-up of a moved entry reads two tables until the move has ended. So an insertion that moves
//! an entry says so, and then each later call moves [`STEP`] places. The calls of a `Pinned` do
//! not: its map is looked up once, when it is made.
//!
//! *Invariant:* while no call is under way, a map is between two tables only if a move is said to
//! be on, or if the places that were moved had no entry. Checked by `a_move_is_ended_by_somebody`
//! in `src/tests/models/`, beside a stand-in for the map.

use std::cell::Cell;
use std::hash::{Hash, Hasher};

use equivalent::Equivalent;
use papaya::LocalGuard;

use crate::fault::{Fault, injected};
use crate::keyed::key::{EntryKey, Map, hashes};
use crate::sync::{AtomicU32, Ordering};

/// Places that a call moves. A move of so few has one step. Of a larger one, a step is in less than
/// one of 1,000 insertions, also where papaya copies a table after 0.38 of its places.
pub(crate) const STEP: usize = 4_096;

/// Inserts a key by a function. Returns what that returns, and the hash of an entry that it moved.
///
/// papaya asks for the hash of the key itself first.
pub(crate) fn insert<T>(insert: impl FnOnce() -> T) -> (T, Option<u32>) {
    let (before, _) = hashes();
    let inserted = insert();
    let (hashed, last) = hashes();
    (inserted, (hashed.wrapping_sub(before) > 1).then_some(last))
}

/// Whether a move is on.
pub(crate) struct Moves {
    /// The hash of an entry that was moved in it. It is 0 if none is on.
    moved: AtomicU32,
}

impl Moves {
    pub(crate) fn new() -> Moves {
        Moves { moved: AtomicU32::new(0) }
    }

    #[inline(always)]
    pub(crate) fn are_on(&self) -> bool {
        // `help` reads it again.
        self.moved.load(Ordering::Relaxed) != 0
    }

    /// Says that a move is on, in which the entry of a hash was moved.
    ///
    /// *Release: it pairs with the swap in `help`, which sees the move that it clears.* A swap,
    /// since loom may order a store before a swap that it follows.
    pub(crate) fn begin(&self, moved: u32) {
        self.moved.swap(moved, Ordering::Release);
    }

    /// Moves a step by a function that returns whether the entry of a hash is in two tables. If it
    /// is not, that move has ended, and another function ends a later one.
    ///
    /// The mark is cleared before: a move that begins meanwhile is said after that.
    pub(crate) fn help(&self, step: impl FnOnce(u32) -> bool, end: impl FnOnce()) {
        let is_late = injected(Fault::MoveClearedLate);
        let moved =
            if is_late { self.moved.load(Ordering::Acquire) } else { self.moved.swap(0, Ordering::Acquire) };
        if moved == 0 {
            return;
        }
        if step(moved) {
            // A newer mark stays, or else one call would end the whole of its move.
            let _ = self.moved.compare_exchange(0, moved, Ordering::Release, Ordering::Relaxed);
        } else {
            end();
            if is_late {
                self.moved.store(0, Ordering::Release);
            }
        }
    }
}

/// A look-up of an entry that was moved. papaya finds it in the old table, moves a step, and looks
/// in the next table.
struct Moved {
    hash: u32,
    /// The tables in which it was found.
    tables: Cell<u32>,
}

impl Hash for Moved {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.hash);
    }
}

impl<K> Equivalent<EntryKey<K>> for Moved {
    fn equivalent(&self, stored: &EntryKey<K>) -> bool {
        let is_found = self.hash == stored.tag.hash;
        self.tables.set(self.tables.get() + u32::from(is_found));
        is_found
    }
}

/// Moves a step if the entry of a hash is in two tables, and returns whether it is.
pub(crate) fn step<K: Eq>(map: &Map<K>, hash: u32, guard: &LocalGuard<'_>) -> bool {
    let moved = Moved { hash, tables: Cell::new(0) };
    // An entry that papaya offers for removal is in its last table. A removed one is in the old
    // table alone.
    let is_held = map.remove_if(&moved, |_, _| false, guard).is_err();
    moved.tables.get() > u32::from(is_held)
}

/// Ends a move that is on. Without one it costs no more than a look-up.
pub(crate) fn end<K: Eq>(map: &Map<K>, guard: &LocalGuard<'_>) {
    let _ = map.iter(guard);
}

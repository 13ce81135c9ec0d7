//! The slots of a table, four in a line, and the reference of a key to its slot.

use crate::bucket::atomic::{Bucket, BucketRef, rarely};
use crate::fault::{Fault, injected};
use crate::keyed::key::mix;
use crate::sync::{AtomicU64, MODEL, Ordering, fence};
use crate::word::state::State;

/// Number of slots of a line. Four slots fill a cache line.
pub(super) const SLOTS_PER_LINE: usize = if MODEL { 1 } else { 4 };
/// Number of lines of a set, which some processors fetch as a pair. A model has one line of one
/// slot, so that all interleavings are explored.
pub(super) const LINES: usize = if MODEL { 1 } else { 2 };
pub(super) const SLOTS: usize = LINES * SLOTS_PER_LINE;
/// The lowest bit of a set's first fingerprint.
pub(super) const LATCH: u64 = 1;
/// In place of a fingerprint: the slot has no key, and was taken once.
pub(super) const USED: u64 = 2;
/// The word of a slot that was never taken, of zeroed memory. A key's word may be the same.
const NEW: State = State::from_word(0);

/// The slots of a cache line.
pub(super) type Line = [Slot; SLOTS_PER_LINE];

/// A slot: zeroed memory is one that is empty.
pub(crate) struct Slot {
    pub(super) fingerprint: AtomicU64,
    /// To be read as [`Slot::state`] does, unless the slot is known to have been taken.
    pub(super) bucket: Bucket,
}

/// The slot of a key.
#[derive(Clone, Copy)]
pub(crate) struct SlotRef<'a> {
    pub(super) slot: &'a Slot,
    pub(super) fingerprint: u64,
}

/// Returns the fingerprint of a hash: all but its uppermost bit, even, and above `USED`.
///
/// Hashes of a poor hasher are small numbers, or products of them: the uppermost bit tells the
/// fewest of them apart.
#[inline(always)]
pub(super) fn fingerprint(hash: u64) -> u64 {
    (hash << 1).max(USED + 2)
}

/// Returns whether a word is the fingerprint of a hash.
pub(crate) fn is_fingerprint(word: u64) -> bool {
    fingerprint(word >> 1) == word
}

/// Returns the hashes of a fingerprint.
pub(crate) fn hashes_of(fingerprint: u64) -> [u64; 2] {
    [0, 1].map(|uppermost| fingerprint >> 1 | uppermost << 63)
}

/// Returns the mixed hash that a key and its slot have in common.
#[inline(always)]
pub(super) fn mixed(fingerprint: u64) -> u64 {
    mix(fingerprint >> 1)
}

/// Returns 32 bits of hash that a key and its slot have in common.
pub(crate) fn hash_of(full: u64) -> u32 {
    (mixed(fingerprint(full)) >> 32) as u32
}

/// Returns the first slot of a line that has this fingerprint.
#[inline(always)]
pub(super) fn find_in(line: &Line, fingerprint: u64) -> Option<SlotRef<'_>> {
    // No branch between the slots: which of them it is cannot be predicted. A loop: closures may
    // not be inlined.
    let mut found = u32::from(line[0].has(fingerprint));
    for (index, slot) in line.iter().enumerate().skip(1) {
        // Without a latch.
        found |= u32::from(slot.fingerprint.load(Ordering::Acquire) == fingerprint) << index;
    }
    let slot = line.get(found.trailing_zeros() as usize)?;
    Some(SlotRef { slot, fingerprint })
}

impl Slot {
    /// Returns a slot by its words in zeroed memory.
    pub(super) fn of([fingerprint, word]: [u64; 2]) -> Slot {
        let bucket = Bucket::from_state(State::from_word(word));
        Slot { fingerprint: AtomicU64::new(fingerprint), bucket }
    }

    /// Returns the state of the slot, as an inserting thread sees it.
    pub(super) fn state(&self) -> State {
        let fingerprint = self.fingerprint.load(Ordering::Acquire) & !LATCH;
        match (self.bucket.state(), fingerprint) {
            (NEW, 0) => State::FULL,
            // A thread is taking it.
            (NEW, USED) => State::SEALED,
            (state, _) => state,
        }
    }

    /// Seals the slot, if it has this state. Returns whether this thread owns it.
    pub(super) fn seal(&self, state: State) -> bool {
        if (&self.bucket).commit(state, State::SEALED).is_ok() {
            // The slot may have been taken and left since its state was read. The fence is for the
            // fingerprint of that time, which is changed by a difference. Model, with plain loads:
            // `a_slot_that_was_never_taken_is_not_taken_by_a_word_of_a_key`.
            fence(Ordering::Acquire);
            return true;
        }
        state == State::FULL && self.seal_new()
    }

    /// Seals a slot that was never taken. The fingerprint decides, as the word may be a key's.
    fn seal_new(&self) -> bool {
        if injected(Fault::NewByWord) {
            return (&self.bucket).commit(NEW, State::SEALED).is_ok();
        }
        let found = self.fingerprint.load(Ordering::Relaxed);
        let taken = found <= LATCH
            && (self.fingerprint)
                .compare_exchange(found, found | USED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if taken {
            self.bucket.set(State::SEALED);
        }
        taken
    }

    #[inline(always)]
    pub(super) fn has(&self, fingerprint: u64) -> bool {
        self.fingerprint.load(Ordering::Acquire) ^ fingerprint <= LATCH
    }

    /// Returns whether a key has the slot, as far as one look can tell.
    pub(super) fn is_held(&self) -> bool {
        self.has_key() && self.bucket.state().is_level()
    }

    /// Returns whether the slot has a fingerprint: it has a key, or is getting or losing one.
    ///
    /// The answer may be outdated at once, unless this thread has sealed the slot.
    pub(super) fn has_key(&self) -> bool {
        self.fingerprint.load(Ordering::Acquire) > USED | LATCH
    }

    /// Replaces the fingerprint beside the latch; `USED` is none. Returns whether there was one.
    pub(super) fn change(&self, fingerprint: u64) -> bool {
        let was = self.fingerprint.load(Ordering::Relaxed) & !LATCH;
        self.fingerprint.fetch_xor(was ^ fingerprint, Ordering::Release);
        was > USED
    }
}

impl SlotRef<'_> {
    pub(crate) fn hash(self) -> u32 {
        (mixed(self.fingerprint) >> 32) as u32
    }
}

impl BucketRef for SlotRef<'_> {
    #[inline(always)]
    fn state(self) -> State {
        let state = self.slot.bucket.state();
        let mine = self.slot.has(self.fingerprint) || injected(Fault::NoFingerprintRecheck);
        if !mine || !state.is_level() {
            rarely();
            return State::SEALED;
        }
        state
    }

    #[inline(always)]
    fn commit(self, state: State, next: State) -> Result<(), State> {
        (&self.slot.bucket).commit(state, next).map_err(|_| self.state())
    }

    #[inline(always)]
    fn still_has(self, state: State) -> bool {
        state == State::SEALED || self.slot.bucket.state() == state || injected(Fault::NoRefusalRecheck)
    }
}

//! The keys of a table as a save sees them, and the restored ones.

use super::set::{LATCH, SlotRef, USED};
use super::two_choice::Table;
use crate::bucket::engine::Engine;
use crate::sync::Ordering;
use crate::word::state::State;

/// The result of restoring a key.
pub(crate) enum Resumed<'a> {
    Inserted(SlotRef<'a>),
    /// The key has a slot.
    Already(SlotRef<'a>),
    NoRoom,
}

impl Table {
    /// Calls `see` with the fingerprint and the word of each held slot.
    pub(crate) fn each(&self, mut see: impl FnMut(u64, State)) {
        for slot in &self.slots {
            let fingerprint = slot.fingerprint.load(Ordering::Acquire) & !LATCH;
            let state = slot.bucket.state();
            // Else the slot passes to another key.
            if fingerprint > USED && state.is_level() && slot.has(fingerprint) {
                see(fingerprint, state);
            }
        }
    }

    /// Inserts a key with its word.
    pub(crate) fn resume(&self, hash: u64, state: State, engine: &Engine) -> Resumed<'_> {
        let Some(claim) = self.claim_empty(hash).or_else(|| self.claim(hash, engine).ok()) else {
            return Resumed::NoRoom;
        };
        let Some(_latch) = self.latch(hash) else { return Resumed::NoRoom };
        if let Some(held) = self.search(hash) {
            return Resumed::Already(held);
        }
        Resumed::Inserted(claim.enter_with(hash, state))
    }
}

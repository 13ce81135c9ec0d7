//! A set of a table: slots side by side, and one slot as the key that has it sees it.

use crate::bucket::atomic::{Bucket, Word};
use crate::fault::{Control, broken};
use crate::keyed::id::{Id, mixed};
use crate::sync::{AtomicU64, Ordering, plain_bytes};
use crate::word::state::State;

/// Slots of a set: two cache lines, which processors fetch in pairs.
pub(super) const SLOTS: usize = if cfg!(all(test, any(loom, shuttle))) { 1 } else { 8 };
/// The lowest bit of a set's first digest.
pub(super) const LATCH: u64 = 1;

plain_bytes! {
    #[repr(C, align(128))]
    pub(crate) struct Set(pub(super) [Slot; SLOTS]);
}

plain_bytes! {
    #[repr(C)]
    pub(crate) struct Slot {
        pub(super) digest: AtomicU64,
        pub(super) bucket: Bucket,
    }
}

/// The slot of a key.
#[derive(Clone, Copy)]
pub(crate) struct Held<'a> {
    pub(super) slot: &'a Slot,
    pub(super) digest: u64,
}

/// What a slot has of a hash: even, and not 0.
#[inline(always)]
pub(super) fn digest(hash: u64) -> u64 {
    (hash & !LATCH).max(2)
}

/// A hash of 32 bits that a key and its slot have in common.
pub(crate) fn hash_of(full: u64) -> u32 {
    (mixed(digest(full)) >> 32) as u32
}

impl Slot {
    pub(super) fn empty() -> Slot {
        Slot { digest: AtomicU64::new(0), bucket: Bucket::new() }
    }

    #[inline(always)]
    pub(super) fn has(&self, digest: u64) -> bool {
        self.digest.load(Ordering::Acquire) ^ digest <= LATCH
    }
}

impl Held<'_> {
    /// What the bucket is known by while the slot is that key's.
    pub(crate) fn id(self) -> Id {
        Id::new(&self.slot.bucket, self.digest)
    }

    /// A hash of the key, of 32 bits.
    pub(crate) fn hash(self) -> u32 {
        hash_of(self.digest)
    }
}

impl Word for Held<'_> {
    #[inline(always)]
    fn state(self) -> State {
        let state = self.slot.bucket.state();
        let mine = self.slot.has(self.digest) || broken(Control::NoSecondLook);
        if mine && state.is_level() { state } else { State::SEALED }
    }

    #[inline(always)]
    fn commit(self, state: State, next: State) -> Result<(), State> {
        (&self.slot.bucket).commit(state, next).map_err(|_| self.state())
    }

    #[inline(always)]
    fn still_has(self, state: State) -> bool {
        state == State::SEALED || self.slot.bucket.state() == state || broken(Control::NoThirdLook)
    }
}

impl Set {
    // As a function of its own it costs a newcomer's `search` nine instructions, which is then compiled otherwise.
    #[inline]
    pub(crate) fn empty() -> Set {
        Set(std::array::from_fn(|_| Slot::empty()))
    }

    /// Bit by bit, which slots have this digest.
    #[inline(always)]
    pub(super) fn matches(&self, digest: u64) -> u32 {
        // All are looked at, without a branch between them: their lines come at the same time. By a loop: closures may be left outside.
        let mut found = 0;
        for (index, slot) in self.0.iter().enumerate() {
            found |= u32::from(slot.has(digest)) << index;
        }
        found
    }

    #[inline(always)]
    pub(super) fn find(&self, digest: u64) -> Option<Held<'_>> {
        let slot = self.0.get(self.matches(digest).trailing_zeros() as usize)?;
        Some(Held { slot, digest })
    }
}

impl Slot {
    /// Whether it is a key's, as far as one look tells.
    pub(super) fn is_held(&self) -> bool {
        self.has_key() && self.bucket.state().is_level()
    }

    /// Whether it has a digest: for good, of a slot that this call has sealed.
    pub(super) fn has_key(&self) -> bool {
        self.digest.load(Ordering::Relaxed) > LATCH
    }

    /// Puts another digest beside the latch. True if there was one.
    pub(super) fn change(&self, digest: u64) -> bool {
        let was = self.digest.load(Ordering::Relaxed) & !LATCH;
        self.digest.fetch_xor(was ^ digest, Ordering::Release);
        was != 0
    }
}

//! A set of a table: slots side by side, and one slot as the key that has it sees it.

use crate::bucket::atomic::{Bucket, BucketRef};
use crate::fault::{Fault, injected};
use crate::keyed::id::{BucketId, mix};
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
        pub(super) fingerprint: AtomicU64,
        pub(super) bucket: Bucket,
    }
}

/// The slot of a key.
#[derive(Clone, Copy)]
pub(crate) struct SlotRef<'a> {
    pub(super) slot: &'a Slot,
    pub(super) fingerprint: u64,
}

/// What a slot has of a hash: even, and not 0.
#[inline(always)]
pub(super) fn fingerprint(hash: u64) -> u64 {
    (hash & !LATCH).max(2)
}

/// A hash of 32 bits that a key and its slot have in common.
pub(crate) fn hash_of(full: u64) -> u32 {
    (mix(fingerprint(full)) >> 32) as u32
}

impl Slot {
    pub(super) fn empty() -> Slot {
        Slot { fingerprint: AtomicU64::new(0), bucket: Bucket::new() }
    }

    #[inline(always)]
    pub(super) fn has(&self, fingerprint: u64) -> bool {
        self.fingerprint.load(Ordering::Acquire) ^ fingerprint <= LATCH
    }
}

impl SlotRef<'_> {
    /// What the bucket is known by while the slot is that key's.
    pub(crate) fn id(self) -> BucketId {
        BucketId::new(&self.slot.bucket, self.fingerprint)
    }

    /// A hash of the key, of 32 bits.
    pub(crate) fn hash(self) -> u32 {
        hash_of(self.fingerprint)
    }
}

impl BucketRef for SlotRef<'_> {
    #[inline(always)]
    fn state(self) -> State {
        let state = self.slot.bucket.state();
        let mine = self.slot.has(self.fingerprint) || injected(Fault::NoFingerprintRecheck);
        if mine && state.is_level() { state } else { State::SEALED }
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

impl Set {
    // As a function of its own it costs a newcomer's `search` nine instructions, which is then compiled otherwise.
    #[inline]
    pub(crate) fn empty() -> Set {
        Set(std::array::from_fn(|_| Slot::empty()))
    }

    /// Bit by bit, which slots have this digest.
    #[inline(always)]
    pub(super) fn matches(&self, fingerprint: u64) -> u32 {
        // All are looked at, without a branch between them: their lines come at the same time. By a loop: closures may be left outside.
        let mut found = 0;
        for (index, slot) in self.0.iter().enumerate() {
            found |= u32::from(slot.has(fingerprint)) << index;
        }
        found
    }

    #[inline(always)]
    pub(super) fn find(&self, fingerprint: u64) -> Option<SlotRef<'_>> {
        let slot = self.0.get(self.matches(fingerprint).trailing_zeros() as usize)?;
        Some(SlotRef { slot, fingerprint })
    }
}

impl Slot {
    /// Whether it is a key's, as far as one look tells.
    pub(super) fn is_held(&self) -> bool {
        self.has_key() && self.bucket.state().is_level()
    }

    /// Whether it has a digest: for good, of a slot that this call has sealed.
    pub(super) fn has_key(&self) -> bool {
        self.fingerprint.load(Ordering::Relaxed) > LATCH
    }

    /// Puts another digest beside the latch. True if there was one.
    pub(super) fn change(&self, fingerprint: u64) -> bool {
        let was = self.fingerprint.load(Ordering::Relaxed) & !LATCH;
        self.fingerprint.fetch_xor(was ^ fingerprint, Ordering::Release);
        was != 0
    }
}

//! A set of a table: slots side by side, and the reference of a key to its slot.

use crate::bucket::atomic::{Bucket, BucketRef};
use crate::fault::{Fault, injected};
use crate::keyed::id::BucketId;
use crate::keyed::key::mix;
use crate::sync::{AtomicU64, MODEL, Ordering, plain_bytes};
use crate::word::state::State;

/// Number of slots of a set. Eight slots fill two cache lines, which some processors fetch as a
/// pair. A model has one slot, so that all interleavings are explored.
pub(super) const SLOTS: usize = if MODEL { 1 } else { 8 };
/// The lowest bit of a set's first fingerprint.
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

/// Returns the fingerprint of a hash: even, and not 0.
#[inline(always)]
pub(super) fn fingerprint(hash: u64) -> u64 {
    (hash & !LATCH).max(2)
}

/// Returns 32 bits of hash that a key and its slot have in common.
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
    /// Returns the identity of the bucket while the slot is that key's.
    pub(crate) fn id(self) -> BucketId {
        BucketId::new(&self.slot.bucket, self.fingerprint)
    }

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
    // Out of line it costs an insertion's `search` nine instructions.
    #[inline]
    pub(crate) fn empty() -> Set {
        Set(std::array::from_fn(|_| Slot::empty()))
    }

    /// Returns the slots that have this fingerprint, one bit a slot.
    #[inline(always)]
    pub(super) fn matches(&self, fingerprint: u64) -> u32 {
        // All slots are loaded without a branch between them, so that both lines come at once. A
        // loop: closures may not be inlined.
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
    /// Returns whether a key has the slot, as far as one look can tell.
    pub(super) fn is_held(&self) -> bool {
        self.has_key() && self.bucket.state().is_level()
    }

    /// Returns whether the slot has a fingerprint. Certain if this thread has sealed the slot.
    pub(super) fn has_key(&self) -> bool {
        self.fingerprint.load(Ordering::Relaxed) > LATCH
    }

    /// Replaces the fingerprint beside the latch. Returns whether there was one.
    pub(super) fn change(&self, fingerprint: u64) -> bool {
        let was = self.fingerprint.load(Ordering::Relaxed) & !LATCH;
        self.fingerprint.fetch_xor(was ^ fingerprint, Ordering::Release);
        was != 0
    }
}

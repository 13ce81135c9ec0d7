//! The hot slots: each has cells for one spread bucket, found by address.

use std::sync::atomic::{self, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use crate::bucket::atomic::rarely;
use crate::bucket::lease::{Generation, LeaseCells};
use crate::keyed::id::{BucketId, EntryId};
use crate::keyed::key::mix;
use crate::sync::{AtomicU64, MODEL, Ordering};

/// The number of hot slots: at most this many keys are spread at the same time.
pub(crate) const HOT_SLOTS: usize = if MODEL { 1 } else { 16 };

/// Nanoseconds without demand after which a key is demoted.
const IDLE: u64 = 100_000_000;

/// Lost races within `WINDOW` after which a key is promoted.
const LOST: u64 = 32;
/// Nanoseconds within which the `LOST` races of a promotion are lost.
const WINDOW: u64 = 10_000_000;

/// A hot slot: cells, the bucket that has them, and the candidate to have them next.
///
/// The candidate is a guess: a lost race between threads that note it has no consequence.
#[derive(Debug)]
pub(crate) struct HotSlot {
    /// A counter of steps: free, being given to a bucket, that bucket's. Then it is free again.
    step: AtomicU64,
    /// The address of the bucket. Valid, as the next three, if `step` is the same before and after.
    address: AtomicU64,
    fingerprint: AtomicU64,
    tag: AtomicU64,
    begun: AtomicU64,
    pub(crate) cells: LeaseCells,
    candidate: atomic::AtomicU64,
    lost: atomic::AtomicU64,
    since: atomic::AtomicU64,
}

/// Steps from one generation of a hot slot to the next.
const STEPS: u64 = 4;
const FREE: u64 = 0;
const GIVEN: u64 = 2;

/// One use of a hot slot by one bucket, identified by the slot's step counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenure(u64);

impl Tenure {
    pub(crate) fn generation(self) -> Generation {
        Generation::number(self.0 / STEPS)
    }
}

impl HotSlot {
    fn new() -> HotSlot {
        HotSlot {
            step: AtomicU64::new(FREE),
            address: AtomicU64::new(0),
            fingerprint: AtomicU64::new(0),
            tag: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            cells: LeaseCells::one_a_core(),
            candidate: atomic::AtomicU64::new(0),
            lost: atomic::AtomicU64::new(0),
            since: atomic::AtomicU64::new(0),
        }
    }

    fn given(step: u64) -> Option<Tenure> {
        (step % STEPS == GIVEN).then_some(Tenure(step))
    }

    /// Returns the current tenure, if a bucket has the hot slot.
    #[inline]
    pub(crate) fn tenure(&self) -> Option<Tenure> {
        HotSlot::given(self.step.load(Ordering::Acquire))
    }

    /// Returns the tenure like [`tenure`](HotSlot::tenure), by a read-modify-write.
    ///
    /// So a thread that gives the hot slot later synchronizes with this one.
    pub(crate) fn latest(&self) -> Option<Tenure> {
        HotSlot::given(self.step.fetch_add(0, Ordering::AcqRel))
    }

    /// Returns the current tenure if the slot's address is this bucket's.
    ///
    /// While a slot is being given, the tenure may be the previous one.
    #[inline]
    pub(crate) fn tenure_of(&self, id: BucketId) -> Option<Tenure> {
        // Of most buckets the hot slot has never had the address: one look.
        if self.address.load(Ordering::Acquire) != id.address {
            return None;
        }
        rarely();
        self.tenure().filter(|_| self.address.load(Ordering::Acquire) == id.address)
    }

    #[inline]
    pub(crate) fn is_tenure(&self, tenure: Tenure) -> bool {
        self.step.load(Ordering::Acquire) == tenure.0
    }

    /// Returns the bucket of this tenure and its tag in a map; `None` if the tenure is over.
    pub(crate) fn tenant(&self, tenure: Tenure) -> Option<(BucketId, EntryId)> {
        let (address, fingerprint) =
            (self.address.load(Ordering::Acquire), self.fingerprint.load(Ordering::Acquire));
        let tag = self.tag.load(Ordering::Acquire);
        self.is_tenure(tenure).then(|| (BucketId { address, fingerprint }, EntryId::unpack(tag)))
    }

    /// Returns whether the cells have been without demand for more than `IDLE`.
    pub(crate) fn is_idle(&self, now: u64) -> bool {
        now.saturating_sub(self.begun.load(Ordering::Acquire)) > IDLE && self.cells.is_at_leisure(now, IDLE)
    }

    /// Gives a free hot slot to a bucket, unless a thread is still at its cells.
    pub(crate) fn give(&self, id: BucketId, tag: EntryId, now: u64) -> Option<Tenure> {
        let free = self.step.load(Ordering::Relaxed);
        let tenure = Tenure(free + GIVEN);
        if free % STEPS != FREE || !self.advance(free, free + 1) {
            return None;
        }
        if !self.cells.open(tenure.generation()) {
            self.advance(free + 1, free + STEPS);
            return None;
        }
        self.address.store(id.address, Ordering::Release);
        self.fingerprint.store(id.fingerprint, Ordering::Release);
        self.tag.store(tag.packed(), Ordering::Release);
        self.begun.store(now, Ordering::Release);
        self.advance(free + 1, tenure.0).then_some(tenure)
    }

    /// Ends the tenure, unless another thread ended it before.
    pub(crate) fn leave(&self, tenure: Tenure) {
        self.advance(tenure.0, tenure.0 - GIVEN + STEPS);
    }

    /// Ends a tenure in which nothing is leased, nor can be.
    #[cold]
    pub(crate) fn drop_unused(&self, tenure: Tenure) {
        if self.cells.close_unused(tenure.generation()) {
            self.leave(tenure);
        }
    }

    fn advance(&self, from: u64, to: u64) -> bool {
        self.step.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Notes a lost race on a bucket. Returns true after `LOST` races within `WINDOW`.
    pub(crate) fn note_lost(&self, id: BucketId, now: u64) -> bool {
        let passed = now.saturating_sub(self.since.load(Relaxed));
        let same = self.candidate.load(Relaxed) == id.address;
        if passed > WINDOW || (!same && self.lost.load(Relaxed) == 0) {
            self.candidate.store(id.address, Relaxed);
            self.lost.store(1, Relaxed);
            self.since.store(now, Relaxed);
            return false;
        }
        if !same {
            return false;
        }
        let lost = self.lost.load(Relaxed) + 1;
        self.lost.store(if lost < LOST { lost } else { 0 }, Relaxed);
        lost >= LOST
    }
}

#[derive(Debug)]
pub(crate) struct HotSlots([CachePadded<HotSlot>; HOT_SLOTS]);

impl HotSlots {
    pub(crate) fn new() -> HotSlots {
        HotSlots(std::array::from_fn(|_| CachePadded::new(HotSlot::new())))
    }

    /// Returns the hot slot in which a bucket would be spread.
    #[inline]
    pub(crate) fn of(&self, id: BucketId) -> &HotSlot {
        self.at(mix(id.address) >> 48)
    }

    pub(crate) fn at(&self, number: u64) -> &HotSlot {
        // The index is below the number of hot slots.
        &self.0[(number % HOT_SLOTS as u64) as usize]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &HotSlot> {
        self.0.iter().map(|slot| &**slot)
    }
}

//! Which buckets are spread: a few seats, each with cells for one of them, by address.

use std::sync::atomic::{self, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use crate::bucket::lease::{Generation, LeaseCells};
use crate::keyed::id::{BucketId, EntryId, mix};
use crate::sync::{AtomicU64, Ordering};

const MODEL: bool = cfg!(all(test, any(loom, shuttle)));

/// As many keys are spread at the same time, at most.
pub(crate) const SEATS: usize = if MODEL { 1 } else { 16 };

/// A key that is not in demand for so long is spread no more, in nanoseconds.
const IDLE: u64 = 100_000_000;

/// A key is spread when it has lost so many races
const LOST: u64 = 32;
/// within so many nanoseconds.
const WINDOW: u64 = 10_000_000;

/// A bucket as it was found, and what it is known by.
#[derive(Clone, Copy)]
pub(crate) struct Known<W> {
    pub(crate) id: BucketId,
    pub(crate) word: W,
}

/// Cells, whose they are, and whose they may be next. The latter is a guess: it is of no consequence if races between those
/// who note it are lost.
#[derive(Debug)]
pub(crate) struct HotSlot {
    /// Counts on: the seat is free, is being given to a bucket, is that bucket's, is free.
    step: AtomicU64,
    /// The bucket, and since when it is spread: for who finds the same step before and after.
    address: AtomicU64,
    fingerprint: AtomicU64,
    tag: AtomicU64,
    begun: AtomicU64,
    pub(crate) cells: LeaseCells,
    candidate: atomic::AtomicU64,
    lost: atomic::AtomicU64,
    since: atomic::AtomicU64,
}

/// Steps from one life of a seat to the next.
const STEPS: u64 = 3;
const FREE: u64 = 0;
const GIVEN: u64 = 2;

/// One time that a bucket is spread: the step of its seat meanwhile.
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

    /// Whose time it is.
    #[inline]
    pub(crate) fn time(&self) -> Option<Tenure> {
        HotSlot::given(self.step.load(Ordering::Acquire))
    }

    /// As [`time`](HotSlot::time), as nobody can have changed it since: who takes the seat later sees what was done before.
    pub(crate) fn latest(&self) -> Option<Tenure> {
        HotSlot::given(self.step.fetch_add(0, Ordering::AcqRel))
    }

    /// When a bucket is spread there: now, or another time that is over, if it is just being spread.
    #[inline]
    pub(crate) fn time_of(&self, id: BucketId) -> Option<Tenure> {
        self.time().filter(|_| self.address.load(Ordering::Acquire) == id.address)
    }

    #[inline]
    pub(crate) fn is_time(&self, time: Tenure) -> bool {
        self.step.load(Ordering::Acquire) == time.0
    }

    /// The bucket that is spread at this time, and its tag in a map; unless that is over.
    pub(crate) fn tenant(&self, time: Tenure) -> Option<(BucketId, EntryId)> {
        let (address, fingerprint) =
            (self.address.load(Ordering::Acquire), self.fingerprint.load(Ordering::Acquire));
        let tag = self.tag.load(Ordering::Acquire);
        self.is_time(time).then(|| (BucketId { address, fingerprint }, EntryId::unpack(tag)))
    }

    /// Whether its cells have not been in demand for long.
    pub(crate) fn is_idle(&self, now: u64) -> bool {
        now.saturating_sub(self.begun.load(Ordering::Acquire)) > IDLE && self.cells.is_at_leisure(now, IDLE)
    }

    /// Gives a seat to a bucket, if it is free, and nobody is at its cells still.
    pub(crate) fn give(&self, id: BucketId, tag: EntryId, now: u64) -> Option<Tenure> {
        let free = self.step.load(Ordering::Relaxed);
        let time = Tenure(free + GIVEN);
        if free % STEPS != FREE || !self.advance(free, free + 1) {
            return None;
        }
        if !self.cells.open(time.generation()) {
            self.advance(free + 1, free + STEPS);
            return None;
        }
        self.address.store(id.address, Ordering::Release);
        self.fingerprint.store(id.fingerprint, Ordering::Release);
        self.tag.store(tag.packed(), Ordering::Release);
        self.begun.store(now, Ordering::Release);
        self.advance(free + 1, time.0).then_some(time)
    }

    /// The time is over; or was before, by somebody else.
    pub(crate) fn leave(&self, time: Tenure) {
        self.advance(time.0, time.0 + 1);
    }

    /// The same of a time in which nothing is leased, nor can be.
    #[cold]
    pub(crate) fn drop_unused(&self, time: Tenure) {
        if self.cells.close_unused(time.generation()) {
            self.leave(time);
        }
    }

    fn advance(&self, from: u64, to: u64) -> bool {
        self.step.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Notes that a race was lost on a bucket. True if that was often of late.
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
pub(crate) struct HotSlots(Box<[CachePadded<HotSlot>]>);

impl HotSlots {
    pub(crate) fn new() -> HotSlots {
        HotSlots((0..SEATS).map(|_| CachePadded::new(HotSlot::new())).collect())
    }

    /// Where a bucket would be.
    #[inline]
    pub(crate) fn of(&self, id: BucketId) -> &HotSlot {
        self.at(mix(id.address) >> 48)
    }

    pub(crate) fn at(&self, number: u64) -> &HotSlot {
        // Below the number of seats.
        &self.0[(number % SEATS as u64) as usize]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &HotSlot> {
        self.0.iter().map(|slot| &**slot)
    }
}

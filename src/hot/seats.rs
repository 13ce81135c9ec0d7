//! Which buckets are spread: a few seats, each for one of them, by address.

use std::sync::atomic::{self, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use crate::bucket::Bucket;
use crate::key::mixed;
use crate::sync::{AtomicU64, Ordering};

const MODEL: bool = cfg!(all(test, any(loom, shuttle)));

/// As many keys are spread at the same time, at most.
pub(crate) const SEATS: usize = if MODEL { 1 } else { 16 };

/// A key is spread when it has lost so many races
const LOST: u64 = 32;
/// within so many nanoseconds.
const WINDOW: u64 = 10_000_000;

/// The seat is nobody's.
const NONE: u64 = 0;
/// Somebody is about to say whose it is: nobody's yet.
const BUSY: u64 = u64::MAX;

/// What a bucket is known by: where it is, and in a table by the digest of the key that has the slot.
///
/// An entry of a map is one key's as long as it lives, and a seat is left before it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    pub(crate) address: u64,
    digest: u64,
}

impl Id {
    #[inline]
    pub(crate) fn new(bucket: &Bucket, digest: u64) -> Id {
        Id { address: std::ptr::from_ref(bucket).addr() as u64, digest }
    }

    /// Of a bucket in a map; or in a table, whosever it is.
    #[inline]
    pub(crate) fn of(bucket: &Bucket) -> Id {
        Id::new(bucket, 0)
    }
}

/// Whose the cells of a life are, and who may be next. The latter is a guess: it is of no consequence if races between those
/// who note it are lost.
#[derive(Debug)]
pub(crate) struct Seat {
    life: AtomicU64,
    /// Where the bucket is, written before the life.
    address: AtomicU64,
    candidate: atomic::AtomicU64,
    lost: atomic::AtomicU64,
    since: atomic::AtomicU64,
}

impl Seat {
    fn new() -> Seat {
        Seat {
            life: AtomicU64::new(NONE),
            address: AtomicU64::new(0),
            candidate: atomic::AtomicU64::new(0),
            lost: atomic::AtomicU64::new(0),
            since: atomic::AtomicU64::new(0),
        }
    }

    /// The life of a bucket, if it is spread; or one that is over, if it is just getting one.
    #[inline]
    pub(crate) fn life_of(&self, id: Id) -> Option<u64> {
        self.life().filter(|_| self.address.load(Ordering::Acquire) == id.address)
    }

    #[inline]
    pub(crate) fn life(&self) -> Option<u64> {
        Some(self.life.load(Ordering::Acquire)).filter(|life| ![NONE, BUSY].contains(life))
    }

    /// As [`life`](Seat::life), as nobody can have changed it since: who takes the seat later sees what was done before.
    pub(crate) fn latest(&self) -> Option<u64> {
        Some(self.life.fetch_add(0, Ordering::AcqRel)).filter(|life| ![NONE, BUSY].contains(life))
    }

    /// Takes a seat that is nobody's.
    pub(crate) fn take(&self) -> bool {
        self.life.compare_exchange(NONE, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Says whose a seat is that was taken.
    pub(crate) fn give(&self, id: Id, life: u64) {
        self.address.store(id.address, Ordering::Release);
        self.life.store(life, Ordering::Release);
    }

    /// Ends a life. False if somebody else has.
    pub(crate) fn leave(&self, life: u64) -> bool {
        self.life.compare_exchange(life, NONE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Notes that a race was lost on a bucket. True if that was often of late.
    pub(crate) fn note_lost(&self, id: Id, now: u64) -> bool {
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
pub(crate) struct Seats([CachePadded<Seat>; SEATS]);

impl Seats {
    pub(crate) fn new() -> Seats {
        Seats(std::array::from_fn(|_| CachePadded::new(Seat::new())))
    }

    /// Where a bucket would be.
    #[inline]
    pub(crate) fn of(&self, id: Id) -> &Seat {
        self.at(mixed(id.address) >> 48)
    }

    pub(crate) fn at(&self, number: u64) -> &Seat {
        // Below the number of seats.
        &self.0[(number % SEATS as u64) as usize]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Seat> {
        self.0.iter().map(|seat| &**seat)
    }
}

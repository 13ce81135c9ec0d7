//! A cell: the lease of one core, tokens that were taken from the word of a spread bucket already.
//!
//! | bits    | field   | meaning                                                         |
//! |---------|---------|-----------------------------------------------------------------|
//! | `63`    | CLAIMED | one thread fills or ends the lease: no token is left for others |
//! | `16..32`| size    | tokens that were put here when it was filled                    |
//! | `0..16` | left    | tokens of the size that are still here                          |
//!
//! A claimed word is changed only by the thread that has the claim. The other fields of a `Cell`,
//! beside this word, are statistics, and may be mutually inconsistent. They influence when leases
//! begin and end, their size, and the `remaining` and `reset_after` reported to callers.

use std::cell;
use std::sync::atomic::{self, AtomicUsize};

use crate::fault::{Fault, injected};
use crate::sync::{AtomicU64, MODEL, Ordering};
use crate::word::decision::Granted;

const CLAIMED: u64 = 1 << 63;
const SIZE: u64 = LEFT << SIZE_AT;
const SIZE_AT: u32 = 16;
const LEFT: u64 = u16::MAX as u64;

/// Largest lease, in tokens: the use of a core in a few microseconds.
pub(crate) const MAX_LEASE: u64 = if MODEL { 2 } else { 512 };
/// Takes in quick succession before the first lease.
const WARM_UP_TAKES: u64 = if MODEL { 0 } else { 32 };
/// Tokens assumed to be left in the bucket of a new cell.
const UNKNOWN: u64 = if MODEL { MAX_LEASE } else { 0 };
/// Nanoseconds between two fills, up to which the next lease is doubled.
const QUICK: u64 = 4_000;
/// Nanoseconds between two fills, above which the next lease is halved.
const SLOW: u64 = 4 * QUICK;
/// Nanoseconds between two fills, above which the cell is idle and gets no lease.
pub(crate) const IDLE: u64 = 1_000_000;

/// The word of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease(u64);

impl Lease {
    /// Returns a full lease of `size` tokens, at most [`MAX_LEASE`].
    pub(crate) fn of(size: u64) -> Lease {
        Lease(size << SIZE_AT | size)
    }

    pub(crate) fn size(self) -> u64 {
        (self.0 & SIZE) >> SIZE_AT
    }

    #[inline(always)]
    pub(crate) fn left(self) -> u64 {
        self.0 & LEFT
    }

    #[inline(always)]
    pub(crate) fn is_claimed(self) -> bool {
        self.0 > SIZE | LEFT
    }
}

/// The demand on a cell: takes in quick succession up to `WARM_UP_TAKES`, then lease doublings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Demand(u64);

impl Demand {
    /// Returns the tokens of the next lease; 1 means no lease.
    fn batch(self) -> u64 {
        // At most `MAX_LEASE`: `after` sees to that.
        self.0.checked_sub(WARM_UP_TAKES).map_or(1, |doublings| 2 << doublings)
    }

    /// Returns whether the demand is too low for a lease.
    fn is_cold(self) -> bool {
        self.0.checked_sub(WARM_UP_TAKES).is_none()
    }

    /// Returns the demand after a use of the word `gap` nanoseconds later; a lease may be `most`.
    fn after(self, gap: u64, most: u64) -> Demand {
        if MODEL {
            return self;
        }
        let heat = match gap {
            0..=QUICK if self.is_cold() || 2 * self.batch() <= most.min(MAX_LEASE) => self.0 + 1,
            0..=SLOW if !self.is_cold() => self.0,
            0..=IDLE if self.0 > WARM_UP_TAKES => self.0 - 1,
            _ => 0,
        };
        let fits = Demand(heat).is_cold() || Demand(heat).batch() <= most;
        Demand(if fits { heat } else { WARM_UP_TAKES - 1 })
    }
}

/// The lease of about one core, and statistics on it. Threads are dealt over the cells in turn.
#[derive(Debug)]
pub(crate) struct Cell {
    /// The word that the table above describes.
    lease: AtomicU64,
    /// Tokens that the word had left when this cell last took from it; 0 if there were too few.
    rest: AtomicU64,
    /// Nanoseconds from the last refill of this cell until the bucket would be full.
    reset: AtomicU64,
    /// Time at which this cell last took from the word, in nanoseconds.
    seen: AtomicU64,
    /// The [`Demand`].
    heat: AtomicU64,
    /// Number of takes from the word.
    turn: AtomicU64,
}

impl Cell {
    pub(crate) fn new() -> Cell {
        Cell {
            lease: AtomicU64::new(0),
            rest: AtomicU64::new(UNKNOWN),
            reset: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            heat: AtomicU64::new(0),
            turn: AtomicU64::new(0),
        }
    }

    /// Takes `n` tokens, above 0, of those left here, or returns `None` if there are fewer.
    #[inline(always)]
    pub(crate) fn take(&self, n: u64) -> Option<Granted> {
        let mut lease = self.lease();
        loop {
            // A claimed cell has `left == 0`.
            if n.wrapping_sub(1) >= lease.left() {
                return None;
            }
            let next = Lease(lease.0 - n);
            if injected(Fault::LeaseByStore) {
                self.put(next);
                return Some(self.granted(n, next.left()));
            }
            match self.lease.compare_exchange_weak(lease.0, next.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(self.granted(n, next.left())),
                Err(word) => lease = Lease(word),
            }
        }
    }

    #[inline(always)]
    pub(crate) fn granted(&self, n: u64, left: u64) -> Granted {
        let (rest, reset) = (self.rest.load(Ordering::Relaxed), self.reset.load(Ordering::Relaxed));
        Granted::leased(n, rest.saturating_add(left), reset)
    }

    #[inline(always)]
    pub(crate) fn lease(&self) -> Lease {
        Lease(self.lease.load(Ordering::Acquire))
    }

    #[cfg(test)]
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn lease_size(&self) -> u64 {
        self.lease().size()
    }

    /// Loads the word by a read-modify-write.
    ///
    /// A thread that claims the cell later synchronizes with this one.
    pub(crate) fn latest(&self) -> Lease {
        Lease(self.lease.fetch_add(0, Ordering::AcqRel))
    }

    /// Claims the cell, if it still has `lease`. The tokens left in it are then the thread's.
    pub(crate) fn claim(&self, lease: Lease) -> bool {
        let claimed = CLAIMED | (lease.0 & !LEFT);
        self.lease.compare_exchange(lease.0, claimed, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends a claim and stores `lease`.
    pub(crate) fn put(&self, lease: Lease) {
        self.lease.store(lease.0, Ordering::Release);
    }

    /// Returns the tokens that the next lease is to have.
    pub(crate) fn batch(&self) -> u64 {
        Demand(self.heat.load(Ordering::Relaxed)).batch()
    }

    pub(crate) fn rest(&self) -> u64 {
        self.rest.load(Ordering::Relaxed)
    }

    /// Notes that the word has too few tokens.
    pub(crate) fn note_too_few(&self) {
        self.rest.store(0, Ordering::Relaxed);
    }

    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Notes a take from the word that left `rest` tokens, and returns the number of such takes.
    ///
    /// `most` is the largest lease that the bucket allows.
    pub(crate) fn note(&self, now: u64, rest: u64, most: u64) -> u64 {
        let gap = now.saturating_sub(self.seen());
        let heat = Demand(self.heat.load(Ordering::Relaxed)).after(gap, most);
        let turn = self.turn.load(Ordering::Relaxed).wrapping_add(1);
        self.heat.store(heat.0, Ordering::Relaxed);
        self.seen.store(now, Ordering::Relaxed);
        self.rest.store(rest, Ordering::Relaxed);
        self.turn.store(turn, Ordering::Relaxed);
        turn
    }

    pub(crate) fn note_reset(&self, nanos: u64) {
        self.reset.store(nanos, Ordering::Relaxed);
    }
}

thread_local! {
    static PLACE: cell::Cell<usize> = const { cell::Cell::new(usize::MAX) };
}

/// Returns the index of this thread, the same for its whole life; indexes are dealt in turn.
#[inline(always)]
pub(crate) fn thread_index() -> usize {
    PLACE.with(|place| match place.get() {
        usize::MAX => deal(place),
        own => own,
    })
}

#[cold]
fn deal(place: &cell::Cell<usize>) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    place.set(NEXT.fetch_add(1, atomic::Ordering::Relaxed) & (usize::MAX >> 1));
    place.get()
}

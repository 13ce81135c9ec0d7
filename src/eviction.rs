//! Room for new keys: a ring of tickets, and a hand that turns on it.
//!
//! The ring has one slot for each key the limiter may hold. A slot is free, taken by the hash of a key in
//! the map, or busy: claimed by one thread. Only a claimed slot admits a key, so the bound on keys is exact.
//! The hand claims slot after slot; where it finds the entry of the slot's hash evictable, or gone, the new
//! key gets the slot. A full bucket says the same as none, so evicting one changes no decision.
//!
//! Slots and entries: every entry in the map has a slot with its hash, or a claimed one whose owner
//! is inserting it. A slot may outlive its entry (the key was removed, an inserting thread panicked); the hand
//! finds it so.
//!
//! # Orderings
//!
//! A slot is claimed by an `AcqRel` compare-and-swap and given back by a `Release` store: who claims it
//! next sees what the last owner did to the map. Partner: any two claims of the same slot.
//! Which slot is looked at when is a heuristic: the hand's own numbers are `Relaxed`.

use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering};

/// A call that makes room looks at this many entries at the most.
const LOOKS: usize = 64;
/// And at this many after a fruitless turn, until some bucket can be due.
const LOOKS_AT_REST: usize = 4;

/// Slots are made in segments of this many, when the hand first gets there.
const SEGMENT: usize = 4096;

const FREE: u64 = 0;
const BUSY: u64 = 1;

/// A hash that a slot can hold.
#[inline]
pub(crate) fn slot_hash(hash: u64) -> u64 {
    if hash <= BUSY { BUSY + 1 } else { hash }
}

/// What the hand finds at a slot.
pub(crate) enum Look {
    /// The entry is gone.
    Gone,
    /// The entry stays, at least until the clock reads this.
    Stays { due: u64 },
}

pub(crate) struct Ring {
    segments: Box<[OnceLock<Box<[AtomicU64]>>]>,
    len: usize,
    hand: CachePadded<Hand>,
}

struct Hand {
    next: AtomicUsize,
    /// Looks in vain since the last that made room.
    fruitless: AtomicUsize,
    /// The earliest that any of them can be due.
    soonest: AtomicU64,
    /// A whole turn was in vain: nothing can be due before this.
    rest_until: AtomicU64,
}

impl Ring {
    pub(crate) fn new(len: usize) -> Ring {
        Ring {
            segments: (0..len.div_ceil(SEGMENT)).map(|_| OnceLock::new()).collect(),
            len,
            hand: CachePadded::new(Hand {
                next: AtomicUsize::new(0),
                fruitless: AtomicUsize::new(0),
                soonest: AtomicU64::new(u64::MAX),
                rest_until: AtomicU64::new(0),
            }),
        }
    }

    fn slot(&self, index: usize) -> &AtomicU64 {
        let segment = self.segments[index / SEGMENT].get_or_init(|| {
            let len = SEGMENT.min(self.len - index / SEGMENT * SEGMENT);
            (0..len).map(|_| AtomicU64::new(FREE)).collect()
        });
        &segment[index % SEGMENT]
    }

    /// A ticket for one more key, or when there may be one (nothing if never).
    ///
    /// `look` evicts the entry of a hash if it may be evicted. `now` is a clock reading.
    pub(crate) fn admit(&self, now: u64, look: impl Fn(u64) -> Look) -> Result<Ticket<'_>, Option<u64>> {
        if self.len == 0 {
            return Err(None);
        }
        let hand = &self.hand;
        let rest_until = hand.rest_until.load(Ordering::Relaxed);
        let looks = if now < rest_until { LOOKS_AT_REST } else { LOOKS }.min(self.len);
        let mut soonest = u64::MAX;
        for _ in 0..looks {
            let index = hand.next.fetch_add(1, Ordering::Relaxed) % self.len;
            match self.claim(self.slot(index), &look) {
                Ok(ticket) => {
                    hand.fruitless.store(0, Ordering::Relaxed);
                    hand.soonest.store(u64::MAX, Ordering::Relaxed);
                    hand.rest_until.store(0, Ordering::Relaxed);
                    return Ok(ticket);
                }
                Err(due) => soonest = soonest.min(due.unwrap_or(now)),
            }
        }
        let soonest = soonest.min(hand.soonest.fetch_min(soonest, Ordering::Relaxed));
        let fruitless = hand.fruitless.fetch_add(looks, Ordering::Relaxed) + looks;
        if fruitless >= self.len {
            hand.fruitless.store(0, Ordering::Relaxed);
            hand.soonest.store(u64::MAX, Ordering::Relaxed);
            hand.rest_until.store(soonest, Ordering::Relaxed);
        }
        Err(Some(if now < rest_until { soonest.min(rest_until) } else { soonest }))
    }

    /// Claims a slot if its entry is gone; else tells when it may be, if that is known.
    fn claim<'a>(&self, slot: &'a AtomicU64, look: impl Fn(u64) -> Look) -> Result<Ticket<'a>, Option<u64>> {
        let held = slot.load(Ordering::Relaxed);
        if held == BUSY || slot.compare_exchange(held, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(None);
        }
        let ticket = Ticket { slot, hash: held };
        if held == FREE {
            return Ok(ticket);
        }
        match look(held) {
            Look::Gone => Ok(ticket),
            Look::Stays { due } => Err(Some(due)),
        }
    }
}

/// A claimed slot. Dropped, it is given back with the hash it has: the one it was claimed with, or that of
/// the key it [`holds`](Ticket::holds) now. (So that a panic of the user's code leaves no slot busy.)
pub(crate) struct Ticket<'a> {
    slot: &'a AtomicU64,
    hash: u64,
}

impl Ticket<'_> {
    /// The slot is for the entry of this hash from here on, even if inserting it panics half-way.
    pub(crate) fn holds(&mut self, hash: u64) {
        self.hash = hash;
    }

    /// The slot is not needed: somebody else inserted the key.
    pub(crate) fn free(&mut self) {
        self.hash = FREE;
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.slot.store(self.hash, Ordering::Release);
    }
}

//! Room for new keys: a ring of tickets, and a hand that turns on it.
//!
//! The ring has one ticket for each key the limiter may hold. A ticket is free, taken by an entry of the map (it
//! has that key's hash), or busy: claimed by one thread. Only a claimed ticket admits a key, so the bound on
//! keys is exact. The hand claims ticket after ticket; where it finds the entry evictable, or gone, the new key gets
//! the ticket. A full bucket says the same as none, so evicting one changes no decision.
//!
//! Every entry has a ticket of its own and knows which. A ticket may outlive its entry (the key was removed, an
//! inserting thread panicked); the hand finds it so.
//!
//! # Orderings
//!
//! A ticket is claimed by an `AcqRel` compare-and-swap and given back by a `Release` store: who claims it
//! next sees what the last owner did to the map. Partner: any two claims of the same ticket. Checked by
//! `a_ticket_has_one_entry` in `src/tests/models/`, beside a stand-in for the map; `tests/stress.rs` runs it on threads.
//! Which ticket is looked at when is a heuristic: the hand's own numbers are `Relaxed`.

use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use crossbeam_utils::CachePadded;

use crate::keyed::id::{BUSY, EntryId, FREE};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A call that makes room looks at this many entries at the most.
const MAX_PROBES: usize = 64;
/// And at this many after a fruitless turn, until some bucket can be due.
const MAX_PROBES_RESTING: usize = 4;

/// Tickets are made in segments of this many, when the hand first gets there.
const SEGMENT: usize = 4096;

/// What the hand finds of a ticket's entry.
pub(crate) enum Probe {
    /// It is gone.
    Gone,
    /// It stays, at least until the clock reads this.
    Stays { due: u64 },
}

pub(crate) struct ClockRing {
    segments: Box<[OnceLock<Box<[AtomicU32]>>]>,
    len: usize,
    hand: CachePadded<Hand>,
}

struct Hand {
    next: AtomicUsize,
    /// Looks in vain since the last that made room.
    fruitless: AtomicUsize,
    /// The earliest that any of their entries can be due.
    soonest: AtomicU64,
    /// A whole turn was in vain: nothing can be due before this.
    rest_until: AtomicU64,
}

impl ClockRing {
    pub(crate) fn new(len: usize) -> ClockRing {
        ClockRing {
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

    fn ticket(&self, index: usize) -> &AtomicU32 {
        let segment = self.segments[index / SEGMENT].get_or_init(|| {
            // The last may have some that are never used.
            (0..SEGMENT.min(self.len)).map(|_| AtomicU32::new(FREE)).collect()
        });
        &segment[index % SEGMENT]
    }

    /// A ticket for one more key, or the clock reading before which none is due (nothing if none ever is).
    ///
    /// `look` evicts the entry of a tag if it may be evicted. `now` is a clock reading.
    pub(crate) fn admit(&self, now: u64, look: impl Fn(EntryId) -> Probe) -> Result<Ticket<'_>, Option<u64>> {
        if self.len == 0 {
            return Err(None);
        }
        let hand = &self.hand;
        let rest_until = hand.rest_until.load(Ordering::Relaxed);
        let looks = if now < rest_until { MAX_PROBES_RESTING } else { MAX_PROBES }.min(self.len);
        let mut soonest = u64::MAX;
        for _ in 0..looks {
            let index = hand.next.fetch_add(1, Ordering::Relaxed) % self.len;
            match self.claim(index, &look) {
                Ok(ticket) => {
                    self.start_over();
                    return Ok(ticket);
                }
                Err(due) => soonest = soonest.min(due.unwrap_or(now)),
            }
        }
        let soonest = soonest.min(hand.soonest.fetch_min(soonest, Ordering::Relaxed));
        if hand.fruitless.fetch_add(looks, Ordering::Relaxed) + looks >= self.len {
            hand.fruitless.store(0, Ordering::Relaxed);
            hand.soonest.store(u64::MAX, Ordering::Relaxed);
            hand.rest_until.store(soonest, Ordering::Relaxed);
            return Err(Some(soonest));
        }
        // Before a whole turn nobody knows.
        Err(Some(now.max(rest_until)))
    }

    /// Forgets the looks so far: the entry that comes now may be due before the others.
    fn start_over(&self) {
        self.hand.fruitless.store(0, Ordering::Relaxed);
        self.hand.soonest.store(u64::MAX, Ordering::Relaxed);
        self.hand.rest_until.store(0, Ordering::Relaxed);
    }

    /// Whether the hand goes by the times at which entries were due when it looked.
    pub(crate) fn relies_on_looks(&self) -> bool {
        let Hand { fruitless, rest_until, .. } = &*self.hand;
        rest_until.load(Ordering::Relaxed) > 0 || fruitless.load(Ordering::Relaxed) > 0
    }

    /// An entry may be due at the clock reading `due`, earlier than when the hand looked: it rests
    /// no longer than until then.
    ///
    /// Stores nothing while the hand has not looked in vain, or rests no longer anyway.
    pub(crate) fn reset_rest(&self, due: u64) {
        let Hand { fruitless, soonest, rest_until, .. } = &*self.hand;
        if fruitless.load(Ordering::Relaxed) > 0 && soonest.load(Ordering::Relaxed) > due {
            // The turn under way may have passed the entry.
            soonest.fetch_min(due, Ordering::Relaxed);
        }
        if rest_until.load(Ordering::Relaxed) > due {
            rest_until.fetch_min(due, Ordering::Relaxed);
        }
    }

    /// Claims a ticket if its entry is gone; else tells when it may be, if that is known.
    fn claim(&self, index: usize, look: impl Fn(EntryId) -> Probe) -> Result<Ticket<'_>, Option<u64>> {
        let slot = self.ticket(index);
        let hash = slot.load(Ordering::Relaxed);
        if hash == BUSY || slot.compare_exchange(hash, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(None);
        }
        // The ring has 2^32 tickets at the most.
        let ticket = Ticket { slot, tag: EntryId { hash, ticket: index as u32 } };
        if hash == FREE {
            return Ok(ticket);
        }
        match look(ticket.tag) {
            Probe::Gone => Ok(ticket),
            Probe::Stays { due } => Err(Some(due)),
        }
    }
}

/// A claimed ticket. Dropped, it is given back with the hash it has: that of the entry it was claimed with, or of
/// the one it [`admits`](Ticket::admits) now. (So that a panic of the user's code leaves no ticket busy.)
pub(crate) struct Ticket<'a> {
    slot: &'a AtomicU32,
    tag: EntryId,
}

impl Ticket<'_> {
    /// The ticket is for the entry of this hash from here on, even if inserting it panics half-way.
    pub(crate) fn admits(&mut self, hash: u32) -> EntryId {
        self.tag.hash = hash;
        self.tag
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.slot.store(self.tag.hash, Ordering::Release);
    }
}

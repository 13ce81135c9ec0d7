//! The CLOCK ring that makes room for new keys: tickets, and a hand that turns over them.
//!
//! The ring has one ticket for each key that the limiter may hold. A ticket is free, taken by an
//! entry of the map (it has the hash of that key), or busy: claimed by one thread. Only a claimed
//! ticket admits a key, so the bound on keys is exact. The hand claims ticket after ticket. Where
//! the entry may be evicted, or is gone, the new key gets the ticket. A full bucket decides as a
//! new one does, so its eviction changes no decision.
//!
//! Every entry has a ticket of its own and stores its number. A ticket may outlive its entry (the
//! key was removed, an inserting thread panicked); the hand reclaims it.
//!
//! # Orderings
//!
//! *Release: the store that gives back a ticket pairs with the `AcqRel` compare-and-swap of the
//! next claim, so that the next owner sees the map as the last owner left it.* Partner: any two
//! claims of one ticket. Checked by `a_ticket_has_one_entry` in `src/tests/models/`, beside a
//! stand-in for the map. The order of probes is a heuristic, so the hand's own numbers are
//! `Relaxed`.

use std::sync::atomic::AtomicUsize;

use crate::keyed::id::{BUSY, EntryId, FREE};
use crate::sync::{AtomicU32, AtomicU64, OnceLock, Ordering};

/// Entries that one call probes to make room, at most: fewer the longer the hand finds none.
const MAX_PROBES: usize = 64;
/// The same after a thousand fruitless probes. After a turn, until some bucket can be due, it is 1.
const MIN_PROBES: usize = 4;

/// Tickets that are made with the ring. Each later segment has as many as all before it, and is
/// made when the hand first reaches it.
const FIRST: usize = 16;

/// The result of a probe of a ticket's entry.
pub(crate) enum Probe {
    /// The entry is gone.
    Gone,
    /// The entry stays, at least until the clock reads `due`.
    Stays { due: u64 },
}

/// Tickets that are made when the hand first reaches them.
type Segment = OnceLock<Box<[AtomicU32]>>;

pub(crate) struct ClockRing {
    first: [AtomicU32; FIRST],
    later: OnceLock<Box<[Segment]>>,
    len: usize,
    hand: Hand,
}

struct Hand {
    next: AtomicUsize,
    /// Fruitless probes since the last one that made room.
    fruitless: AtomicUsize,
    /// Earliest clock reading at which an entry of these probes can be due.
    soonest: AtomicU64,
    /// Clock reading before which no entry can be due, after a fruitless whole turn.
    rest_until: AtomicU64,
}

impl ClockRing {
    pub(crate) fn new(len: usize) -> ClockRing {
        ClockRing {
            first: std::array::from_fn(|_| AtomicU32::new(FREE)),
            later: OnceLock::new(),
            len,
            hand: Hand {
                next: AtomicUsize::new(0),
                fruitless: AtomicUsize::new(0),
                soonest: AtomicU64::new(u64::MAX),
                rest_until: AtomicU64::new(0),
            },
        }
    }

    fn ticket(&self, index: usize) -> &AtomicU32 {
        // The segment of an index from 16 to 31 is number 0, from 32 to 63 number 1, and so on.
        let number = |index: usize| (index / FIRST).ilog2() as usize;
        if index < FIRST {
            return &self.first[index];
        }
        let segments =
            self.later.get_or_init(|| (0..=number(self.len - 1)).map(|_| OnceLock::new()).collect());
        let start = FIRST << number(index);
        let segment = segments[number(index)].get_or_init(|| {
            let len = start.min(self.len - start);
            (0..len).map(|_| AtomicU32::new(FREE)).collect()
        });
        &segment[index - start]
    }

    /// Returns a ticket for one more key, or the clock reading before which none is due (`None`:
    /// never).
    ///
    /// `look` evicts the entry of an id if it may be evicted. `now` is a clock reading.
    pub(crate) fn admit(&self, now: u64, look: impl Fn(EntryId) -> Probe) -> Result<Ticket<'_>, Option<u64>> {
        if self.len == 0 {
            return Err(None);
        }
        let hand = &self.hand;
        let rest_until = hand.rest_until.load(Ordering::Relaxed);
        let fruitless = hand.fruitless.load(Ordering::Relaxed);
        let looks = (MAX_PROBES * MAX_PROBES / fruitless.max(MAX_PROBES)).max(MIN_PROBES).min(self.len);
        let looks = if now < rest_until { 1 } else { looks };
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
        // Before a whole turn the time is not known.
        Err(Some(now.max(rest_until)))
    }

    /// Resets the probes: the entry that is inserted now may be due before the others.
    fn start_over(&self) {
        self.hand.fruitless.store(0, Ordering::Relaxed);
        self.hand.soonest.store(u64::MAX, Ordering::Relaxed);
        self.hand.rest_until.store(0, Ordering::Relaxed);
    }

    /// Returns whether the hand rests, or counts fruitless probes.
    #[inline]
    pub(crate) fn relies_on_looks(&self) -> bool {
        let Hand { fruitless, rest_until, .. } = &self.hand;
        rest_until.load(Ordering::Relaxed) > 0 || fruitless.load(Ordering::Relaxed) > 0
    }

    /// Ends the hand's rest at the clock reading `due`: an entry may be due then, earlier than when
    /// the hand probed it. Stores nothing if the hand does not rest for longer.
    pub(crate) fn reset_rest(&self, due: u64) {
        let Hand { fruitless, soonest, rest_until, .. } = &self.hand;
        if fruitless.load(Ordering::Relaxed) > 0 && soonest.load(Ordering::Relaxed) > due {
            // The turn under way may have passed the entry.
            soonest.fetch_min(due, Ordering::Relaxed);
        }
        if rest_until.load(Ordering::Relaxed) > due {
            rest_until.fetch_min(due, Ordering::Relaxed);
        }
    }

    /// Claims a ticket if its entry is gone. Otherwise returns the time at which it is due, if
    /// known.
    fn claim(&self, index: usize, look: impl Fn(EntryId) -> Probe) -> Result<Ticket<'_>, Option<u64>> {
        let slot = self.ticket(index);
        let hash = slot.load(Ordering::Relaxed);
        if hash == BUSY || slot.compare_exchange(hash, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(None);
        }
        // The ring has at most 2^32 tickets.
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

/// A claimed ticket. A drop gives it back with its hash: that of the entry it was claimed with, or
/// of the key that it [`admits`](Ticket::admits). So a panic of the user's code leaves no ticket
/// busy.
pub(crate) struct Ticket<'a> {
    slot: &'a AtomicU32,
    tag: EntryId,
}

impl Ticket<'_> {
    /// Gives the ticket to the entry of this hash, even if the insertion then panics.
    pub(crate) fn admits(&mut self, hash: u32) -> EntryId {
        self.tag.hash = hash;
        self.tag
    }

    /// Returns whether it is one ticket in 4,096.
    pub(crate) fn is_rare(&self) -> bool {
        self.tag.ticket.is_multiple_of(1 << 12)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.slot.store(self.tag.hash, Ordering::Release);
    }
}

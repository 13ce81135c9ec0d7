//! The bound on the keys of all tables together, and the part of it that is each limit's own.
//!
//! Keys that no limit needs any more are swept. While half of the room is free, a new key takes a
//! slot without a question. From then on each limit has as many further slots as every other one:
//! a flood of keys under one limit leaves those of the others. A new key beyond them shares one of
//! some counts with other such keys of its limit. A limit with fixed values always has its slot.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use super::limiters::CountKey;

/// The most counts that the keys of a limit share.
const SLOTS: usize = 1_024;

/// The slots for keys.
pub(super) struct KeyRoom {
    pub(super) most: usize,
    /// The slots of keys with counts of their own.
    usable: AtomicUsize,
    /// Those of all limits together, before each has its own.
    pool: AtomicUsize,
    /// The counts that the keys of a limit share.
    slots: AtomicUsize,
    /// The keys that are held, less those that had arrived before they were counted. With all keys
    /// that have begun it is the number of keys, or more: one that arrives meanwhile counts twice.
    counted: AtomicUsize,
    /// The keys that have begun, and those of them that are held.
    begun: AtomicUsize,
    arrived: AtomicUsize,
    is_tight: AtomicBool,
    is_said: AtomicBool,
    /// The decisions on shared counts.
    shared: AtomicU64,
}

/// The part of a limit in the room.
#[derive(Default)]
pub(super) struct Share {
    /// A number of the limit, by which its shared counts are found.
    own: AtomicU64,
    /// The slots of its own.
    part: AtomicUsize,
    /// Those that it took since the last turn, and in the turn before.
    taken: [AtomicUsize; 2],
    /// The end of the turn, by the clock of windows, in nanoseconds.
    turn: AtomicU64,
    /// Whether keys share counts, and until when these count.
    is_shared: AtomicBool,
    until: AtomicU64,
}

/// The part of a limit that always has its slot.
const ALWAYS: usize = usize::MAX;

impl KeyRoom {
    pub(super) fn new(most: usize) -> KeyRoom {
        let room = KeyRoom {
            most,
            usable: AtomicUsize::new(0),
            pool: AtomicUsize::new(0),
            slots: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            arrived: AtomicUsize::new(0),
            is_tight: AtomicBool::new(false),
            is_said: AtomicBool::new(false),
            shared: AtomicU64::new(0),
        };
        room.divide(&[]);
        room
    }

    /// Divides the room among limits, each with its number and whether all its values are fixed.
    pub(super) fn divide(&self, limits: &[(&Share, u64, bool)]) {
        let open = limits.iter().filter(|(_, _, is_fixed)| !is_fixed).count();
        let slots = (self.most / 16 / open.max(1)).clamp(1, SLOTS);
        let usable = self.most.saturating_sub(slots * open.max(1));
        let own = if open > 1 { usable / 2 } else { 0 };
        self.slots.store(slots, Relaxed);
        self.usable.store(usable, Relaxed);
        self.pool.store(usable - own, Relaxed);
        for (share, number, is_fixed) in limits {
            share.own.store(*number, Relaxed);
            share.part.store(if *is_fixed { ALWAYS } else { own / open.max(1) }, Relaxed);
        }
    }

    #[inline]
    pub(super) fn is_tight(&self) -> bool {
        self.is_tight.load(Relaxed)
    }

    /// Returns the number of keys, or more.
    fn keys(&self) -> usize {
        self.counted.load(Relaxed).wrapping_add(self.begun.load(Relaxed))
    }

    /// Returns the keys from which on each new one asks for its slot. They are fewer than the
    /// pool, because one in 16 stands for all.
    fn tight_from(&self) -> usize {
        let pool = self.pool.load(Relaxed);
        pool - pool / 32
    }

    /// Counts a key that took no slot and had used nothing, which is a new one or an old one.
    /// Returns whether the keys are to be counted.
    #[inline]
    pub(super) fn begin(&self, key: CountKey) -> bool {
        // Of many keys one in 16 stands for all.
        let step = if self.most <= 1 << 16 { 1 } else { 16 };
        if usize::from(key[15]) % step != 0 {
            return false;
        }
        self.begun.fetch_add(step, Relaxed);
        self.arrived.fetch_add(step, AcqRel);
        self.keys() >= self.tight_from()
    }

    /// Ends the arrival of a key that took a slot.
    pub(super) fn arrive(&self) {
        self.arrived.fetch_add(1, AcqRel);
    }

    /// Counts the keys by a function.
    pub(super) fn count(&self, held: impl FnOnce() -> usize) {
        // Before the keys: each of these is among them.
        let arrived = self.arrived.load(Acquire);
        self.counted.store(held().wrapping_sub(arrived), Relaxed);
        let keys = self.keys();
        let is_tight = keys >= self.tight_from();
        self.is_tight.store(is_tight, Relaxed);
        if !is_tight && keys < self.pool.load(Relaxed) / 2 {
            self.is_said.store(false, Relaxed);
        }
    }

    /// Returns whether a new key of a limit has a slot, and takes it: [`arrive`](Self::arrive)
    /// follows.
    pub(super) fn take(&self, share: &Share, is_taken: bool) -> bool {
        let part = share.part.load(Relaxed);
        // First, so that no two calls take the last slot. A call that is refused one counts for a
        // moment, and another call may be refused because of it: its key shares a count.
        let begun = self.begun.fetch_add(usize::from(is_taken), Relaxed);
        let keys = self.counted.load(Relaxed).wrapping_add(begun);
        let is_within = part == ALWAYS || keys < self.pool.load(Relaxed);
        let has_slot = is_within || (keys < self.usable.load(Relaxed) && share.taken() < part);
        if has_slot && is_taken {
            share.taken[0].fetch_add(usize::from(!is_within), Relaxed);
        } else if is_taken {
            self.begun.fetch_sub(1, Relaxed);
        }
        has_slot
    }

    /// Counts a decision on a shared count, which counts until a time. Says the first one.
    pub(super) fn share(&self, share: &Share, until: u64) {
        share.until.fetch_max(until, Relaxed);
        share.is_shared.store(true, Relaxed);
        self.shared.fetch_add(1, Relaxed);
        if !self.is_said.swap(true, Relaxed) {
            tracing::warn!(
                "{} keys are held, and --max-keys is {}: new keys of a limit share its last counts",
                self.keys(),
                self.most
            );
        }
    }

    pub(super) fn shared(&self) -> u64 {
        self.shared.load(Relaxed)
    }

    /// Returns the key of the count that a key without a slot shares.
    pub(super) fn shared_key(&self, share: &Share, key: CountKey) -> CountKey {
        let half = key.last_chunk().map_or(0, |half| u64::from_le_bytes(*half));
        let slot = half % self.slots.load(Relaxed) as u64;
        let own = share.own.load(Relaxed);
        // Two halves of a hash by a secret: neither is one that a client can make.
        let first =
            own.rotate_left(29).wrapping_mul(slot.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15));
        let halves = [(first ^ (first >> 32)).to_le_bytes(), (own ^ slot).to_le_bytes()];
        std::array::from_fn(|at| halves[at / 8][at % 8])
    }
}

impl Share {
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared.load(Relaxed)
    }

    fn taken(&self) -> usize {
        self.taken.iter().map(|taken| taken.load(Relaxed)).sum()
    }

    /// Ends the turn, and the shared counts, when it is time. `longest` is the time for which a use
    /// counts.
    pub(super) fn turn(&self, now: u64, longest: u64, is_tight: bool) {
        if now >= self.until.load(Relaxed) {
            self.is_shared.store(false, Relaxed);
        }
        let [taken, before] = &self.taken;
        if !is_tight || now >= self.turn.load(Relaxed) {
            before.store(if is_tight { taken.load(Relaxed) } else { 0 }, Relaxed);
            taken.store(0, Relaxed);
            self.turn.store(now.saturating_add(longest), Relaxed);
        }
    }
}

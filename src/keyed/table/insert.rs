//! How a key gets a slot of a table.

use std::hint;
use std::sync::atomic::Ordering::Relaxed;

use super::set::{LATCH, SLOTS, Slot, fingerprint};
use super::two_choice::{KEYS_PER_SET, Table};
use crate::bucket::atomic::{Bucket, BucketRef, ReadClock, stop};
use crate::bucket::engine::{Done, Engine};
use crate::fault::{Fault, injected};
use crate::keyed::idle::IdleCheck;
use crate::keyed::protocol::Entry;
use crate::sync::{AtomicU64, Ordering, fence, yield_now};
use crate::word::state::State;
use crate::word::verb::Call;

/// With fewer free slots than this in its home, a key goes to its other set if that has more.
const FREE_IN_PRIMARY: usize = SLOTS - KEYS_PER_SET + 1;

/// A newcomer tries a latch so often: some hundred nanoseconds, then some time slices.
const TRIES: usize = if cfg!(all(test, any(loom, shuttle))) { 1 } else { 128 };
const TRIES_AT_ONCE: usize = 64;

/// What became of a newcomer.
pub(crate) enum Insertion {
    /// It has a bucket, which is charged.
    Decided(Done),
    /// Somebody else has made an entry for it.
    Already,
    NoRoom {
        due: u64,
    },
}

impl Table {
    /// Gives a key a slot, and runs a step on its bucket.
    ///
    /// The bucket is there at once with what the step leaves of it: one that was never charged would be like any other such one, and
    /// could be taken for that of the slot's next key. The clock is read when nobody else can make an entry for the key.
    pub(crate) fn insert<'a>(
        &self,
        engine: &Engine,
        entry: impl Entry<'a>,
        hash: u64,
        read: impl ReadClock,
        call: Call,
    ) -> Insertion {
        let early = stop(Fault::ClockBeforeLatch, read);
        let claim = match self.claim(hash, engine, |bucket| entry.is_spread(bucket)) {
            Ok(claim) => claim,
            Err(due) => return Insertion::NoRoom { due },
        };
        let Some(_latch) = self.latch(hash) else {
            return Insertion::NoRoom { due: engine.clock.nanos() };
        };
        if self.search(hash).is_some() {
            return Insertion::Already;
        }
        claim.enter(hash);
        fence(Ordering::SeqCst);
        let initial_state =
            if injected(Fault::DebtsForgotten) { State::FULL } else { entry.overflow_bucket().state() };
        let reading = early.read(State::FULL);
        let from = engine.initialized(initial_state, &reading, call.plan);
        let (outcome, next) = call.apply(from, &reading);
        claim.open(next.unwrap_or_else(|| reading.view(from).initialized(&reading.refill)));
        Insertion::Decided((outcome, reading).into())
    }

    /// Waits for the latch of the key's home, a while.
    ///
    /// Who has it has it for tens of nanoseconds, unless he is put to sleep. Then newcomers of that set find no room.
    pub(crate) fn latch(&self, hash: u64) -> Option<Latch<'_>> {
        let [primary, _] = self.sets(hash);
        let word = &primary.0[0].fingerprint;
        for tried in 0..TRIES {
            if word.fetch_or(LATCH, Ordering::Acquire) & LATCH == 0 || injected(Fault::NoLatch) {
                return Some(Latch { word });
            }
            if tried < TRIES_AT_ONCE { hint::spin_loop() } else { yield_now() }
        }
        None
    }

    /// A slot for the key: an empty one, or one whose bucket may be forgotten. Else the clock reading at which one may be.
    /// None whose bucket `stays`, which is asked after its word was loaded.
    pub(crate) fn claim(
        &self,
        hash: u64,
        engine: &Engine,
        stays: impl Fn(&Bucket) -> bool,
    ) -> Result<Vacancy<'_>, u64> {
        loop {
            let sets = self.sets(hash);
            let states = sets.map(|set| set.0.each_ref().map(|slot| slot.bucket.state()));
            // Read after them.
            let idle = IdleCheck::now(engine);
            let room =
                |set: usize| Occupancy::of(&states[set], &idle, |index| stays(&sets[set].0[index].bucket));
            let [primary, secondary] = [room(0), room(1)];
            let (set, room) = match primary.free >= FREE_IN_PRIMARY || primary.free >= secondary.free {
                true => (0, primary),
                false => (1, secondary),
            };
            if room.free == 0 {
                return Err(idle.due_at(primary.soonest.min(secondary.soonest)));
            }
            let (slot, state) = (&sets[set].0[room.first], states[set][room.first]);
            if (&slot.bucket).commit(state, State::SEALED).is_ok() {
                let evicts = slot.has_key();
                self.counts.evicted.fetch_add(u64::from(evicts), Relaxed);
                return Ok(Vacancy { table: self, slot, evicts });
            }
        }
    }
}

/// What room a set has.
#[derive(Clone, Copy)]
struct Occupancy {
    /// Slots that are empty, or may be forgotten.
    free: usize,
    /// One of those, if there are any.
    first: usize,
    /// How long until there is one.
    soonest: u64,
}

impl Occupancy {
    fn of(states: &[State; SLOTS], idle: &IdleCheck, stays: impl Fn(usize) -> bool) -> Occupancy {
        let mut room = Occupancy { free: 0, first: 0, soonest: u64::MAX };
        for (index, state) in states.iter().enumerate().filter(|(_, state)| !state.is_claimed()) {
            let wait = idle.ticks_until_idle(*state);
            room.soonest = room.soonest.min(wait);
            if wait == 0 && !stays(index) {
                // Rather one that is empty than somebody's.
                if room.free == 0 || !state.is_level() {
                    room.first = index;
                }
                room.free += 1;
            }
        }
        room
    }
}

/// A latch that is held.
pub(crate) struct Latch<'a> {
    word: &'a AtomicU64,
}

impl Drop for Latch<'_> {
    fn drop(&mut self) {
        self.word.fetch_and(!LATCH, Ordering::Release);
    }
}

/// A slot that is nobody's. Dropped, it is empty.
pub(crate) struct Vacancy<'a> {
    table: &'a Table,
    slot: &'a Slot,
    /// It was another's.
    evicts: bool,
}

impl Vacancy<'_> {
    /// Says whose it will be.
    pub(crate) fn enter(&self, hash: u64) {
        self.slot.change(fingerprint(hash));
        if !self.evicts {
            self.table.counts.held.fetch_add(1, Relaxed);
        }
        self.slot.bucket.set(State::INSERTING);
    }

    /// Gives the key its bucket.
    pub(crate) fn open(self, state: State) {
        self.slot.bucket.set(state);
        // It is no longer to be emptied.
        std::mem::forget(self);
    }
}

impl Drop for Vacancy<'_> {
    fn drop(&mut self) {
        self.table.leave(self.slot, State::FULL);
    }
}

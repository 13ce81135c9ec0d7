//! How a key gets a slot of a table.

use std::hint;
use std::sync::atomic::Ordering::Relaxed;

use super::set::{LATCH, SLOTS, Slot, digest};
use super::two_choice::{KEYS_A_SET, Table};
use crate::bucket::atomic::{Bucket, Read, Word, stop};
use crate::bucket::engine::{Leave, Place, Rules};
use crate::bucket::live_terms::Source;
use crate::fault::{Control, broken};
use crate::sync::{AtomicU64, Ordering, fence, yield_now};
use crate::word::state::{Outcome, State};
use crate::word::terms::{Pace, Reading};
use crate::word::verb::Step;

/// With fewer free slots than this in its home, a key goes to its other set if that has more.
const FREE_AT_HOME: usize = SLOTS - KEYS_A_SET + 1;

/// A newcomer tries a latch so often: some hundred nanoseconds, then some time slices.
const TRIES: usize = if cfg!(all(test, any(loom, shuttle))) { 1 } else { 128 };
const TRIES_AT_ONCE: usize = 64;

/// What became of a newcomer.
pub(crate) enum Entered<P> {
    /// It has a bucket, which is charged.
    Decided((Outcome, Reading<P>)),
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
    pub(crate) fn insert<'a, R: Source, P: Pace>(
        &self,
        rules: &Rules<R>,
        place: impl Place<'a>,
        hash: u64,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> Entered<P> {
        let early = stop(Control::ClockBeforeLatch, read);
        let claim = match self.claim(hash, rules, |bucket| place.is_spread(bucket)) {
            Ok(claim) => claim,
            Err(due) => return Entered::NoRoom { due },
        };
        let Some(_latch) = self.latch(hash) else {
            return Entered::NoRoom { due: rules.clock.nanos() };
        };
        if self.search(hash).is_some() {
            return Entered::Already;
        }
        claim.enter(hash);
        fence(Ordering::SeqCst);
        let unborn = if broken(Control::DebtsForgotten) { State::FULL } else { place.overflow().state() };
        let reading = early.read(State::FULL);
        let (outcome, state) = born(rules, unborn, &reading, step);
        claim.open(state);
        Entered::Decided((outcome, reading))
    }

    /// Waits for the latch of the key's home, a while.
    ///
    /// Who has it has it for tens of nanoseconds, unless he is put to sleep. Then newcomers of that set find no room.
    pub(crate) fn latch(&self, hash: u64) -> Option<Latch<'_>> {
        let [home, _] = self.sets(hash);
        let word = &home.0[0].digest;
        for tried in 0..TRIES {
            if word.fetch_or(LATCH, Ordering::Acquire) & LATCH == 0 || broken(Control::NoLatch) {
                return Some(Latch { word });
            }
            if tried < TRIES_AT_ONCE { hint::spin_loop() } else { yield_now() }
        }
        None
    }

    /// A slot for the key: an empty one, or one whose bucket may be forgotten. Else the clock reading at which one may be.
    /// None whose bucket `stays`, which is asked after its word was loaded.
    pub(crate) fn claim<R: Source>(
        &self,
        hash: u64,
        rules: &Rules<R>,
        stays: impl Fn(&Bucket) -> bool,
    ) -> Result<Claim<'_>, u64> {
        loop {
            let sets = self.sets(hash);
            let states = sets.map(|set| set.0.each_ref().map(|slot| slot.bucket.state()));
            // Read after them.
            let leave = rules.leave();
            let room = |set: usize| Room::of(&states[set], &leave, |index| stays(&sets[set].0[index].bucket));
            let [home, other] = [room(0), room(1)];
            let (set, room) = match home.free >= FREE_AT_HOME || home.free >= other.free {
                true => (0, home),
                false => (1, other),
            };
            if room.free == 0 {
                return Err(leave.time(home.soonest.min(other.soonest)));
            }
            let (slot, state) = (&sets[set].0[room.first], states[set][room.first]);
            if (&slot.bucket).commit(state, State::SEALED).is_ok() {
                let evicts = slot.has_key();
                self.counts.evicted.fetch_add(u64::from(evicts), Relaxed);
                return Ok(Claim { table: self, slot, evicts });
            }
        }
    }
}

/// What a step comes to on a bucket that begins with it, and what it leaves there: a level at this reading, always.
fn born<R: Source, P: Pace>(
    rules: &Rules<R>,
    unborn: State,
    reading: &Reading<P>,
    step: impl Step,
) -> (Outcome, State) {
    let from = rules.begun(unborn, reading);
    let (outcome, next) = step.run(from, reading);
    (outcome, next.unwrap_or_else(|| reading.view(from).begun(reading.pace.terms())))
}

/// What room a set has.
#[derive(Clone, Copy)]
struct Room {
    /// Slots that are empty, or may be forgotten.
    free: usize,
    /// One of those, if there are any.
    first: usize,
    /// How long until there is one.
    soonest: u64,
}

impl Room {
    fn of(states: &[State; SLOTS], leave: &Leave, stays: impl Fn(usize) -> bool) -> Room {
        let mut room = Room { free: 0, first: 0, soonest: u64::MAX };
        for (index, state) in states.iter().enumerate().filter(|(_, state)| !state.is_taken()) {
            let wait = leave.wait(*state);
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
pub(crate) struct Claim<'a> {
    table: &'a Table,
    slot: &'a Slot,
    /// It was another's.
    evicts: bool,
}

impl Claim<'_> {
    /// Says whose it will be.
    pub(crate) fn enter(&self, hash: u64) {
        self.slot.change(digest(hash));
        if !self.evicts {
            self.table.counts.held.fetch_add(1, Relaxed);
        }
        self.slot.bucket.set(State::ENTERING);
    }

    /// Gives the key its bucket.
    pub(crate) fn open(self, state: State) {
        self.slot.bucket.set(state);
        // It is no longer to be emptied.
        std::mem::forget(self);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.table.leave(self.slot, State::FULL);
    }
}

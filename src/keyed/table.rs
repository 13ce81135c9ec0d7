//! A fixed table of buckets, each beside the digest of its key.
//!
//! A key has two sets of eight slots where it may be; most are in the first, their home. A slot is a digest and a word:
//!
//! | digest              | word    | the slot                                                     |
//! |---------------------|---------|--------------------------------------------------------------|
//! | 0                   | `FULL`  | is empty                                                     |
//! | of a key            | a level | is that key's                                                |
//! | 0                   | vacant  | was [given up](Table::vacate), and is empty when the margin has passed since |
//! | any                 | `SEALED`| is somebody's who is about to give it another key, or to empty it |
//! | of a key            | `ENTERING` | is somebody's who gives it to that key                     |
//!
//! The lowest bit of a set's first digest is its latch; no digest has that bit. (The sets of a key depend on all of its hash.)
//!
//! What it keeps true, whatever the interleaving:
//!
//! * a slot changes hands only by a compare-and-swap of its word to `SEALED`, from empty or from a level that has been full for
//!   the margin. Who did that owns the slot: he alone writes its digest, then its word;
//! * a word that was loaded is the key's if the digest, loaded after it, is, and the word is then still the same: a
//!   level never comes back in a slot, as that of its next key has a stamp that is later by the margin. So a commit on a slot that
//!   has changed hands fails, and a refusal is looked at [once more](Word::still_has);
//! * a key is in one slot. Who makes an entry for it holds the latch of its home from before he looks for it again until its word is
//!   there. Nobody waits for a latch who knows his slot; a newcomer [does, a while](Table::latch).
//!
//! # Orderings
//!
//! A digest is stored with `Release` after the seal, and before the word, which is stored with `Release`. It is loaded with `Acquire`
//! before the word and after it: who sees a key's digest sees that the one before was sealed; who sees a word sees its digest, or a
//! later one. A latch is taken with `Acquire` and given back with `Release`: whoever has it sees the entries of who had it before.
//! Partners: any two calls on one slot, and any two newcomers of one home. Checked by the models in `src/tests/models/table.rs`.

use std::hint;
use std::sync::atomic::{self, AtomicUsize, Ordering::Relaxed};

use crossbeam_utils::CachePadded;

use crate::bucket::atomic::{Bucket, Read, Word};
use crate::bucket::engine::{Leave, Place, Rules};
use crate::bucket::live_terms::Source;
use crate::fault::{Control, broken, stop};
use crate::keyed::hot::Id;
use crate::keyed::key::mixed;
use crate::keyed::memory::{self, Memory, in_memory};
use crate::sync::{AtomicU64, Ordering, fence, yield_now};
use crate::word::state::{Outcome, State};
use crate::word::terms::{Pace, Reading};
use crate::word::verb::Step;

/// Slots of a set: two cache lines, which processors fetch in pairs.
const SLOTS: usize = if cfg!(all(test, any(loom, shuttle))) { 1 } else { 8 };
/// A table of so many keys has sets for a third more: then hardly ever are both sets of a key in use.
const KEYS_A_SET: usize = if cfg!(all(test, any(loom, shuttle))) { 1 } else { 6 };
/// With fewer free slots than this in its home, a key goes to its other set if that has more.
const FREE_AT_HOME: usize = SLOTS - KEYS_A_SET + 1;

/// A newcomer tries a latch so often: some hundred nanoseconds, then some time slices.
const TRIES: usize = if cfg!(all(test, any(loom, shuttle))) { 1 } else { 128 };
const TRIES_AT_ONCE: usize = 64;

/// The lowest bit of a set's first digest.
const LATCH: u64 = 1;

pub(crate) struct Table {
    sets: Memory,
    counts: CachePadded<Counts>,
}

#[derive(Default)]
struct Counts {
    held: AtomicUsize,
    evicted: atomic::AtomicU64,
}

in_memory! {
    #[repr(C, align(128))]
    pub(crate) struct Set([Slot; SLOTS]);
}

in_memory! {
    #[repr(C)]
    pub(crate) struct Slot {
        digest: AtomicU64,
        bucket: Bucket,
    }
}

/// The slot of a key.
#[derive(Clone, Copy)]
pub(crate) struct Held<'a> {
    slot: &'a Slot,
    digest: u64,
}

/// What a slot has of a hash: even, and not 0.
#[inline(always)]
fn digest(hash: u64) -> u64 {
    (hash & !LATCH).max(2)
}

/// A hash of 32 bits that a key and its slot have in common.
pub(crate) fn hash_of(full: u64) -> u32 {
    (mixed(digest(full)) >> 32) as u32
}

impl Slot {
    fn empty() -> Slot {
        Slot { digest: AtomicU64::new(0), bucket: Bucket::new() }
    }

    #[inline(always)]
    fn has(&self, digest: u64) -> bool {
        self.digest.load(Ordering::Acquire) ^ digest <= LATCH
    }
}

impl Held<'_> {
    /// What the bucket is known by while the slot is that key's.
    pub(crate) fn id(self) -> Id {
        Id::new(&self.slot.bucket, self.digest)
    }

    /// A hash of the key, of 32 bits.
    pub(crate) fn hash(self) -> u32 {
        hash_of(self.digest)
    }
}

impl Word for Held<'_> {
    #[inline(always)]
    fn state(self) -> State {
        let state = self.slot.bucket.state();
        let mine = self.slot.has(self.digest) || broken(Control::NoSecondLook);
        if mine && state.is_level() { state } else { State::SEALED }
    }

    #[inline(always)]
    fn commit(self, state: State, next: State) -> Result<(), State> {
        (&self.slot.bucket).commit(state, next).map_err(|_| self.state())
    }

    #[inline(always)]
    fn still_has(self, state: State) -> bool {
        state == State::SEALED || self.slot.bucket.state() == state || broken(Control::NoThirdLook)
    }
}

impl Set {
    // As a function of its own it costs a newcomer's `search` nine instructions, which is then compiled otherwise.
    #[inline]
    pub(crate) fn empty() -> Set {
        Set(std::array::from_fn(|_| Slot::empty()))
    }

    /// Bit by bit, which slots have this digest.
    #[inline(always)]
    fn matches(&self, digest: u64) -> u32 {
        // All are looked at, without a branch between them: their lines come at the same time. By a loop: closures may be left outside.
        let mut found = 0;
        for (index, slot) in self.0.iter().enumerate() {
            found |= u32::from(slot.has(digest)) << index;
        }
        found
    }

    #[inline(always)]
    fn find(&self, digest: u64) -> Option<Held<'_>> {
        let slot = self.0.get(self.matches(digest).trailing_zeros() as usize)?;
        Some(Held { slot, digest })
    }
}

impl Table {
    pub(crate) fn new(keys: usize) -> Table {
        let sets = keys.div_ceil(KEYS_A_SET).max(1);
        Table { sets: memory::empty(sets), counts: CachePadded::default() }
    }

    /// Keys held.
    pub(crate) fn len(&self) -> usize {
        self.counts.held.load(Relaxed)
    }

    /// Keys that were evicted so far.
    pub(crate) fn evicted(&self) -> u64 {
        self.counts.evicted.load(Relaxed)
    }

    /// The sets of a key, the home first.
    #[inline(always)]
    fn sets(&self, hash: u64) -> [&Set; 2] {
        let mixed = mixed(hash);
        [self.set(mixed >> 32), self.set(mixed & u64::from(u32::MAX))]
    }

    /// By a number below 2^32.
    #[inline(always)]
    fn set(&self, part: u64) -> &Set {
        // So the product fits, and the index is below the number of sets.
        &self.sets[((part * self.sets.len() as u64) >> 32) as usize]
    }

    #[cfg(all(test, any(loom, shuttle)))]
    pub(crate) fn has_sets(&self, hash: u64, [home, other]: [usize; 2]) -> bool {
        let [first, second] = self.sets(hash);
        std::ptr::eq(first, &self.sets[home]) && std::ptr::eq(second, &self.sets[other])
    }

    /// The slot that has the key's digest, if there is one; of two, the first. (One is then about to be another's.)
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64) -> Option<Held<'_>> {
        let [home, other] = self.sets(hash);
        let digest = digest(hash);
        match home.find(digest) {
            None => other.find(digest),
            found => found,
        }
    }

    /// The slot of the key.
    pub(crate) fn search(&self, hash: u64) -> Option<Held<'_>> {
        self.of(hash).find(|held| held.state() != State::SEALED)
    }

    /// Whether the key has a slot, or is just getting one.
    pub(crate) fn is_entered(&self, hash: u64) -> bool {
        self.of(hash).any(|held| held.slot.bucket.state() != State::SEALED)
    }

    fn of(&self, hash: u64) -> impl Iterator<Item = Held<'_>> {
        let digest = digest(hash);
        let slots = self.sets(hash).into_iter().flat_map(|set| &set.0);
        slots.filter(move |slot| slot.has(digest)).map(move |slot| Held { slot, digest })
    }

    /// Brings the home of a key into the cache.
    #[inline(always)]
    pub(crate) fn touch(&self, hash: u64) -> u64 {
        let [home, _] = self.sets(hash);
        let [first, .., last] = &home.0[..] else { return 0 };
        first.digest.load(Ordering::Relaxed) ^ last.digest.load(Ordering::Relaxed)
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

    /// Forgets all keys that `seal` seals; `sealed` is told of each before it is another's.
    pub(crate) fn clear<R: Source>(
        &self,
        rules: &Rules<R>,
        seal: impl Fn(Held<'_>) -> bool,
        sealed: impl Fn(&Bucket),
    ) {
        for slot in self.slots().filter(|slot| slot.is_held()) {
            let held = Held { slot, digest: slot.digest.load(Ordering::Acquire) & !LATCH };
            if seal(held) {
                sealed(&slot.bucket);
                self.vacate(held, rules);
            }
        }
    }

    /// Forgets each key whose bucket this seals, as it may be forgotten; and tells how many.
    pub(crate) fn evict_idle(&self, seal: impl Fn(&Bucket) -> bool) -> usize {
        let sealed = |slot: &&Slot| slot.is_held() && seal(&slot.bucket);
        // One that somebody else has emptied by then was no key's.
        self.slots().filter(sealed).filter(|slot| self.leave(slot, State::FULL)).count()
    }

    /// The slot whose bucket is there, whosever it is now.
    pub(crate) fn held_at(&self, address: u64) -> Option<Held<'_>> {
        let from = usize::try_from(address).ok()?.checked_sub(self.sets.as_ptr().addr())?;
        let set = self.sets.get(from / size_of::<Set>())?;
        let slot = set.0.get(from % size_of::<Set>() / size_of::<Slot>())?;
        let digest = slot.digest.load(Ordering::Acquire) & !LATCH;
        Some(Held { slot, digest })
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.sets.iter().flat_map(|set| &set.0)
    }

    /// Gives up a slot that this call has sealed, whatever its bucket held.
    ///
    /// Within the margin nobody gets it: a key that did might have, at this very tick, the word that this one had, and be
    /// charged by who is still about to commit on that.
    pub(crate) fn vacate<R: Source>(&self, Held { slot, .. }: Held<'_>, rules: &Rules<R>) {
        let Reading { pace, tick, .. } = rules.read();
        self.leave(
            slot,
            if broken(Control::RemovedAtOnce) { State::FULL } else { State::vacant(&pace, tick) },
        );
    }

    /// Takes the key of a slot from it, which this call has sealed. True if it had one.
    fn leave(&self, slot: &Slot, state: State) -> bool {
        let held = slot.change(0);
        if held {
            self.counts.held.fetch_sub(1, Relaxed);
        }
        slot.bucket.set(state);
        held
    }
}

impl Slot {
    /// Whether it is a key's, as far as one look tells.
    fn is_held(&self) -> bool {
        self.has_key() && self.bucket.state().is_level()
    }

    /// Whether it has a digest: for good, of a slot that this call has sealed.
    fn has_key(&self) -> bool {
        self.digest.load(Ordering::Relaxed) > LATCH
    }

    /// Puts another digest beside the latch. True if there was one.
    fn change(&self, digest: u64) -> bool {
        let was = self.digest.load(Ordering::Relaxed) & !LATCH;
        self.digest.fetch_xor(was ^ digest, Ordering::Release);
        was != 0
    }
}

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

impl<R: Source> Rules<R> {
    /// Gives a key a slot, and runs a step on its bucket.
    ///
    /// The bucket is there at once with what the step leaves of it: one that was never charged would be like any other such one, and
    /// could be taken for that of the slot's next key. The clock is read when nobody else can make an entry for the key.
    pub(crate) fn enter<'a, P: Pace>(
        &self,
        table: &Table,
        place: impl Place<'a>,
        hash: u64,
        read: impl Read<Reading<P>>,
        step: impl Step,
    ) -> Entered<P> {
        let early = stop(Control::ClockBeforeLatch, read);
        let claim = match table.claim(hash, self, |bucket| place.is_spread(bucket)) {
            Ok(claim) => claim,
            Err(due) => return Entered::NoRoom { due },
        };
        let Some(_latch) = table.latch(hash) else {
            return Entered::NoRoom { due: self.clock.nanos() };
        };
        if table.search(hash).is_some() {
            return Entered::Already;
        }
        claim.enter(hash);
        fence(Ordering::SeqCst);
        let unborn = if broken(Control::DebtsForgotten) { State::FULL } else { place.overflow().state() };
        let reading = early.read(State::FULL);
        let (outcome, state) = self.born(unborn, &reading, step);
        claim.open(state);
        Entered::Decided((outcome, reading))
    }

    /// What a step comes to on a bucket that begins with it, and what it leaves there: a level at this reading, always.
    fn born<P: Pace>(&self, unborn: State, reading: &Reading<P>, step: impl Step) -> (Outcome, State) {
        let from = self.begun(unborn, reading);
        let (outcome, next) = step.run(from, reading);
        (outcome, next.unwrap_or_else(|| reading.view(from).begun(reading.pace.terms())))
    }
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

//! A table with two keys, which threads take from and remove.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::super::run;
use super::super::world::{SECOND, assert_law, attempt, attempt_again, fixed, fixed_window, own};
use crate::bucket::atomic::{Bucket, BucketRef, Miss, Order, ReadClock};
use crate::bucket::engine::{Done, Engine, Now};
use crate::bucket::live_terms::LiveTerms;
use crate::keyed::idle;
use crate::keyed::protocol;
use crate::keyed::protocol::Entry;
use crate::keyed::saved::merge;
use crate::keyed::table::{Resumed, Set, SlotRef, Table};
use crate::rule::window::Window;
use crate::sync::{OnceLock, Ordering, fence, yield_now};
use crate::time::clock::{Clock, MockClock};
use crate::word::by_refill::{ByRefill, OwnRefill};
use crate::word::decision::Denied;
use crate::word::plan::PlanTerms;
use crate::word::state::State;
use crate::word::verb::{Call, Take};

/// The time to earn a token, the eviction grace, and 0.1 s more.
pub(in crate::tests::models) const FULL_FOR_THE_MARGIN: Duration = Duration::from_millis(12_100);

/// Indexes of two keys. The home of both is set 0, and their other set is set 1, if there is one.
pub(in crate::tests::models) const ADA: usize = 0;
pub(in crate::tests::models) const BOB: usize = 1;

pub(in crate::tests::models) const ADA_TAKES: fn(&World) = |world| {
    world.take(ADA);
};
pub(in crate::tests::models) const BOB_TAKES: fn(&World) = |world| {
    world.take(BOB);
};

pub(in crate::tests::models) struct World {
    pub(in crate::tests::models) engine: Engine,
    pub(in crate::tests::models) mock: MockClock,
    pub(in crate::tests::models) table: Table,
    pub(in crate::tests::models) hashes: [u64; 2],
    /// The overflow buckets, which keys without room share. Here each key has its own.
    overflows: [OnceLock<Bucket>; 2],
    /// A full one in place of an overflow bucket.
    full: Bucket,
    /// The time at which each grant is earned, and its tokens.
    pub(in crate::tests::models) grants: [Mutex<Vec<(u64, u64)>>; 2],
}

impl World {
    pub(in crate::tests::models) fn new(slots: usize, burst: u64) -> Arc<World> {
        World::of(slots, fixed(10 * SECOND, burst))
    }

    /// Creates a world of windows of this many tokens each 12 s, by the calendar.
    pub(in crate::tests::models) fn of_windows(slots: usize, limit: u64) -> Arc<World> {
        World::of(slots, fixed_window(Window::per(limit, Duration::from_secs(12)).utc()))
    }

    pub(in crate::tests::models) fn of(slots: usize, live: LiveTerms) -> Arc<World> {
        let (clock, mock) = Clock::mock();
        let table = Table::new(slots).expect("there is memory");
        let mut hashes = (2..).filter(|hash| table.has_sets(*hash, [0, slots - 1]));
        let hashes = [(); 2].map(|()| hashes.next().expect("there are such hashes"));
        Arc::new(World {
            engine: Engine::new(live, clock, None),
            mock,
            table,
            hashes,
            overflows: [OnceLock::new(), OnceLock::new()],
            full: Bucket::new(),
            grants: [const { Mutex::new(Vec::new()) }; 2],
        })
    }

    /// Takes a token, like a limiter in which keys without room share a bucket. Returns whether one
    /// was granted.
    pub(in crate::tests::models) fn take(&self, key: usize) -> bool {
        let (hash, engine) = (self.hashes[key], &self.engine);
        let found = self.table.find(hash).ok_or(Miss::Absent);
        let first = found.and_then(|held| attempt(engine, Order::WordFirst, held, 1));
        let again = |missed| {
            let held = self.table.search(hash).filter(|_| missed == Miss::LostRace);
            held.and_then(|held| attempt_again(engine, held, 1))
        };
        match first.or_else(|missed| again(missed).ok_or(missed)) {
            Ok(done) => self.note(key, done.into()),
            Err(missed) => self.run_by_the_loop(key, Take::Exactly(1), missed),
        }
    }

    /// Takes a token by the loop, as the verbs do that make no attempt. Returns whether one was
    /// granted.
    pub(in crate::tests::models) fn take_by_the_loop(&self, key: usize) -> bool {
        self.run_by_the_loop(key, Take::Exactly(1), Miss::Untried)
    }

    /// Takes all that the debt allows. At time 0 the word of the key is then 0.
    pub(in crate::tests::models) fn take_the_debt(&self, key: usize) {
        self.run_by_the_loop(key, Take::OnCredit(u64::MAX), Miss::Untried);
    }

    fn run_by_the_loop(&self, key: usize, call: impl Into<Call>, missed: Miss) -> bool {
        let (seat, read) = (Seat { world: self, key }, Now(&self.engine));
        let done = protocol::acquire(&self.engine, seat, missed == Miss::Absent, read, &call.into());
        done.is_ok_and(|done| self.note(key, done))
    }

    /// Takes a token under a plan, by an attempt, and by the loop if that misses.
    pub(in crate::tests::models) fn take_under(&self, key: usize, plan: PlanTerms) -> bool {
        let by = OwnRefill.under(&plan);
        let take = Take::Exactly(1);
        let attempt = |held: SlotRef<'_>| held.attempt_by(Order::WordFirst, Now(&self.engine), take, by);
        match self.table.find(self.hashes[key]).ok_or(Miss::Absent).and_then(attempt) {
            Ok(done) => self.note(key, own(done).into()),
            Err(missed) => self.run_by_the_loop(key, Call { take, plan: Some(plan) }, missed),
        }
    }

    /// Notes a grant. Returns whether the outcome is one.
    pub(in crate::tests::models) fn note(&self, key: usize, Done { outcome, reading, .. }: Done) -> bool {
        if outcome.granted {
            let mut grants = self.grants[key].lock().unwrap_or_else(PoisonError::into_inner);
            grants.push((reading.nanos(), 1));
        }
        outcome.granted
    }

    pub(in crate::tests::models) fn drain(&self, key: usize) {
        for _ in 0..20 {
            if !self.take(key) {
                return;
            }
        }
        panic!("no end of grants");
    }

    pub(in crate::tests::models) fn granted(&self, key: usize) -> usize {
        self.grants[key].lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(in crate::tests::models) fn assert_law(&self, burst: u64) {
        for grants in &self.grants {
            assert_law(&grants.lock().unwrap_or_else(PoisonError::into_inner), 10 * SECOND, burst);
        }
    }

    pub(in crate::tests::models) fn pass(&self) {
        self.mock.advance(FULL_FOR_THE_MARGIN);
    }

    pub(in crate::tests::models) fn evict_idle(&self) {
        self.table.evict_idle(|bucket| {
            let sealed = idle::seal_if_idle(&self.engine, bucket).ok().flatten();
            sealed.map(|sealed| idle::vacated(&self.engine, sealed))
        });
    }

    pub(in crate::tests::models) fn remove(&self, key: usize) {
        let Some(held) = self.table.search(self.hashes[key]) else { return };
        if idle::forgets_in_place(&self.engine) {
            idle::forget(&self.engine, held, || ());
        } else if idle::seal(held, || ()) {
            self.table.vacate(held, &self.engine);
        }
    }

    /// Restores a key with this many tokens, as a limiter does.
    pub(in crate::tests::models) fn restore(&self, key: usize, tokens: u64, set: Set) {
        let (hash, engine) = (self.hashes[key], &self.engine);
        let reading = engine.read();
        let saved = State::pack(&reading.refill, reading.refill.units(tokens), reading.tick);
        let filling = self.table.filling(self.table.slots_in_all() as u64);
        let entered = filling.as_ref().and_then(|to| to.enter(&[(hash << 1, saved)], set)[0]);
        fence(Ordering::SeqCst);
        let seat = Seat { world: self, key };
        if let Some(held) = entered {
            return held.open(saved.merged(&reading, seat.overflow_or_full().state(), false));
        }
        match self.table.resume(hash, saved, engine, filling.is_some()) {
            Resumed::Inserted(held) => {
                fence(Ordering::SeqCst);
                _ = merge(engine, held, seat.overflow_or_full().state());
            }
            Resumed::Already(held) => _ = merge(engine, held, saved),
            Resumed::NoRoom => {
                _ = merge(engine, seat.overflow_bucket(), saved);
                fence(Ordering::SeqCst);
                while self.table.present(hash).is_some() {
                    let held = self.table.search(hash);
                    if held.is_some_and(|held| merge(engine, held, saved).is_some()) {
                        return;
                    }
                    yield_now();
                }
            }
        }
    }

    pub(in crate::tests::models) fn run(self: &Arc<World>, threads: &[fn(&World)]) {
        run(self, threads);
    }
}

#[derive(Clone, Copy)]
pub(in crate::tests::models) struct Seat<'a> {
    world: &'a World,
    key: usize,
}

impl<'a> Entry<'a> for Seat<'a> {
    type BucketRef = SlotRef<'a>;

    fn get(self) -> Option<SlotRef<'a>> {
        self.world.table.search(self.world.hashes[self.key])
    }

    fn is_present(self) -> bool {
        self.world.table.present(self.world.hashes[self.key]).is_some()
    }

    fn insert(self, read: impl ReadClock, call: &Call) -> Option<Result<Done, Denied>> {
        let World { engine, table, hashes, .. } = self.world;
        let hash = hashes[self.key];
        let no_room = || match engine.counts_places() {
            // As a limiter of places decides.
            true => Some(Err(Denied::full(1, 0, None))),
            false => protocol::acquire_overflow(engine, self, read, *call).map(Ok),
        };
        table.insert(engine, self, (hash, &table.look(hash, engine)), read, call, no_room)
    }

    fn back_off(self) {
        yield_now();
    }

    fn remove_sealed(self) {}

    fn overflow_bucket(self) -> &'a Bucket {
        self.world.overflows[self.key].get_or_init(Bucket::new)
    }

    fn overflow_or_full(self) -> &'a Bucket {
        self.world.overflows[self.key].get().unwrap_or(&self.world.full)
    }
}

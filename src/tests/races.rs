// promise: law, never-late
//! Races between two steps on one bucket. The clock of one caller takes the steps of the other as
//! it is read.

use std::cell::Cell;
use std::time::Duration;

use crate::bucket::atomic::{Bucket, BucketRef, FreshReading, Order, ReadClock};
use crate::bucket::engine::{At, Engine, Now};
use crate::bucket::lease::{LeaseCells, Spread};
use crate::bucket::live_terms::LiveTerms;
use crate::keyed::removals::Removals;
use crate::rule::rate::Quota;
use crate::sync::Turns;
use crate::time::clock::{Clock, MockClock};
use crate::word::by_refill::OwnRefill;
use crate::word::decision::Granted;
use crate::word::state::{Reading, Refill, State};
use crate::word::verb::{Reserve, Take};

const MS: Duration = Duration::from_millis(1);

/// A source of readings, and the steps of others right after each of them.
#[derive(Clone, Copy)]
struct Beside<'a, R>(R, &'a dyn Fn());

impl<R: ReadClock> ReadClock for Beside<'_, R> {
    fn read(&self, state: State) -> Reading {
        let reading = self.0.read(state);
        self.1();
        reading
    }

    fn raw(&self) -> u64 {
        let raw = self.0.raw();
        self.1();
        raw
    }

    fn admitted<P: Refill>(&self, state: State, raw: u64, first: Order) -> FreshReading {
        self.0.admitted::<P>(state, raw, first)
    }
}

/// A bucket of 1,000 tokens, one a millisecond, and two cells.
struct World {
    bucket: Bucket,
    engine: Engine,
    cells: LeaseCells,
    mock: MockClock,
}

impl World {
    fn new() -> World {
        let ((clock, mock), quota) = (Clock::mock(), Quota::per_second(1_000));
        let engine = Engine::new(LiveTerms::new(quota, quota.layout()), clock, None);
        let world = World { bucket: Bucket::new(), engine, cells: LeaseCells::new(2), mock };
        // A charged bucket has a level and a stamp.
        assert_eq!(world.takes(1), 1);
        world
    }

    fn now(&self) -> Now<'_> {
        Now(&self.engine)
    }

    fn spread(&self) -> Spread<'_> {
        Spread { bucket: &self.bucket, engine: &self.engine, cells: &self.cells }
    }

    /// Takes up to `n` tokens of the word.
    fn takes(&self, n: u64) -> u64 {
        let done = self.engine.charge(&self.bucket, Some(State::FULL), self.now(), Take::UpTo(n).into());
        Granted::new(done.unwrap().outcome, &self.engine.read()).tokens()
    }

    /// Takes one token after another by the first cell, until it has a lease of 16.
    fn leases(&self) {
        while self.cells.of(0).lease_size() < 16 {
            assert!(self.spread().acquire(0, self.now(), 1).is_ok());
        }
    }

    fn remaining(&self) -> u64 {
        let seen = self.spread().look(self.now(), Take::Exactly(0));
        Granted::new(seen.outcome, &seen.reading).remaining()
    }
}

/// Runs the steps of another caller at the first `times` readings, and counts the readings.
fn at_first<'a>(times: u32, readings: &'a Cell<u32>, steps: impl Fn() + 'a) -> impl Fn() + 'a {
    move || {
        readings.set(readings.get() + 1);
        if readings.get() <= times {
            steps();
        }
    }
}

/// A loop would lose a race at each reading.
#[test]
fn a_take_beside_many_others_reads_the_clock_once() {
    let (world, readings) = (World::new(), Cell::new(0));
    let beside = at_first(10, &readings, || assert_eq!(world.takes(1), 1));
    let read = Beside(world.now(), &beside);
    let (outcome, _) = world
        .engine
        .attempt_again(&world.bucket, read, Take::Exactly(1), OwnRefill)
        .expect("a race is no end");
    assert!(outcome.granted);
    assert_eq!((readings.get(), world.takes(1_000)), (1, 997));
}

/// Another caller commits at a later reading. A take at the reading before it comes right after.
#[test]
fn a_take_that_is_just_late_is_decided_by_its_reading() {
    let (world, readings) = (World::new(), Cell::new(0));
    let beside = at_first(10, &readings, || {
        world.mock.advance(MS);
        assert_eq!(world.takes(1_000), 1_000);
    });
    let read = Beside(world.now(), &beside);
    let (outcome, reading) =
        world.engine.attempt_again(&world.bucket, read, Take::Exactly(1), OwnRefill).expect("it is decided");
    assert!(!outcome.granted);
    assert_eq!((reading.nanos(), readings.get()), (0, 1));
    // A reading that a caller brings is decided by the loop.
    let earlier = At(&world.engine, world.engine.clock.now());
    world.mock.advance(5 * MS);
    assert_eq!(world.takes(5), 5);
    assert!((&world.bucket).attempts(4, earlier, Take::Exactly(1), OwnRefill).is_none());
}

/// The reading of an attempt may be far behind a commit, which then has the later time.
#[test]
fn an_attempt_fails_where_its_state_does_not_admit_the_reading() {
    let world = World::new();
    let beside = || {
        world.mock.advance(MS);
        assert_eq!(world.takes(1), 1);
    };
    let read = Beside(world.now(), &beside);
    assert!((&world.bucket).attempt(Order::ClockFirst, read, Take::Exactly(1)).is_err());
    assert!((&world.bucket).attempt(Order::WordFirst, read, Take::Exactly(1)).is_err(), "it lost a race");
    assert_eq!(world.takes(1_000), 999, "only the others took, and a token came after each");
}

/// A word of a slot that another key has by now, until it is loaded again.
#[derive(Clone, Copy)]
struct Moved<'a>(&'a Bucket, &'a Cell<u32>);

impl BucketRef for Moved<'_> {
    fn state(self) -> State {
        Bucket::state(self.0)
    }

    fn commit(self, state: State, next: State) -> Result<(), State> {
        self.0.commit(state, next)
    }

    fn still_has(self, _: State) -> bool {
        self.1.set(self.1.get() + 1);
        self.1.get() > 2
    }
}

#[test]
fn a_refusal_counts_only_while_the_bucket_has_the_state_that_it_saw() {
    let (world, asked) = (World::new(), Cell::new(0));
    let moved = Moved(&world.bucket, &asked);
    let look = |state: State, (): &()| (state, None);
    assert_eq!(moved.update(|_| (), look).0, Bucket::state(&world.bucket));
    assert_eq!(asked.get(), 3, "it was asked until it was so");
    asked.set(0);
    assert!(moved.attempt(Order::ClockFirst, world.now(), Take::Exactly(2_000)).is_err());
    assert!(moved.attempts(1, world.now(), Take::Exactly(2_000), OwnRefill).is_none());
    assert!(moved.attempts(1, world.now(), Take::Exactly(2_000), OwnRefill).is_some());
    assert_eq!(asked.get(), 3);
    // A receipt asks as well, except where its key was removed.
    asked.set(0);
    let removals = Removals::new();
    let receipt = removals.of(7).since(0, moved);
    let state = receipt.state();
    assert_eq!([(); 3].map(|()| receipt.still_has(state)), [false, false, true]);
    asked.set(0);
    assert!(receipt.still_has(State::SEALED) && asked.get() == 0);
}

/// The lease begins between the load of the word and the look at the cells.
#[test]
fn a_look_beside_a_lease_counts_no_token_twice() {
    let (world, readings) = (World::new(), Cell::new(0));
    assert_eq!(world.takes(399), 399);
    let beside = at_first(1, &readings, || world.leases());
    let seen = world.spread().look(Beside(world.now(), &beside), Take::Exactly(0));
    assert_eq!(Granted::new(seen.outcome, &seen.reading).remaining(), 600);
    let at_hand = world.spread().at_hand();
    assert!(at_hand > 0 && world.remaining() < 600);
    assert_eq!(world.remaining(), world.takes(1_000) + at_hand);
}

/// Another caller leases tokens and empties the word at a later reading.
#[test]
fn a_take_beside_a_lease_that_begins_takes_of_it() {
    let (world, readings) = (World::new(), Cell::new(0));
    let beside = at_first(1, &readings, || {
        world.mock.advance(MS);
        world.leases();
        world.takes(1_000);
    });
    let decision = world.spread().acquire_anyhow(1, Beside(world.now(), &beside), 1);
    assert_eq!(decision.map(|granted| granted.tokens()), Ok(1));
    assert!(!world.cells.is_drained());
}

/// While no token is leased, a step reads the clock once.
#[test]
fn a_step_of_a_bucket_without_leases_reads_the_clock_once() {
    let (world, readings) = (World::new(), Cell::new(0));
    let count = at_first(0, &readings, || ());
    let read = Beside(world.now(), &count);
    for take in [
        Take::UpTo(3),
        Take::Exactly(3),
        Take::Reserve(Reserve { n: 3, keep: 0, max_wait: 0 }),
        Take::UpTo(2_000),
    ] {
        readings.set(0);
        assert!(world.spread().run(read, take).outcome.granted);
        assert_eq!(readings.get(), 1, "{take:?}");
    }
    readings.set(0);
    assert!(!world.spread().run(read, Take::Exactly(1)).outcome.granted);
    assert_eq!(readings.get(), 1, "a refusal");
}

/// A caller that was stopped keeps a cell claimed, and its tokens count as leased.
#[test]
fn a_take_beside_a_claimed_cell_is_refused_in_the_end() {
    let world = World::new();
    world.leases();
    world.takes(1_000);
    let lease = world.cells.of(0).lease();
    assert!(lease.left() > 0 && world.cells.of(0).claim(lease));
    assert_eq!(world.spread().at_hand(), 0);
    for take in [Take::Exactly(1), Take::UpTo(1)] {
        let done = world.spread().run(world.now(), take);
        assert!(!done.outcome.granted && done.leased > 0, "{take:?}");
    }
    world.cells.of(0).put(lease);
    assert!(world.spread().run(world.now(), Take::Exactly(1)).outcome.granted);
}

/// A caller that was stopped keeps a cell claimed over a change to a lower burst.
#[test]
fn a_lower_burst_holds_beside_a_claimed_cell() {
    let world = World::new();
    world.leases();
    let lease = world.cells.of(0).lease();
    assert!(lease.left() > 0 && world.cells.of(0).claim(lease));
    world.engine.source.set(Quota::per_second(1_000).burst(100), &world.engine.clock).unwrap();
    world.spread().recall_after_a_lower_burst();
    world.cells.of(0).put(lease);
    let granted = (0..1_000).filter(|_| world.spread().run(world.now(), Take::Exactly(1)).outcome.granted);
    assert_eq!(granted.count() as u64, 100 - (lease.size() - lease.left()));
}

/// A wait for another thread ends by its number of turns, and without one by the time it takes.
#[test]
fn a_wait_for_a_thread_that_never_returns_ends() {
    let mut three = Turns::new(3);
    assert!((0..10).filter(|_| three.pass().is_some()).count() <= 3);
    let mut all = Turns::new(usize::MAX);
    while all.pass().is_some() {}
}

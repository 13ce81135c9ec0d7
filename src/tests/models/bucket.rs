// promise: law
//! One bucket: takers, and clocks that are behind or set back.
//!
//! The clock and the quota are chosen so that one grant too many breaks the law.

use std::sync::Arc;
use std::time::Duration;

use super::checker::thread;
use super::explore;
use super::world::{SECOND, World, fixed};
use crate::bucket::atomic::{BucketRef, FreshReading, Order, ReadClock};
use crate::bucket::engine::{At, Done};
use crate::bucket::live_terms::LiveTerms;
use crate::rule::rate::Quota;
use crate::sync::{AtomicU64, Ordering};
use crate::time::clock::{Clock, Moment};
use crate::word::by_refill::OwnRefill;
use crate::word::state::{Reading, Refill, State};
use crate::word::verb::Take;

#[test]
fn two_takers_share_one_token() {
    explore("two takers, one token", || {
        let world = World::new(1);
        world
            .run(&[World::take_alone, World::take_alone, |world| world.mock.advance(Duration::from_secs(5))]);
        assert_eq!(world.granted(), 1);
    });
}

#[test]
fn what_is_earned_meanwhile_is_granted_once() {
    explore("two takers, a token earned meanwhile", || {
        let world = World::new(1);
        world.take_alone();
        world.run(&[World::take_alone, World::take_alone, |world| {
            world.mock.advance(Duration::from_secs(10))
        }]);
        world.take_alone();
        assert_eq!(world.granted(), 2);
    });
}

/// A clock that is 2 s behind.
#[derive(Clone, Copy)]
struct Behind<'a>(&'a World);

impl ReadClock for Behind<'_> {
    fn read(&self, state: State) -> Reading {
        let reading = self.0.now().read(state);
        Reading::new(reading.refill, reading.at - 2 * SECOND)
    }

    fn raw(&self) -> u64 {
        self.0.now().raw() - 2 * SECOND
    }

    fn admitted<P: Refill>(&self, state: State, raw: u64, first: Order) -> FreshReading {
        self.0.now().admitted::<P>(state, raw, first)
    }
}

#[test]
fn a_stale_reading_never_refills() {
    explore("a taker that is 2 s behind", || {
        // A token a second: if the stamp moved back, the 2 s would be earned again.
        let world = World::every(SECOND, 2);
        world.mock.advance(Duration::from_secs(100));
        let stale: fn(&World) = |world| {
            world.note(world.run_on(&world.alone, Behind(world), Take::Exactly(1)));
        };
        world.take_alone();
        world.run(&[stale, World::take_alone, |world| world.mock.advance(Duration::from_millis(500))]);
        world.take_alone();
        stale(&world);
        world.take_alone();
        assert_eq!(world.granted(), 2);
    });
}

#[test]
fn a_clock_set_back_mints_nothing() {
    explore("a clock set back by a minute", || {
        let world = World::new(1);
        world.mock.advance(Duration::from_secs(100));
        world.take_alone();
        world
            .run(&[World::take_alone, World::take_alone, |world| world.mock.rewind(Duration::from_secs(60))]);
        world.mock.advance(Duration::from_secs(9));
        world.take_alone();
        assert_eq!(world.granted(), 1);
    });
}

const ONE_A_SECOND: Quota = Quota::per_second(1).burst(2);

/// Returns a world of 2 tokens, one a second, whose terms may change.
fn turning() -> Arc<World> {
    World::of(LiveTerms::new(ONE_A_SECOND, ONE_A_SECOND.layout()))
}

/// Returns the time of a turn of its stamp, which is years.
fn turn() -> Duration {
    let widths = ONE_A_SECOND.layout().widths;
    Duration::from_secs(1 << (widths.stamp - widths.fraction))
}

/// A turn of the stamp begins beside a clock that is set back to before it, by jitter. Moments of
/// the turn before mint nothing then, either.
#[test]
fn a_turn_of_the_stamp_that_begins_mints_nothing() {
    explore("a turn of the stamp that begins", || {
        let world = turning();
        world.mock.advance(turn() - Duration::from_secs(1));
        (0..2).for_each(|_| world.take_alone());
        world.mock.advance(Duration::from_secs(4));
        world.run(&[World::take_alone, |world| world.mock.rewind(Duration::from_millis(3_500))]);
        (0..5).for_each(|_| world.take_alone());
        // The stamp is of the new turn, in which this moment would be just after it.
        (0..2).for_each(|_| take_of(&world, turn() - Duration::from_millis(5_500)));
        assert!(world.granted() <= 4, "more than two bursts");
    });
}

/// Takes a token at a moment `ago`.
fn take_of(world: &World, ago: Duration) {
    let then = Moment(world.engine.clock.nanos() - ago.as_nanos() as u64);
    take_at(world, then);
}

/// Takes a token at a moment, by an attempt or else by the loop.
fn take_at(world: &World, then: Moment) {
    let at = At(&world.engine, then);
    let attempted = (&world.alone).attempt(Order::WordFirst, at, Take::Exactly(1)).ok().map(Done::from);
    world.note(attempted.unwrap_or_else(|| world.run_on(&world.alone, at, Take::Exactly(1))));
}

/// A moment of a turn ago, or of half of it, reads as one of now, or later.
#[test]
fn an_old_moment_mints_nothing() {
    explore("two old moments", || {
        let world = turning();
        // A quarter of a turn into the second turn.
        world.mock.advance(turn() + turn() / 4);
        (0..2).for_each(|_| world.take_alone());
        let half: fn(&World) = |world| take_of(world, turn() / 2 + Duration::from_secs(9));
        let whole: fn(&World) = |world| take_of(world, turn() - Duration::from_secs(2));
        world.run(&[half, |world| world.mock.advance(Duration::from_millis(500))]);
        world.run(&[whole, |world| world.mock.rewind(Duration::from_millis(500))]);
        half(&world);
        world.take_alone();
        assert_eq!(world.granted(), 2);
    });
}

/// A moment of before the clock was set back earns no time again after a decision of now.
#[test]
fn a_moment_of_before_the_clock_was_set_back_mints_nothing() {
    explore("a moment a minute ahead", || {
        let world = turning();
        world.mock.advance(turn() + turn() / 4);
        (0..2).for_each(|_| world.take_alone());
        let ahead: fn(&World) = |world| take_at(world, Moment(world.engine.clock.nanos() + 60 * SECOND));
        world.run(&[ahead, World::take_alone, |world| world.mock.advance(Duration::from_millis(500))]);
        ahead(&world);
        world.take_alone();
        assert_eq!(world.granted(), 2);
    });
}

/// The clock is read again after a lost race. An older reading would set the stamp back.
#[test]
fn a_reading_from_before_a_lost_race_is_not_used() {
    explore("two takers, 9 s meanwhile", || {
        let world = World::new(2);
        world.mock.advance(Duration::from_secs(100));
        world.take_alone();
        world.run(&[World::take_alone_at_length, World::take_alone_at_length, |world| {
            world.mock.advance(Duration::from_secs(9));
        }]);
        world.take_alone();
        assert_eq!(world.granted(), 2);
    });
}

/// An attempt by a reading from before another commit takes of the tokens that the commit left, at
/// the commit's stamp.
#[test]
fn an_attempt_just_after_a_later_commit_earns_nothing() {
    explore("two attempts, 2 s meanwhile", || {
        let world = World::every(SECOND, 2);
        world.mock.advance(Duration::from_secs(100));
        (0..2).for_each(|_| world.take_alone());
        let again: fn(&World) = |world| {
            if let Some(done) =
                world.engine.attempt_again(&world.alone, world.now(), Take::Exactly(1), OwnRefill)
            {
                world.note(done);
            }
        };
        world.run(&[again, again, |world| world.mock.advance(Duration::from_secs(2))]);
        (0..2).for_each(|_| world.take_alone());
        assert_eq!(world.granted(), 4);
    });
}

/// Runs a taker and a looker on a clock in memory, as a coarse clock is: only the word orders its
/// readings. (A mock clock orders them itself.) The looker's reading is not behind the stamp.
fn on_a_clock_in_memory(name: &str, take: fn(&World), look: u64) {
    explore(name, move || {
        let noted = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&noted);
        let clock = Clock::from_fn(move || Duration::from_nanos(read.load(Ordering::Acquire)));
        let world = World::on(fixed(10 * SECOND, 2), clock, Clock::mock().1);
        let ticker = thread::spawn(move || noted.store(SECOND, Ordering::Release));
        let (taker, looker) = (Arc::clone(&world), Arc::clone(&world));
        let taker = thread::spawn(move || take(&taker));
        let looker = thread::spawn(move || {
            let Done { outcome, .. } = looker.run_on(&looker.alone, looker.now(), Take::Exactly(look));
            assert_eq!(outcome.lag, 0);
        });
        for thread in [ticker, taker, looker] {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_clock_in_memory_is_never_behind_the_stamp() {
    on_a_clock_in_memory("a clock in memory", World::take_alone, 0);
}

#[test]
fn a_clock_in_memory_is_not_behind_after_a_lost_race() {
    on_a_clock_in_memory("a clock in memory, a lost race", World::take_alone_at_length, 1);
}

//! One bucket: takers, and clocks that are behind or set back.
//!
//! The clock and the quota are chosen so that one grant too many breaks the law.

use std::time::Duration;

use super::explore;
use super::world::{SECOND, World};
use crate::bucket::Read;
use crate::state::State;
use crate::step::Take;
use crate::terms::Reading;

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

impl Read<Reading> for Behind<'_> {
    fn read(&self, state: State) -> Reading {
        let reading = self.0.now().read(state);
        Reading::new(reading.pace, reading.at - 2 * SECOND)
    }
}

#[test]
fn a_stale_reading_never_refills() {
    explore("a taker that is 2 s behind", || {
        // A token a second: were the stamp moved back, the 2 s would be earned again.
        let world = World::every(SECOND, 2);
        world.mock.advance(Duration::from_secs(100));
        let stale: fn(&World) = |world| {
            world.note(world.rules.run(&world.overflow, Behind(world), Take(1)));
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

/// The clock is read again after a lost race: an older reading would set the stamp back.
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

#[test]
fn a_coarse_clock_is_never_behind_the_stamp() {
    explore("a clock in memory", || {
        let world = World::new(2);
        world.run(&[
            |world| world.mock.advance(Duration::from_secs(1)),
            World::take_alone,
            |world| {
                let (outcome, _) = world.rules.run(&world.overflow, world.now(), Take(0));
                assert_eq!(outcome.lag, 0);
            },
        ]);
    });
}

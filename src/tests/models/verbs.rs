// promise: law
//! Reservations, and the tokens that they give back.

use std::sync::Arc;
use std::time::Duration;

use super::explore;
use super::world::{SECOND, World};
use crate::bucket::atomic::{BucketRef, Order};
use crate::bucket::engine::{At, Done};
use crate::bucket::live_terms::LiveTerms;
use crate::bucket::receipt::{Receipt, Settle};
use crate::rule::rate::Quota;
use crate::time::clock::Moment;
use crate::word::by_refill::OwnRefill;
use crate::word::plan::PlanTerms;
use crate::word::verb::{Call, Reserve, Take};

/// The time that earns one token, in nanoseconds.
const SLOT: u64 = 10 * SECOND;

fn empty() -> Arc<World> {
    let world = World::new(1);
    world.take_alone();
    world
}

fn reserve(world: &World) {
    let reservation = world.reserve().expect("there is room for 4 tokens of debt");
    world.commit(reservation);
}

fn reserve_and_drop(world: &World) {
    drop(world.reserve());
}

fn half_a_slot(world: &World) {
    world.mock.advance(Duration::from_secs(5));
}

#[test]
fn two_reservers_have_a_slot_each() {
    explore("two reservers", || {
        let world = empty();
        world.run(&[reserve, reserve, half_a_slot]);
        let third = world.reserve().expect("there is room for 4 tokens of debt");
        assert_eq!(world.commit(third), 3 * SLOT);
        // The tokens are the one taken at time 0, those of the two slots, and the third.
        assert_eq!(world.granted(), 4);
        world.assert_law(SLOT, 1);
    });
}

#[test]
fn a_taker_is_not_before_those_who_reserved() {
    explore("a reserver, a taker, 10 s meanwhile", || {
        let world = empty();
        world.run(&[reserve, World::take_alone, |world| world.mock.advance(Duration::from_secs(10))]);
        world.take_alone();
        world.assert_law(SLOT, 1);
        world.mock.advance(Duration::from_secs(10));
        world.take_alone();
        world.assert_law(SLOT, 1);
        // The grants are at 0 s and at 10 s, and one at 20 s: to the reserver if the taker was
        // before it, else to the taker.
        assert_eq!(world.granted(), 3);
    });
}

/// The reservation behind the dropped one keeps its time. The next reservation is one slot later,
/// whether or not the dropped one was overtaken.
#[test]
fn the_last_in_line_gives_all_back_and_an_overtaken_one_nothing() {
    explore("a reserver, and one that drops", || {
        let world = empty();
        world.run(&[reserve_and_drop, reserve, half_a_slot]);
        let kept = world.last_grant();
        let next = world.reserve().expect("there is room for 4 tokens of debt");
        assert_eq!(world.commit(next), kept + SLOT);
        world.assert_law(SLOT, 1);
    });
}

#[test]
fn a_slot_that_is_given_back_is_taken_once() {
    explore("two reservers that drop, a third", || {
        let world = empty();
        world.run(&[reserve_and_drop, reserve_and_drop, |world| {
            half_a_slot(world);
            reserve(world);
        }]);
        let kept = world.last_grant();
        let next = world.reserve().expect("there is room for 4 tokens of debt");
        // One of the dropped reservations may have been overtaken by the other. It is then before
        // the kept one or behind it.
        let next = world.commit(next);
        assert!(next == kept + SLOT || next == kept + 2 * SLOT, "{kept}, {next}");
        world.assert_law(SLOT, 1);
    });
}

/// Takes a token of two buckets, all or nothing, and notes the grant of the first.
fn take_of_both(world: &World) {
    let [first, second, ..] = &world.buckets;
    let held = world.run_on(first, world.now(), Take::Exactly(1));
    if !held.outcome.granted {
        return;
    }
    let secondary = world.run_on(second, world.now(), Take::Exactly(1));
    if secondary.outcome.granted {
        world.note(held);
    } else {
        let receipt = Receipt::new(held.outcome, &held.reading, None);
        world.engine.settle(first, None, Settle::Undo(&receipt));
    }
}

fn take_of_the_first(world: &World) {
    world.take_from(&world.buckets[0]);
}

fn take_of_the_second(world: &World) {
    let _ = world.run_on(&world.buckets[1], world.now(), Take::Exactly(1));
}

/// The first limit earns the held tokens again while the second limit is asked. If they were given
/// back on top of that, they would be there twice.
#[test]
fn what_is_undone_mints_nothing() {
    explore("two limits at once, a taker of the first", || {
        let world = World::new(1);
        take_of_the_second(&world);
        world.run(&[
            take_of_both,
            |world| world.mock.advance(Duration::from_secs(10)),
            |world| {
                take_of_the_first(world);
                take_of_the_second(world);
            },
        ]);
        take_of_the_first(&world);
        world.assert_law(SLOT, 1);
    });
}

#[test]
fn what_is_undone_is_not_lost_if_nobody_else_took() {
    explore("two limits at once, a taker of the second", || {
        let world = World::new(1);
        world.run(&[take_of_both, take_of_the_second, |world| world.mock.advance(Duration::from_secs(5))]);
        take_of_the_first(&world);
        assert_eq!(world.granted(), 1);
    });
}

#[test]
fn what_is_there_is_taken_once() {
    explore("two takers of up to 3 tokens, a taker", || {
        let world = World::new(4);
        let take_up_to_3: fn(&World) = |world| {
            world.note(world.run_on(&world.alone, world.now(), Take::UpTo(3)));
        };
        world.run(&[take_up_to_3, take_up_to_3, |world| {
            world.take_alone();
            half_a_slot(world);
        }]);
        assert_eq!(world.granted(), 4);
        half_a_slot(&world);
        take_up_to_3(&world);
        assert_eq!(world.granted(), 5);
    });
}

#[test]
fn what_is_refunded_is_granted_once() {
    explore("a refund, two takers", || {
        let world = World::new(2);
        world.take_alone();
        world.take_alone();
        world.run(&[
            |world| {
                world.engine.settle(&world.alone, None, Settle::Refund(1));
            },
            World::take_alone,
            |world| {
                World::take_alone(world);
                half_a_slot(world);
            },
        ]);
        world.take_alone();
        assert_eq!(world.granted(), 3);
        half_a_slot(&world);
        world.take_alone();
        assert_eq!(world.granted(), 4);
    });
}

/// A hold that cost two tokens more than were held stands in line with a reservation beside it.
#[test]
fn what_is_charged_later_is_earned_before_others() {
    explore("a hold that is settled for more, a reserver", || {
        let world = empty();
        let settle: fn(&World) = |world| {
            assert_eq!(world.engine.settle(&world.alone, None, Settle::Charge(2)), Some(2));
        };
        world.run(&[settle, reserve, half_a_slot]);
        let first = world.last_grant();
        assert!(first == SLOT || first == 3 * SLOT, "{first}");
        let next = world.reserve().expect("there is room for 4 tokens of debt");
        assert_eq!(world.commit(next), 4 * SLOT);
    });
}

/// An earlier reading decides where it is surely later than the stamp, or behind it by jitter.
/// Elsewhere a new reading is taken.
#[test]
fn a_reading_from_before_mints_nothing() {
    explore("a taker by a reading from before, another", || {
        let quota = Quota::every(Duration::from_secs(10)).burst(2);
        let world = World::of(LiveTerms::new(quota, quota.layout()));
        world.mock.advance(Duration::from_secs(100));
        let at_once: fn(&World) = |world| world.take_alone();
        at_once(&world);
        let before: fn(&World) = |world| {
            let at = At(&world.engine, Moment(99 * SECOND));
            world.note(world.run_on(&world.alone, at, Take::Exactly(1)));
        };
        world.run(&[before, at_once, |world| world.mock.advance(Duration::from_secs(9))]);
        before(&world);
        at_once(&world);
        assert_eq!(world.granted(), 2);
        world.mock.advance(Duration::from_secs(1));
        before(&world);
        at_once(&world);
        assert_eq!(world.granted(), 3);
    });
}

/// Returns a plan of a token every 5 s: twice the limiter's own rate.
fn fast_plan(world: &World) -> PlanTerms {
    let (fast, own) = (Quota::every(Duration::from_secs(5)).burst(2), Quota::every(Duration::from_secs(10)));
    PlanTerms::compile(0, fast, own, &world.engine.read().refill, None).unwrap()
}

/// Both tokens of the bucket are reserved. A plan earns two tokens in 10 s, and one is taken under
/// it. By the mark of the own quota the bucket then stands as the reservation left it.
#[test]
fn a_reservation_gives_nothing_back_after_a_take_under_a_plan() {
    explore("a reservation that is dropped, a plan's taker, 10 s", || {
        let world = World::new(2);
        world.run(&[
            |world| {
                let step = Take::Reserve(Reserve { n: 2, keep: 0, max_wait: u64::MAX });
                let Done { outcome, reading, .. } = world.run_on(&world.alone, world.now(), step);
                if outcome.granted {
                    let receipt = Receipt::new(outcome, &reading, None);
                    world.engine.settle(&world.alone, None, Settle::Cancel(&receipt));
                }
            },
            |world| {
                let plan = fast_plan(world);
                world.engine.admit_plan(plan.ticks_to_fill());
                let call = Call { take: Take::Exactly(1), plan: Some(&plan) };
                world.note(world.run_on(&world.alone, world.now(), call));
            },
            |world| world.mock.advance(Duration::from_secs(10)),
        ]);
        (0..3).for_each(|_| world.take_alone());
        world.assert_law(SLOT / 2, 2);
    });
}

/// A refund brings the bucket to the kept part, and no further.
#[test]
fn an_attempt_that_keeps_a_part_beside_a_refund() {
    explore("an attempt that keeps a half, a refund", || {
        let world = World::new(2);
        (0..2).for_each(|_| world.take_alone());
        let keep: fn(&World) = |world| {
            let take = Take::Above { n: 1, keep: 50 };
            if let Ok(done) = world.alone.attempt(Order::ClockFirst, world.now(), take) {
                world.note(done);
            }
        };
        world.run(&[keep, keep, |world| {
            world.engine.settle(&world.alone, None, Settle::Refund(1));
        }]);
        assert_eq!(world.granted(), 2, "the refunded token is the kept one");
        world.take_alone();
        assert_eq!(world.granted(), 3);
    });
}

/// Takes a token if half of the burst stays, as a limiter does: by attempts, then by the loop.
fn take_above_a_half(world: &World) {
    let take = Take::Above { n: 1, keep: 50 };
    let done = world.alone.attempt(Order::ClockFirst, world.now(), take).ok();
    let done = done.or_else(|| world.engine.attempt_again(&world.alone, world.now(), take, OwnRefill));
    let done = done.map_or_else(|| world.run_on(&world.alone, world.now(), take), Done::from);
    if world.note(done) {
        let left = done.reading.refill.available(done.outcome.level);
        assert!(left >= 1, "the kept token was taken");
    }
}

/// A take that keeps a part never takes it, whatever comes and goes between its load and its
/// commit.
#[test]
fn a_take_that_keeps_a_part_beside_a_refund_and_a_plain_take() {
    explore("a take that keeps a half, a refund, a plain take", || {
        let world = World::new(2);
        world.take_alone();
        world.run(&[take_above_a_half, World::take_alone, |world| {
            world.engine.settle(&world.alone, None, Settle::Refund(1));
        }]);
        (0..3).for_each(|_| world.take_alone());
        assert_eq!(world.granted(), 3);
    });
}

/// The same where a token is earned meanwhile.
#[test]
fn a_take_that_keeps_a_part_beside_a_plain_take_and_a_step() {
    explore("a take that keeps a half, a plain take, 10 s", || {
        let world = World::new(2);
        world.take_alone();
        world.run(&[take_above_a_half, World::take_alone, |world| {
            world.mock.advance(Duration::from_secs(10))
        }]);
        (0..3).for_each(|_| world.take_alone());
        world.assert_law(SLOT, 2);
        assert_eq!(world.granted(), 3);
    });
}

// promise: law, one-bucket
//! A key that enters the map and leaves it: takers, evictors, refunds, plans.
//!
//! The key earns a tenth of a token a second, with a burst of 1. In at most 12.1 s it has that one
//! token and earns 1.21, so there are 2 grants.

use std::sync::Arc;
use std::time::Duration;

use super::explore;
use super::world::{SECOND, World, fixed_window};
use crate::bucket::atomic::BucketRef;
use crate::bucket::engine::Done;
use crate::bucket::receipt::{Receipt, Settle};
use crate::keyed::idle;
use crate::rule::rate::Quota;
use crate::rule::window::Window;
use crate::word::plan::PlanTerms;
use crate::word::state::State;
use crate::word::verb::{Reserve, Take};
use crate::word::window::{ANY, WindowTerms};

/// The time to fill the bucket, the eviction grace, and 0.1 s more.
const FULL_FOR_THE_MARGIN: Duration = Duration::from_millis(12_100);

fn pass_and_evict(world: &World) {
    world.mock.advance(FULL_FOR_THE_MARGIN);
    world.evict();
}

#[test]
fn two_first_users_of_a_key_share_its_bucket() {
    explore("two first users", || {
        let world = World::new(1);
        world.run(&[World::take, World::take, |world| world.mock.advance(Duration::from_secs(5))]);
        assert_eq!(world.granted(), 1);
    });
}

#[test]
#[cfg_attr(all(loom, not(rmw_loads)), ignore = "400,000 executions: in the full run")]
fn a_taker_and_an_evictor() {
    explore("two takers, an evictor", || {
        let world = World::new(1);
        world.take();
        world.run(&[pass_and_evict, World::take, World::take]);
        world.take();
        assert!(world.granted() <= 2, "{} grants", world.granted());
    });
}

#[test]
fn a_taker_at_length_and_an_evictor() {
    explore("two takers at length, an evictor", || {
        let world = World::new(1);
        world.take();
        world.run(&[pass_and_evict, World::take_at_length, World::take_at_length]);
        world.take();
        assert!(world.granted() <= 2, "{} grants", world.granted());
    });
}

#[test]
fn two_evictors() {
    explore("two evictors, a taker", || {
        let world = World::new(1);
        world.take();
        world.run(&[pass_and_evict, World::evict, World::take]);
        world.take();
        assert_eq!(world.granted(), 2);
    });
}

/// A bucket that is full, but has not been full for the eviction grace, is not evicted: the
/// evictor's clock may be ahead.
#[test]
fn an_evictor_that_is_ahead_waits_for_the_margin() {
    explore("an evictor 1.9 s ahead", || {
        let world = World::new(1);
        world.mock.advance(Duration::from_secs(100));
        world.take();
        world.run(&[
            |world| world.mock.advance(Duration::from_millis(9_900)),
            |world| {
                let Some(bucket) = world.find() else { return };
                let idle = bucket.update(
                    |_| world.engine.read(),
                    |state, reading| {
                        let terms = &reading.refill;
                        let ahead = terms.tick(reading.nanos() + 1_900_000_000);
                        let idle = state.evictable_in(terms, ahead, 0) == 0;
                        (idle, idle.then_some(State::SEALED))
                    },
                );
                if idle.0 {
                    world.remove_sealed();
                }
            },
            World::take,
        ]);
        world.take();
        assert_eq!(world.granted(), 1);
    });
}

#[test]
fn removing_a_key_races_with_its_takers() {
    explore("remove, two takers", || {
        let world = World::new(1);
        world.run(&[
            |world| {
                world.mock.advance(Duration::from_secs(1));
                if let Some(bucket) = world.find() {
                    idle::seal(bucket, || ());
                    world.remove_sealed();
                }
            },
            World::take,
            World::take,
        ]);
        // Each bucket that the key had grants one token at most.
        assert!((1..=2).contains(&world.granted()));
    });
}

/// Reserves a token of the key, and drops the reservation.
fn reserve_and_drop(world: &World) {
    // One shard before the take and after it: it finds counts that were made meanwhile.
    let shard = world.removals();
    let then = shard.latest();
    let step = Take::Reserve(Reserve { n: 1, keep: 0, max_wait: u64::MAX });
    let Ok(Done { outcome, reading, .. }) = world.acquire(step) else { return };
    let receipt = Receipt::new(outcome, &reading, None);
    if let Some(bucket) = world.find().filter(|_| outcome.granted) {
        let bucket = shard.since(then, bucket);
        world.engine.settle(bucket, None, Settle::Cancel(&receipt));
    }
}

/// A receipt does not reach the next bucket of a removed key, although that bucket has the same
/// mark. Both buckets were charged one token at the same instant.
#[test]
fn a_receipt_of_a_removed_key_is_void() {
    explore("a reservation that is dropped, remove, a taker of the next bucket", || {
        let world = World::new(1);
        let _ = world.acquire(Take::Touch);
        world.run(&[
            reserve_and_drop,
            |world| {
                if let Some(bucket) = world.find() {
                    idle::seal(bucket, || world.removals().raise());
                    world.remove_sealed();
                }
            },
            |world| {
                // This thread takes nothing of the first bucket.
                if world.buckets[0].state() == State::SEALED {
                    world.take_at_length();
                }
            },
        ]);
        (0..2).for_each(|_| world.take());
        assert!(world.granted() <= 1, "{} grants", world.granted());
    });
}

#[test]
fn a_key_that_enters_the_map_brings_its_debts() {
    explore("overflow and first use", || {
        let world = World::new(1);
        world.run(&[World::take_without_room, World::take, |world| {
            world.mock.advance(Duration::from_secs(1))
        }]);
        world.take();
        world.take_without_room();
        assert!(world.granted() <= 1, "{} grants", world.granted());
    });
}

#[test]
fn an_overflow_grant_is_void_if_an_entry_came_and_went() {
    explore("overflow, first use and eviction", || {
        let world = World::new(1);
        world.run(&[World::take_without_room, World::take, pass_and_evict]);
        world.take();
        assert!(world.granted() <= 2, "{} grants", world.granted());
    });
}

/// A refund to an evicted bucket loses no token: the bucket was full.
#[test]
fn a_refund_on_a_sealed_bucket_is_lost() {
    explore("a refund, an evictor, a taker", || {
        let world = World::new(1);
        world.take();
        world.mock.advance(Duration::from_secs(12));
        world.run(&[
            // The refund is to the entry, as that of a hold is, and never to the bucket that comes
            // after it.
            |world| {
                world.engine.settle(&world.buckets[0], None, Settle::Refund(1));
            },
            |world| {
                world.mock.advance(Duration::from_millis(100));
                world.evict();
            },
            World::take,
        ]);
        world.take();
        // If the key still has this bucket, the refund may have come after a take. It counts then.
        let kept = world.find().is_some_and(|bucket| std::ptr::eq(bucket, &world.buckets[0]));
        assert!((2..=2 + u64::from(kept)).contains(&world.granted()), "{} grants", world.granted());
    });
}

/// Returns a plan of one token every 100 s.
fn slow_plan(world: &World) -> PlanTerms {
    let (slow, own) = (Quota::every(Duration::from_secs(100)), Quota::every(Duration::from_secs(10)));
    PlanTerms::compile(0, slow, own, &world.engine.read().refill, None).unwrap()
}

#[test]
fn a_key_under_a_slow_plan_is_not_evicted_by_the_own_quota() {
    explore("a plan's taker, an evictor", || {
        let world = World::new(1);
        world.take();
        world.mock.advance(Duration::from_secs(200));
        let take: fn(&World) = |world| world.take_as(Some(slow_plan(world)));
        world.run(&[
            |world| {
                let plan = slow_plan(world);
                world.engine.admit_plan(plan.ticks_to_fill());
                world.take_as(Some(plan));
            },
            World::evict,
            |world| world.mock.advance(FULL_FOR_THE_MARGIN),
        ]);
        world.evict();
        take(&world);
        assert_eq!(world.granted(), 2);
        world.assert_law(100 * SECOND, 1);
    });
}

#[test]
fn an_attempt_under_a_slow_plan_and_an_evictor() {
    explore("an attempt under a plan, an evictor", || {
        let world = World::new(1);
        world.take();
        world.mock.advance(Duration::from_secs(200));
        world.run(&[
            |world| {
                let plan = slow_plan(world);
                world.engine.admit_plan(plan.ticks_to_fill());
                world.take_under(plan);
            },
            World::evict,
            |world| world.mock.advance(FULL_FOR_THE_MARGIN),
        ]);
        world.evict();
        world.take_under(slow_plan(&world));
        assert_eq!(world.granted(), 2);
        world.assert_law(100 * SECOND, 1);
    });
}

/// An evictor under the own quota: an attempt under a plan never charges a sealed bucket.
#[test]
#[cfg_attr(all(loom, not(rmw_loads)), ignore = "400,000 executions: in the full run")]
fn attempts_under_a_plan_and_an_evictor() {
    explore("two attempts under a plan, an evictor", || {
        let world = World::new(1);
        world.take();
        let take: fn(&World) = |world| world.take_under(own_plan(world));
        world.run(&[pass_and_evict, take, take]);
        take(&world);
        assert!(world.granted() <= 2, "{} grants", world.granted());
    });
}

/// Returns a plan of the own quota.
fn own_plan(world: &World) -> PlanTerms {
    let own = Quota::every(Duration::from_secs(10));
    PlanTerms::compile(0, own, own, &world.engine.read().refill, None).unwrap()
}

#[test]
fn a_key_keeps_its_tokens_from_plan_to_plan() {
    explore("a taker, a plan's taker", || {
        let world = World::new(1);
        world.take();
        world.mock.advance(Duration::from_secs(10));
        let take: fn(&World) = |world| world.take_as(Some(slow_plan(world)));
        world.run(&[take, World::take, |world| world.mock.advance(Duration::from_secs(9))]);
        world.take();
        take(&world);
        assert_eq!(world.granted(), 2);
    });
}

/// Returns a world of windows of this many tokens each 12 s, by the calendar, in which 11 s of the
/// first one have passed.
fn late_in_a_window(limit: u64) -> Arc<World> {
    let world = World::of(fixed_window(Window::per(limit, Duration::from_secs(12)).utc()));
    world.mock.advance(Duration::from_secs(11));
    world
}

/// A window that the evictor finds over is not forgotten within the eviction grace: the evictor's
/// clock may be ahead.
#[test]
fn a_window_is_not_forgotten_within_the_margin() {
    explore("an evictor of windows 1.9 s ahead", || {
        let world = late_in_a_window(1);
        world.take();
        world.run(&[
            |world| world.mock.advance(Duration::from_millis(900)),
            |world| {
                let Some(bucket) = world.find() else { return };
                let engine = &world.engine;
                let ahead = || Some(engine.clock.nanos() + 1_900_000_000);
                let idle = bucket.update(
                    |_| engine.source.read(&engine.clock, ahead()),
                    |state, reading| {
                        let terms = WindowTerms::<ANY>::of(*reading, None).refill;
                        let idle = state.is_level() && terms.idle_from(state, reading) <= reading.nanos();
                        (idle, idle.then_some(State::SEALED))
                    },
                );
                if idle.0 {
                    world.remove_sealed();
                }
            },
            World::take,
        ]);
        world.take();
        assert_eq!(world.granted(), 1);
    });
}

#[test]
fn takers_and_an_evictor_of_a_window() {
    explore("two takers of a window, an evictor", || {
        let world = late_in_a_window(1);
        world.take();
        world.run(&[
            |world| {
                world.mock.advance(Duration::from_millis(3_100));
                world.evict();
            },
            World::take,
            World::take_at_length,
        ]);
        world.take();
        assert_eq!(world.granted(), 2, "a token of each window");
    });
}

/// A key without room uses the window of the overflow. Its own window begins with the same tokens
/// used.
#[test]
fn a_window_in_the_map_begins_with_what_was_used_of_the_overflow() {
    explore("a taker without room for its window, one with room", || {
        let world = late_in_a_window(1);
        world.run(&[World::take_without_room, World::take]);
        world.take();
        // A grant of the overflow is void, and its token lost, if the key has an entry after it.
        assert!(world.granted() <= 1, "{} grants", world.granted());
    });
}

#[test]
fn a_window_enters_the_map_over_an_edge() {
    explore("a taker without room for its window, one with room, over an edge", || {
        let world = late_in_a_window(1);
        world.run(&[World::take_without_room, |world| {
            world.mock.advance(Duration::from_secs(1));
            world.take();
        }]);
        world.take();
        assert!(world.granted() <= 2, "{} grants", world.granted());
    });
}

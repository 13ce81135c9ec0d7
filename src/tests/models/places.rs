// promise: inflight, one-bucket
//! The places of a key: takers and leavers beside an evictor, and the next key of a table slot.
//!
//! The clock stands. No step depends on it. One model is left out of the runs in which each load
//! may return older values as well: it has 934,000 interleavings there.

use std::sync::Arc;

use super::explore;
use super::table::scene::{self, ADA, BOB};
use super::world::{World, fixed_counts};
use crate::bucket::engine::Now;
use crate::bucket::receipt::Settle;
use crate::rule::window_layout::WindowLayout;
use crate::word::verb::{Call, Take};

/// Returns a world in which the key may have `limit` places in use, and has `count`.
fn world(limit: u32, count: usize) -> Arc<World> {
    let world = World::of(fixed_counts(WindowLayout::places(limit)));
    enter(&world);
    leave(&world);
    (0..count).for_each(|_| enter(&world));
    world
}

fn enter(world: &World) {
    world.take_at_length();
}

/// Gives back a place of the key that is in use.
fn leave(world: &World) {
    let bucket = world.find().expect("a key with a place in use has an entry");
    world.engine.settle(bucket, None, Settle::Refund(1));
}

fn in_use(world: &World) -> u64 {
    let Some(bucket) = world.find() else { return 0 };
    world.engine.look(bucket, Now(&world.engine), Take::Exactly(0).into()).1.outcome.level
}

#[test]
fn takers_of_a_place_and_an_evictor() {
    explore("two takers of a place, an evictor", || {
        let world = world(1, 0);
        world.run(&[World::evict, enter, enter]);
        // One beside that of the beginning.
        assert_eq!((world.granted(), in_use(&world)), (2, 1));
    });
}

#[test]
fn a_key_that_is_left_beside_an_evictor_keeps_its_other_places() {
    explore("a leaver, a taker, an evictor of places", || {
        let world = world(2, 2);
        world.run(&[leave, World::evict, enter]);
        let entered = world.granted() - 3;
        assert_eq!((entered <= 1, in_use(&world)), (true, 1 + entered));
    });
}

#[test]
fn the_last_place_that_is_left_beside_an_evictor_is_free() {
    explore("a leaver of the last place, two evictors", || {
        let world = world(1, 1);
        world.run(&[leave, World::evict, World::evict]);
        assert_eq!(in_use(&world), 0);
        enter(&world);
        assert_eq!((world.granted(), in_use(&world)), (3, 1));
    });
}

/// Returns the places in use of a key of a table.
fn in_use_of(world: &scene::World, key: usize) -> u64 {
    let held = world.table.search(world.hashes[key]);
    let look = |held| world.engine.look(held, Now(&world.engine), Call::from(Take::Exactly(0))).1;
    held.map_or(0, |held| look(held).outcome.level)
}

fn leave_of(world: &scene::World, key: usize) {
    let held = world.table.search(world.hashes[key]).expect("a key with a place in use has a slot");
    world.engine.settle(held, None, Settle::Refund(1));
}

/// Returns a table of one slot, in which one key after the other has entered and left.
fn one_slot() -> Arc<scene::World> {
    let world = scene::World::of(1, fixed_counts(WindowLayout::places(2)));
    for key in [BOB, ADA] {
        assert!(world.take_by_the_loop(key));
        leave_of(&world, key);
    }
    world
}

/// The slot goes to another key while a taker decides on it. The taker enters for its own key or
/// not at all, as the other key has never had the same word.
#[test]
#[cfg_attr(all(loom, not(rmw_loads)), ignore = "400,000 executions: in the full run")]
fn a_slot_of_places_that_changes_hands_is_charged_for_its_own_key() {
    explore("a taker of a place, two keys that have the slot", || {
        let world = one_slot();
        world.run(&[
            |world| {
                world.take_by_the_loop(ADA);
            },
            |world| {
                if world.take_by_the_loop(BOB) {
                    leave_of(world, BOB);
                }
            },
        ]);
        let entered = world.granted(ADA) as u64 - 1;
        assert_eq!((in_use_of(&world, ADA), in_use_of(&world, BOB)), (entered, 0));
    });
}

#[cfg(any(shuttle, rmw_loads))]
#[test]
fn a_slot_that_was_evicted_is_charged_for_its_own_key() {
    explore("a taker of a place, an evictor and a newcomer", || {
        let world = one_slot();
        world.run(&[
            |world| {
                world.take_by_the_loop(ADA);
            },
            |world| {
                world.evict_idle();
                if world.take_by_the_loop(BOB) {
                    leave_of(world, BOB);
                }
            },
        ]);
        let entered = world.granted(ADA) as u64 - 1;
        assert_eq!((in_use_of(&world, ADA), in_use_of(&world, BOB)), (entered, 0));
    });
}

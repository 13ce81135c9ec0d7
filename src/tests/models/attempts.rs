// promise: law
//! An attempt while the quota changes, and while the first reader computes the scale of the
//! counter.

use std::sync::Arc;

use super::checker::thread;
use super::explore;
use super::regime::{FAST, drain, earned, fast, regimes, set, slow, start, step, step_and_drain};
use super::world::World;
use crate::bucket::atomic::{BucketRef, Order};
use crate::rule::rate::Quota;
use crate::word::terms::Terms;
use crate::word::verb::Take;

fn attempt(world: &World, first: Order) {
    if let Ok(done) = world.alone.attempt(first, world.now(), Take::Exactly(FAST)) {
        world.note(done);
    }
}

fn beside_a_change(name: &str, [from, to]: [Quota; 2], threads: [fn(&World); 3], granted: fn(u64) -> u64) {
    explore(name, move || {
        let world = World::of(regimes(from, to));
        drain(&world);
        world.run(&threads);
        step_and_drain(&world);
        assert_eq!(earned(&world), granted(start(&world)));
    });
}

const BY_THE_CLOCK: fn(&World) = |world| attempt(world, Order::ClockFirst);
const BY_THE_WORD: fn(&World) = |world| attempt(world, Order::WordFirst);
const SLOW_DOWN: fn(&World) = |world| set(world, slow());
const SPEED_UP: fn(&World) = |world| set(world, fast());

#[test]
fn an_attempt_by_the_clock_and_a_slower_quota() {
    let threads = [SLOW_DOWN, BY_THE_CLOCK, step];
    beside_a_change("an attempt by the clock, fast to slow", [fast(), slow()], threads, |start| start * FAST);
}

#[test]
fn an_attempt_by_the_word_and_a_slower_quota() {
    let threads = [SLOW_DOWN, BY_THE_WORD, step];
    beside_a_change("an attempt by the word, fast to slow", [fast(), slow()], threads, |start| start * FAST);
}

#[test]
fn an_attempt_by_the_clock_and_a_faster_quota() {
    let threads = [SPEED_UP, BY_THE_CLOCK, step];
    let name = "an attempt by the clock, slow to fast";
    beside_a_change(name, [slow(), fast()], threads, |start| (2 - start) * FAST);
}

/// An attempt sees the raw tick scale of version 0 in full or not at all.
#[test]
fn a_first_reader_and_an_attempt() {
    explore("two first readers, an attempt", || {
        let world = World::of(regimes(fast(), slow()));
        let known = World::of(regimes(fast(), slow()));
        drain(&known);
        let state = known.alone.state();
        let read = move |world: &World| {
            let once = world.engine.source.admitted::<Terms>(state, 1, Some(Order::ClockFirst));
            let ticks = once.reading.refill.ticks;
            once.fits.then_some((ticks.multiplier_low, ticks.packed))
        };
        let whole = read(&known).expect("it was read before");
        let readers = [(); 2].map(|()| {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.engine.read();
            })
        });
        let ahead = Arc::clone(&world);
        let attempt = thread::spawn(move || assert!(read(&ahead).is_none_or(|counts| counts == whole)));
        for thread in readers {
            thread.join().unwrap();
        }
        attempt.join().unwrap();
    });
}

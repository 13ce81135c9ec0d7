// promise: law, one-bucket
//! Attempts under plans beside a change of quota, a turn of the stamp and an evictor.
//!
//! An attempt takes all tokens that are there, so the sum of the takes is the sum of the tokens
//! earned.

use std::sync::Arc;
use std::time::Duration;

use super::checker::thread;
use super::explore;
use super::regime::{BURST, FAST, drain, earned, fast, medium, regimes, set, slow, start, step};
use super::table::scene::{self, ADA, BOB};
use super::world::{World, own};
use crate::bucket::atomic::{BucketRef, Order};
use crate::rule::rate::Quota;
use crate::word::by_refill::{ByRefill, OwnRefill};
use crate::word::plan::PlanTerms;
use crate::word::verb::{Call, Take};

/// Returns a plan of the quota, made beside the quota in force.
fn plan_of(world: &World, quota: Quota) -> PlanTerms {
    world.engine.source.plan(0, quota, &world.engine.clock).unwrap()
}

/// Takes all tokens under a plan by one attempt, which may come to nothing.
fn attempt_under(world: &World, plan: PlanTerms, first: Order) {
    let by = OwnRefill.under(&plan);
    if let Ok(done) = world.alone.attempt_by(first, world.now(), Take::UpTo(BURST), by) {
        world.note(own(done));
    }
}

/// Takes all tokens under a plan by the loop.
fn drain_under(world: &World, plan: PlanTerms) {
    let call = Call { take: Take::UpTo(BURST), plan: Some(&plan) };
    world.note(world.run_on(&world.alone, world.now(), call));
}

/// Runs each function in a thread of its own, and waits for all.
fn run_all<const N: usize>(world: &Arc<World>, plan: PlanTerms, threads: [fn(&World, PlanTerms); N]) {
    let threads = threads.map(|run| {
        let world = Arc::clone(world);
        thread::spawn(move || run(&world, plan))
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

const STEPS: fn(&World, PlanTerms) = |world, _| step(world);
const BY_THE_WORD: fn(&World, PlanTerms) = |world, plan| attempt_under(world, plan, Order::WordFirst);
const BY_THE_CLOCK: fn(&World, PlanTerms) = |world, plan| attempt_under(world, plan, Order::ClockFirst);

/// A plan that was made before a change counts by the ticks in force. It has half of the
/// limiter's rate, before the change and after it.
fn a_plan_of_before(name: &str, first: fn(&World, PlanTerms), second: fn(&World, PlanTerms)) {
    explore(name, move || {
        let world = World::of(regimes(fast(), slow()));
        drain(&world);
        let plan = plan_of(&world, Quota::per_second(500_000).burst(BURST));
        run_all(&world, plan, [|world, _| set(world, slow()), first, second]);
        step(&world);
        drain_under(&world, plan);
        assert_eq!(earned(&world), start(&world) * FAST / 2);
    });
}

#[test]
fn an_attempt_by_the_word_under_a_plan_of_before_a_change() {
    a_plan_of_before("an attempt by the word under a plan, fast to slow", BY_THE_WORD, STEPS);
}

#[test]
fn an_attempt_by_the_clock_under_a_plan_of_before_a_change() {
    a_plan_of_before("an attempt by the clock under a plan, fast to slow", BY_THE_CLOCK, STEPS);
}

/// A plan that was made after a change earns none of the ticks before it. A tick of the new quota
/// is worth ten tokens under the plan, and one of the quota before is a token.
#[test]
fn an_attempt_under_a_plan_of_after_a_change() {
    explore("an attempt under a plan that begins, fast to medium", || {
        let world = World::of(regimes(fast(), medium()));
        drain(&world);
        step(&world);
        world.run(&[
            |world| {
                set(world, medium());
                attempt_under(world, plan_of(world, fast()), Order::WordFirst);
            },
            step,
        ]);
        step(&world);
        drain_under(&world, plan_of(&world, fast()));
        assert_eq!(earned(&world), (3 - start(&world)) * FAST);
    });
}

/// A plan of before the change and one of after it, on one bucket. In each step either earns at
/// most the tokens of the fast quota.
#[test]
fn attempts_under_plans_of_before_and_of_after_a_change() {
    explore("attempts under two plans, fast to medium, a step", || {
        let world = World::of(regimes(fast(), medium()));
        drain(&world);
        step(&world);
        let before = plan_of(&world, Quota::per_second(500_000).burst(BURST));
        let change = |world: &World, _| {
            set(world, medium());
            attempt_under(world, plan_of(world, fast()), Order::WordFirst);
        };
        run_all(&world, before, [change, BY_THE_WORD, STEPS]);
        step(&world);
        drain_under(&world, plan_of(&world, fast()));
        assert!(earned(&world) <= 3 * FAST, "{} tokens", earned(&world));
        assert!(earned(&world) >= FAST, "the last step is of the plan of after the change");
    });
}

/// In a later turn of the stamp, an attempt counts by the same ticks as the loop. A token is three
/// ticks under the plan, and begins with a multiple of three since the clock began.
#[test]
fn an_attempt_and_the_loop_under_a_plan_in_a_later_turn() {
    const TICK: Duration = Duration::from_micros(1);
    explore("an attempt and the loop under a plan, a later turn", || {
        let world = World::of(regimes(fast(), slow()));
        // By three, the ticks of the two turns before leave one.
        let turn = world.engine.read().refill.mask + 1;
        world.mock.advance(Duration::from_micros(2 * turn + 2));
        let plan = plan_of(&world, Quota::per(1_000_000, Duration::from_secs(3)).burst(BURST));
        drain_under(&world, plan);
        let tokens = |world: &World| world.engine.read().tick / 3;
        let before = tokens(&world);
        run_all(
            &world,
            plan,
            [BY_THE_WORD, drain_under, |world, _| (0..2).for_each(|_| world.mock.advance(TICK))],
        );
        world.mock.advance(TICK);
        drain_under(&world, plan);
        assert_eq!(earned(&world), tokens(&world) - before);
    });
}

/// Two attempts and the loop under one plan: each token is taken once.
#[test]
fn two_attempts_under_a_plan_take_each_token_once() {
    explore("two attempts under a plan, a step", || {
        let world = World::of(regimes(fast(), slow()));
        drain(&world);
        step(&world);
        let plan = plan_of(&world, Quota::per_second(500_000).burst(BURST));
        run_all(&world, plan, [BY_THE_WORD, BY_THE_WORD, STEPS]);
        drain_under(&world, plan);
        assert_eq!(earned(&world), FAST);
    });
}

/// Returns a plan of one token every 100 s beside the table's quota, and admits it.
fn slow_plan(world: &scene::World) -> PlanTerms {
    let own = Quota::every(Duration::from_secs(10));
    let slow = Quota::every(Duration::from_secs(100));
    let plan = PlanTerms::compile(0, slow, own, &world.engine.read().refill, None).unwrap();
    world.engine.admit_plan(plan.ticks_to_fill());
    plan
}

/// A slot of a key under a slow plan is not given away while the bucket is full by the own quota
/// alone.
#[test]
fn an_attempt_under_a_plan_on_a_slot_and_an_evictor() {
    explore("an attempt under a plan on a slot, an evictor", || {
        let world = scene::World::new(1, 1);
        world.take(ADA);
        world.mock.advance(Duration::from_secs(200));
        let take: fn(&scene::World) = |world| _ = world.take_under(ADA, slow_plan(world));
        let take_and_pass: fn(&scene::World) = |world| {
            world.take_under(ADA, slow_plan(world));
            world.pass();
        };
        world.run(&[take_and_pass, scene::World::evict_idle]);
        world.evict_idle();
        take(&world);
        // A take beside an evictor may be refused: it finds no room then.
        assert!(world.granted(ADA) <= 2, "{} grants", world.granted(ADA));
    });
}

/// A newcomer does not take the slot of a key that is full by the own quota alone.
#[test]
fn an_attempt_under_a_plan_on_a_slot_and_a_newcomer() {
    explore("an attempt under a plan on a slot, a claim of it", || {
        let world = scene::World::new(1, 1);
        world.take(ADA);
        world.mock.advance(Duration::from_secs(200));
        world.run(&[
            |world| {
                world.take_under(ADA, slow_plan(world));
                world.pass();
            },
            |world| drop(world.table.claim(world.hashes[BOB], &world.engine)),
        ]);
        world.take_under(ADA, slow_plan(&world));
        assert!(world.granted(ADA) <= 2, "{} grants", world.granted(ADA));
    });
}

/// A slot that goes to another key is not charged under a plan for the key before.
#[cfg(any(shuttle, rmw_loads))]
#[test]
fn a_slot_that_changes_hands_is_charged_for_its_own_key_under_a_plan() {
    explore("an attempt under a plan, a newcomer that gets the slot", || {
        let world = scene::World::new(1, 2);
        world.take(ADA);
        world.run(&[
            |world| {
                world.pass();
                world.take(BOB);
            },
            |world| {
                let own = Quota::every(Duration::from_secs(10)).burst(2);
                let plan = PlanTerms::compile(0, own, own, &world.engine.read().refill, None).unwrap();
                world.take_under(ADA, plan);
            },
        ]);
        world.drain(BOB);
        assert_eq!(world.granted(BOB), 2);
        world.drain(ADA);
        world.assert_law(2);
    });
}

// promise: law, one-bucket
//! The limiters as a user has them: a `RateLimiter` with a table of one slot, and a `Limit`. A
//! token is earned in 10 s.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{explore, explore_within, run};
use crate::limiter::limit::Limit;
use crate::limiter::rate_limiter::RateLimiter;
use crate::rule::rate::Quota;
use crate::time::clock::{Clock, MockClock};
use crate::word::decision::{Denied, Granted};

type Decision = Result<Granted, Denied>;
/// A hasher without a secret: each execution has the same hashes.
type Fixed = BuildHasherDefault<DefaultHasher>;

const ADA: u64 = 1;
const OWN: Quota = Quota::every(Duration::from_secs(10));
const SLOW: Quota = Quota::every(Duration::from_secs(100));
/// The time to fill the bucket, the eviction grace, and 0.1 s more.
const FULL_FOR_THE_MARGIN: Duration = Duration::from_millis(12_100);

struct World<L> {
    limiter: L,
    mock: MockClock,
    /// The decisions that callers got, and those that the hook saw.
    answers: Mutex<Vec<Decision>>,
    seen: Arc<Mutex<Vec<Decision>>>,
}

type Keys = World<RateLimiter<u64, Quota, Fixed>>;
type Alone = World<Limit<Quota>>;

fn push(decisions: &Mutex<Vec<Decision>>, decision: Decision) {
    decisions.lock().unwrap_or_else(PoisonError::into_inner).push(decision);
}

fn sorted(decisions: &Mutex<Vec<Decision>>) -> Vec<String> {
    let decisions = decisions.lock().unwrap_or_else(PoisonError::into_inner);
    let mut decisions: Vec<_> = decisions.iter().map(|decision| format!("{decision:?}")).collect();
    decisions.sort();
    decisions
}

impl<L> World<L> {
    fn of(build: impl FnOnce(Clock, &Arc<Mutex<Vec<Decision>>>) -> L) -> Arc<World<L>> {
        let (clock, mock) = Clock::mock();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let limiter = build(clock, &seen);
        Arc::new(World { limiter, mock, answers: Mutex::new(Vec::new()), seen })
    }

    fn granted(&self) -> u64 {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.iter().flatten().map(|granted| granted.tokens()).sum()
    }

    /// Asserts that the hook saw each decision once, as its caller got it.
    fn assert_seen(&self) {
        assert_eq!(sorted(&self.seen), sorted(&self.answers));
    }
}

/// Returns a limiter of one key, with a hook if one is to see the decisions.
fn keys(quota: Quota, is_seen: bool) -> Arc<Keys> {
    World::of(|clock, seen| {
        let builder = RateLimiter::builder(quota).hasher(Fixed::default()).clock(clock);
        let builder = builder.max_keys(1).inline().unwrap();
        let seen = Arc::clone(seen);
        if is_seen { builder.on_decision(move |decision| push(&seen, *decision)) } else { builder }.build()
    })
}

fn alone(quota: Quota) -> Arc<Alone> {
    World::of(|clock, seen| {
        let seen = Arc::clone(seen);
        Limit::builder(quota).clock(clock).on_decision(move |decision| push(&seen, *decision)).build()
    })
}

const TAKE: fn(&Keys) = |world| push(&world.answers, world.limiter.try_acquire(&ADA));

/// Takes a token under a plan that is made just before.
fn take_under_a_plan(world: &Keys) {
    let plan = world.limiter.plan(SLOW).unwrap();
    push(&world.answers, world.limiter.key(&ADA).under(&plan).try_acquire());
}

/// A key under a slow plan keeps its bucket while it is full by the limiter's own quota alone.
#[test]
fn an_attempt_under_a_plan_and_an_evictor() {
    explore("a limiter's plan, its evictor", || {
        let world = keys(OWN, false);
        TAKE(&world);
        world.mock.advance(Duration::from_secs(200));
        let take_and_pass: fn(&Keys) = |world| {
            take_under_a_plan(world);
            world.mock.advance(FULL_FOR_THE_MARGIN);
        };
        run(&world, &[take_and_pass, |world| _ = world.limiter.evict_idle()]);
        world.limiter.evict_idle();
        take_under_a_plan(&world);
        assert!(world.granted() <= 2, "{} grants", world.granted());
    });
}

/// The hook sees the decision that was committed, also after a lost race, and no other.
#[test]
fn a_hook_sees_the_decisions_on_a_key() {
    explore("two takers with a hook", || {
        let world = keys(OWN.burst(3), true);
        TAKE(&world);
        run(&world, &[TAKE, TAKE, |world| world.mock.advance(Duration::from_secs(5))]);
        TAKE(&world);
        world.assert_seen();
        assert_eq!(world.granted(), 3);
    });
}

/// Like [`a_hook_sees_the_decisions_on_a_key`], where there is one token for two takers.
#[test]
fn a_hook_sees_a_refusal_of_a_key() {
    explore("two takers of a token, with a hook", || {
        let world = keys(OWN.burst(2), true);
        TAKE(&world);
        run(&world, &[TAKE, TAKE, |world| world.mock.advance(Duration::from_secs(5))]);
        world.assert_seen();
        assert_eq!(world.granted(), 2);
    });
}

#[test]
fn a_hook_sees_the_decisions_on_a_limit() {
    explore("two takers of a limit with a hook", || {
        let world = alone(OWN.burst(2));
        let take: fn(&Alone) = |world| push(&world.answers, world.limiter.try_acquire());
        take(&world);
        run(&world, &[take, take, |world| world.mock.advance(Duration::from_secs(5))]);
        world.assert_seen();
        assert_eq!(world.granted(), 2);
    });
}

/// Takes `n` tokens by reservations until one is refused.
fn reserve_all(world: &Keys) {
    while let Ok(reservation) = world.limiter.key(&ADA).reserve() {
        push(&world.answers, Ok(reservation.commit()));
    }
}

/// The cost of a hold is more than its estimate.
fn hold_and_settle(world: &Keys) {
    if let Ok(hold) = world.limiter.key(&ADA).hold() {
        let lacking = hold.settle(3);
        push(&world.answers, Ok(Granted::anyway(3 - lacking, 0)));
    }
}

/// A caller that finds no room is charged later. By then its key may have entered the table.
#[test]
fn a_hold_of_a_key_that_enters_the_table_is_charged_to_the_key() {
    explore_within(2, "a hold without room, its key enters", || {
        let world = keys(OWN.burst(2), false);
        run(&world, &[hold_and_settle, TAKE]);
        reserve_all(&world);
        assert!(world.granted() <= 4, "a burst and a debt of 2: {}", world.granted());
    });
}

/// A caller that finds no room reserves. By then its key may have entered the table.
#[test]
#[cfg_attr(loom, ignore = "200,000 executions: in the full run")]
fn a_reservation_of_a_key_that_enters_the_table_is_that_of_the_key() {
    explore_within(1, "a reservation without room, its key enters", || {
        let world = keys(OWN.burst(1), false);
        run(&world, &[reserve_all, TAKE]);
        reserve_all(&world);
        assert!(world.granted() <= 2, "a burst and a debt of 1: {}", world.granted());
    });
}

/// A hold whose key is removed gives nothing back to the key's next bucket: it is an attempt, which
/// counts the removals before its look-up.
#[test]
#[cfg(any(shuttle, rmw_loads))]
fn a_hold_of_a_removed_key_gives_its_next_bucket_nothing() {
    explore("a hold, its key is removed", || {
        let world = keys(OWN.burst(4), false);
        (0..3).for_each(|_| TAKE(&world));
        let hold_and_leave: fn(&Keys) = |world| {
            if let Ok(hold) = world.limiter.key(&ADA).hold() {
                hold.settle(0);
            }
        };
        // The slot of a removed key has another key after the margin.
        let remove_and_take: fn(&Keys) = |world| {
            world.limiter.remove(&ADA);
            world.mock.advance(FULL_FOR_THE_MARGIN);
            (0..4).for_each(|_| TAKE(world));
        };
        run(&world, &[hold_and_leave, remove_and_take]);
        TAKE(&world);
        assert!(world.granted() <= 7, "three, and a burst of 4 after the removal: {}", world.granted());
    });
}

//! Restored keys that share buckets, or are under a plan.

use std::hash::RandomState;
use std::time::Duration;

use tollgate::{Clock, MockClock, Plan, Quota, RateLimiter};

use super::{Hasher, Keys};

const BURST: u64 = 5;

/// Returns a limiter of a fast rule for this number of keys, in its store.
fn fast(clock: &Clock, keys: usize, is_table: bool) -> Keys<Quota> {
    let builder = RateLimiter::builder(Quota::per_second(100)).clock(clock.clone()).max_keys(keys);
    let builder = builder.hasher(Hasher::default());
    if is_table { builder.inline().expect("there is memory").build() } else { builder.build() }
}

/// Returns a plan that earns a token in twelve minutes.
fn slow(limiter: &Keys<Quota>) -> Plan {
    limiter.plan(Quota::per_hour(5)).expect("it fits")
}

fn drain(limiter: &Keys<Quota>, key: u64) {
    let all = limiter.key(&key).under(&slow(limiter)).n(BURST).try_acquire();
    assert!(all.is_ok(), "{all:?}");
}

fn left(limiter: &Keys<Quota>, key: u64) -> u64 {
    limiter.key(&key).under(&slow(limiter)).peek().remaining()
}

/// Returns a clock, and the state of a limiter in which some keys were drained under the slow plan,
/// ten minutes later.
fn drained(used: u64, keys: usize, is_table: bool) -> (Clock, MockClock, Vec<u8>) {
    let (clock, mock) = Clock::mock();
    let before = fast(&clock, keys, is_table);
    (0..used).for_each(|key| drain(&before, key));
    mock.advance(Duration::from_secs(600));
    let state = before.save();
    (clock, mock, state)
}

#[test]
fn a_key_of_a_slow_plan_is_not_evicted_as_full_by_the_rule_of_the_limiter() {
    for is_table in [false, true] {
        let (clock, mock, state) = drained(8, 8, is_table);
        let after = fast(&clock, 8, is_table);
        after.restore(&state).expect("it is of this limiter");
        mock.advance(Duration::from_secs(60));
        (100..300).for_each(|key| _ = after.try_acquire(&key));
        assert!((0..8).all(|key| left(&after, key) == 0), "table: {is_table}");
    }
}

#[test]
fn takes_that_come_together_earn_nothing_by_a_faster_rule() {
    for is_table in [false, true] {
        let keys = 16;
        let (clock, _mock, state) = drained(8, keys, is_table);
        let after = fast(&clock, keys, is_table);
        for _ in 0..2 {
            after.restore(&state).expect("it is of this limiter");
            assert!((0..8).all(|key| left(&after, key) == 0), "table: {is_table}");
        }
    }
}

#[test]
fn a_key_that_finds_no_room_has_no_more_under_any_plan() {
    let (clock, _mock, state) = drained(1_000, 1_000, true);
    // Some find no room.
    let after = fast(&clock, 900, true);
    after.restore(&state).expect("there are as many slots");
    assert!(after.len() < 1_000);
    assert_eq!((0..1_000).map(|key| left(&after, key)).max(), Some(0));
    // Nor after one more restart.
    let again = fast(&clock, 900, true);
    again.restore(&after.save()).expect("it is of this limiter");
    assert_eq!((0..1_000).map(|key| left(&again, key)).max(), Some(0));
    assert!((0..1_000).all(|key| again.key(&key).under(&slow(&again)).try_acquire().is_err()));
}

#[test]
fn buckets_that_keys_of_a_plan_share_are_restored_under_another_hasher() {
    let (clock, mock) = Clock::mock();
    let build = || {
        let builder = RateLimiter::<u64>::builder(Quota::per_second(100)).clock(clock.clone());
        builder.max_keys(1).hasher(RandomState::new()).build()
    };
    let before = build();
    let plan = before.plan(Quota::per_hour(5)).expect("it fits");
    assert!(before.try_acquire(&0).is_ok());
    for key in 1..4 {
        assert!(before.key(&key).under(&plan).n(BURST).try_acquire().is_ok());
    }
    mock.advance(Duration::from_secs(600));
    let after = build();
    let plan = after.plan(Quota::per_hour(5)).expect("it fits");
    after.restore(&before.save()).expect("a map has its keys");
    assert!(after.try_acquire(&0).is_ok());
    assert!((1..4).all(|key| after.key(&key).under(&plan).try_acquire().is_err()));
}

#[test]
fn a_key_in_full_sets_is_found_by_its_restore() {
    let (clock, _mock) = Clock::mock();
    let build = || {
        let builder = RateLimiter::<u64>::builder(Quota::per_hour(2)).clock(clock.clone());
        builder.max_keys(48).hasher(Hasher::default()).inline().expect("there is memory").build()
    };
    let used = || {
        let limiter = build();
        // Until both sets of a key are full.
        let held = (0..).take_while(|key| limiter.try_acquire(key).is_ok() && limiter.stats().shared == 0);
        let held = held.count() as u64;
        (limiter, held)
    };
    for key in 0..used().1 {
        let one = build();
        assert!(one.try_acquire(&key).is_ok());
        let (limiter, _) = used();
        limiter.restore(&one.save()).expect("there is a slot");
        assert_eq!(limiter.peek(&key).remaining(), 0, "{key}");
    }
}

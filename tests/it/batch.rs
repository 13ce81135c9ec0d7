//! Decisions on many keys are those of single calls, one after another.

use std::hash::RandomState;

use tollgate::{Builder, Quota, RateLimiter, WhenFull};

use super::{IN_TABLE, InStore, Room};
use crate::support::{Random, SECOND, Time, answer};

const QUOTA: Quota = Quota::per_second(2).burst(5);

fn pair(
    build: impl Fn(Builder<String, RandomState>) -> RateLimiter<String>,
) -> [(RateLimiter<String>, Time); 2] {
    [(), ()].map(|()| {
        let (clock, time) = Time::new();
        (build(RateLimiter::stored(QUOTA).clock(clock)), time)
    })
}

/// Of every length around the 16 that are looked up at a time, with keys that come again, are new, or were forgotten.
#[test]
fn a_batch_is_single_calls_one_after_another() {
    let [(batched, mut batched_time), (single, mut single_time)] = pair(|builder| builder.build());
    let mut random = Random(1);
    let (mut granted, mut refused) = (0, 0);
    for round in 0..40 {
        for len in 0..=40 {
            let span = random.below(SECOND) << random.below(4);
            batched_time.advance(span);
            single_time.advance(span);
            let names: Vec<_> = (0..len).map(|_| format!("key {}", random.below(1 + len + round))).collect();
            // None, one, most, all, and more than there ever are.
            let asks: Vec<_> = names
                .iter()
                .map(|name| (name.as_str(), [0, 1, 1, 1, 3, 5, 6, u64::MAX][random.below(8) as usize]))
                .collect();
            let all = batched.try_acquire_batch(&asks);
            assert_eq!((all.len(), all.size_hint()), (asks.len(), (asks.len(), Some(asks.len()))));
            let all: Vec<_> = all.map(answer).collect();
            let each: Vec<_> = asks.iter().map(|(key, n)| answer(single.try_acquire_n(*key, *n))).collect();
            assert_eq!(all, each, "round {round}, {len} keys");
            granted += all.iter().filter(|one| one.granted).count();
            refused += all.iter().filter(|one| !one.granted).count();
            if random.below(8) == 0 {
                let evicted = [&batched, &single].map(RateLimiter::evict_idle);
                // Of two tables each has keys of its own that make room for others.
                assert!(IN_TABLE || evicted[0] == evicted[1]);
            }
            assert!(IN_TABLE || batched.stats() == single.stats());
        }
    }
    println!("{granted} granted, {refused} refused, {:?}", batched.stats());
    assert!(granted > 5_000 && refused > 5_000 && batched.stats().evicted > 100);
}

/// What was not asked for is not taken.
#[test]
fn a_batch_that_is_dropped_half_way_has_taken_no_more() {
    let names: Vec<_> = (0..40).map(|name| name.to_string()).collect();
    let asks: Vec<_> = names.iter().map(|name| (name.as_str(), 2)).collect();
    for taken in 0..=40 {
        let [(limiter, _), _] = pair(|builder| builder.build());
        let mut batch = limiter.try_acquire_batch(&asks);
        assert!(batch.by_ref().take(taken).all(|one| one.is_ok_and(|granted| granted.remaining() == 3)));
        assert_eq!(batch.len(), 40 - taken);
        drop(batch);
        assert_eq!(limiter.len(), taken);
        for (index, name) in names.iter().enumerate() {
            assert_eq!(limiter.peek(name.as_str()).remaining(), if index < taken { 3 } else { 5 });
        }
    }
    let [(limiter, _), _] = pair(|builder| builder.build());
    let mut none = limiter.try_acquire_batch::<str>(&[]);
    assert_eq!((none.len(), none.next(), none.next()), (0, None, None));
}

/// The clock is read for 16 at a time: what comes meanwhile is earned by the next of them.
#[test]
fn sixteen_are_decided_at_one_reading() {
    let [(limiter, mut time), _] = pair(|builder| builder.build());
    assert!(limiter.try_acquire_n("ada", 5).is_ok());
    let asks = [("ada", 1); 33];
    let mut batch = limiter.try_acquire_batch(&asks);
    for index in 0..33 {
        // Two tokens come between any two of them.
        let granted = batch.next().expect("there are 33").is_ok();
        // The first is decided before any has come; each turn after that has all that came in the one before, up to the burst.
        assert_eq!(granted, index >= 16 && index % 16 < 5, "the {index}th");
        time.advance(SECOND);
    }
}

#[test]
fn a_batch_without_room_is_decided_by_the_policy() {
    for policy in [WhenFull::Share, WhenFull::Deny, WhenFull::Allow] {
        let [(batched, _), (single, _)] = pair(|builder| builder.when_full(policy).with_places(1));
        let asks = [("ada", 2), ("bob", 2), ("ada", 4), ("bob", 4), ("bob", 0), ("bob", 9)];
        let counted = |limiter: &RateLimiter<String>| {
            let stats = limiter.stats();
            [stats.shared, stats.refused_full, stats.allowed_full]
        };
        let all: Vec<_> = batched.try_acquire_batch(&asks).map(|one| one.is_ok()).collect();
        let each: Vec<_> = asks.iter().map(|(key, n)| single.try_acquire_n(*key, *n).is_ok()).collect();
        assert_eq!((&all, counted(&batched)), (&each, counted(&single)), "{policy:?}");
        assert_eq!(counted(&batched)[policy as usize], 2, "{policy:?}");
    }
}

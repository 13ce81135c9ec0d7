//! A batch decides on its keys as single calls do, one after another.

use tollgate::{Builder, Quota, RateLimiter, WhenFull};

use super::{InStore, Room, in_table};
use crate::support::{Random, SECOND, Time, answer};

const QUOTA: Quota = Quota::per_second(2).burst(5);

fn pair(build: impl Fn(Builder<String>) -> RateLimiter<String>) -> [(RateLimiter<String>, Time); 2] {
    [(), ()].map(|()| {
        let (clock, time) = Time::new();
        (build(RateLimiter::stored(QUOTA).clock(clock)), time)
    })
}

/// Batches of every length around 16, the number of keys that are looked up at a time. Their keys
/// come again, are new, or were evicted.
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
            // No token, one, most, all, and more than the burst.
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
                // Two tables each evict keys of their own to make room.
                assert!(in_table() || evicted[0] == evicted[1]);
            }
            assert!(in_table() || batched.stats() == single.stats());
        }
    }
    println!("{granted} granted, {refused} refused, {:?}", batched.stats());
    assert!(granted > 5_000 && refused > 5_000 && batched.stats().evicted > 100);
}

/// Keys that the iterator has not reached keep their tokens.
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

/// The clock is read once for 16 keys: tokens that come meanwhile are earned by the next 16.
#[test]
fn sixteen_are_decided_at_one_reading() {
    let [(limiter, mut time), _] = pair(|builder| builder.build());
    assert!(limiter.try_acquire_n("ada", 5).is_ok());
    let asks = [("ada", 1); 33];
    let mut batch = limiter.try_acquire_batch(&asks);
    for index in 0..33 {
        // Two tokens come between any two keys.
        let granted = batch.next().expect("there are 33").is_ok();
        // The first turn is decided before any token has come. Each later turn has the tokens of
        // the turn before, up to the burst.
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

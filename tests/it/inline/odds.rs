//! The share of keys without room that `Builder::inline` documents, on the same hashes in every
//! run.

use std::hash::{BuildHasherDefault, DefaultHasher};

use tollgate::{Quota, RateLimiter, WhenFull};

use crate::support::{Time, size};

type Fixed = BuildHasherDefault<DefaultHasher>;

/// Returns the number of keys that the table is made for.
fn keys() -> u64 {
    size(200_000, 2_000_000)
}

/// Returns how many newcomers came, and how many of them found no room. The taken places go from
/// `from` to `to` in 1,000 keys of the table's size. All keys in them are limited.
fn between(limiter: &RateLimiter<u64, Quota, Fixed>, next: &mut u64, from: u64, to: u64) -> (u64, u64) {
    while (limiter.len() as u64) < keys() * from / 1_000 {
        let _ = limiter.try_acquire(next);
        *next += 1;
    }
    let (first, before) = (*next, limiter.stats().refused_full);
    while (limiter.len() as u64) < keys() * to / 1_000 {
        let _ = limiter.try_acquire(next);
        *next += 1;
    }
    (*next - first, limiter.stats().refused_full - before)
}

#[test]
fn as_few_find_no_room_as_is_said() {
    let (clock, _time) = Time::new();
    let limiter = RateLimiter::<u64>::builder(Quota::per_hour(1))
        .hasher(Fixed::default())
        .clock(clock)
        .max_keys(keys() as usize)
        .inline()
        .unwrap();
    let limiter = limiter.when_full(WhenFull::Deny).build();
    let mut next = 0;
    let parts = [(0, 800), (800, 850), (850, 990), (990, 1_000), (1_000, 1_010)];
    let parts = parts.map(|(from, to)| (to, between(&limiter, &mut next, from, to)));
    for (to, (of, refused)) in parts {
        println!("until {to} in 1,000: {refused} of {of} found no room");
    }
    let [below, above, _, before, after] = parts.map(|(_, part)| part);
    let all = parts[..4].iter().map(|(_, (_, refused))| refused).sum::<u64>();
    // Four fifths of the keys are 60 % of the places: far fewer than 1 in 10,000 find no room.
    assert!(below.1 * 100_000 < below.0, "{below:?}");
    let one_in = |(of, refused): (u64, u64)| of / refused.max(1);
    assert!((10_000..100_000).contains(&one_in(above)), "at four fifths of them: {above:?}");
    assert!((2_300..3_500).contains(&one_in((keys(), all))), "of as many as it is made for: {all}");
    let then = (before.0 + after.0, before.1 + after.1);
    assert!((90..140).contains(&one_in(then)), "once there are as many as it is made for: {then:?}");
}

// promise: bounded
//! A million distinct keys against room for ten thousand, or fifty thousand in a quick run.

use std::time::Duration;

use tollgate::{Clock, MockClock, Quota, RateLimiter, Reason, Stats, WhenFull};

use super::{InStore, Room, in_table};
use crate::support::{HOUR, SECOND, fill, ns, size};

const ROOM: usize = 10_000;
/// A table of `ROOM` keys has a set of eight places for each six keys.
fn places() -> usize {
    if in_table() { ROOM.div_ceil(6) * 8 } else { ROOM }
}

/// Returns the number of keys.
fn keys() -> u64 {
    size(50_000, 1_000_000)
}

fn limiter(quota: Quota, policy: WhenFull) -> (RateLimiter<u64>, MockClock) {
    let (clock, mock) = Clock::mock();
    (RateLimiter::stored(quota).clock(clock).room(ROOM).when_full(policy).build(), mock)
}

/// Sends each key from 1 on once, and checks the bound after each. Returns the number of grants.
fn flood(limiter: &RateLimiter<u64>, mut before_each: impl FnMut()) -> u64 {
    let mut granted = 0;
    for key in 1..=keys() {
        before_each();
        granted += u64::from(limiter.try_acquire(&key).is_ok());
        assert!(limiter.len() <= places(), "{} keys after the key {key}", limiter.len());
    }
    granted
}

/// Returns the counts of a flood on a clock that stands still, without the keys.
fn counted(stats: Stats) -> [u64; 4] {
    let room = if in_table() { ROOM..places() + 1 } else { ROOM..ROOM + 1 };
    assert!(room.contains(&stats.keys), "there is room for as many as promised: {stats:?}");
    [stats.evicted, stats.shared, stats.refused_full, stats.allowed_full]
}

/// Floods a limiter whose key 0 has no tokens left. Returns the number of other keys with room, and
/// the number of grants.
fn limited_before(policy: WhenFull) -> (RateLimiter<u64>, u64, u64) {
    let (limiter, _mock) = limiter(Quota::per_hour(5), policy);
    assert!(limiter.try_acquire_n(&0, 5).is_ok());
    let granted = flood(&limiter, || ());
    let denied = limiter.try_acquire(&0).expect_err("a flood resets no limit");
    assert_eq!((denied.reason(), denied.retry_after()), (Reason::Empty, Some(ns(HOUR / 5))));
    let roomy = limiter.len() as u64 - 1;
    (limiter, roomy, granted)
}

#[test]
fn keys_without_room_share_buckets() {
    let (limiter, roomy, granted) = limited_before(WhenFull::Share);
    let without_room = keys() - roomy;
    assert_eq!(counted(limiter.stats()), [0, without_room, 0, 0]);
    // 1,024 shared buckets of 5 tokens, each of them used up.
    let most = roomy + 1_024 * 5;
    // A table turns newcomers away long before it is full. Some that get a place later bring a debt
    // that leaves them no token.
    let least = if in_table() { most - 200 } else { most };
    assert!((least..=most).contains(&granted), "{granted}, not {least} to {most}");
}

#[test]
fn keys_without_room_are_denied() {
    let (limiter, roomy, granted) = limited_before(WhenFull::Deny);
    let without_room = keys() - roomy;
    assert_eq!(counted(limiter.stats()), [0, 0, without_room, 0]);
    assert_eq!(granted, roomy);
    let denied = limiter.try_acquire(&(keys() + 1)).expect_err("there is no room");
    assert_eq!((denied.reason(), denied.remaining()), (Reason::Full, 0));
    assert!(denied.retry_after().is_some_and(|wait| wait > Duration::from_secs(2)));
}

#[test]
fn keys_without_room_are_allowed() {
    let (limiter, roomy, granted) = limited_before(WhenFull::Allow);
    let without_room = keys() - roomy;
    assert_eq!(counted(limiter.stats()), [0, 0, 0, without_room]);
    assert_eq!(granted, keys());
    for _ in 0..20 {
        let granted = limiter.try_acquire_n(&(keys() + 1), 5).expect("it is not counted against anything");
        assert_eq!(granted.remaining(), 0);
    }
}

/// The flood goes on for 500 s, or for 25 s in a quick run, and each of its keys is idle long
/// enough to be evicted. The limited keys stay, and stay limited.
#[test]
fn a_flood_evicts_who_is_full_and_no_other() {
    let (keys, seconds) = (keys(), keys() / 2_000);
    for policy in [WhenFull::Share, WhenFull::Deny, WhenFull::Allow] {
        let quota = Quota::per_hour(3_600).burst(600);
        let (limiter, mock) = limiter(quota, policy);
        let mut limited = Vec::new();
        for key in keys + 1..=keys + 50 {
            assert!(limiter.try_acquire_n(&key, 600).is_ok());
            limited.push(key);
        }
        // The limited keys earn at most all but a hundred tokens. The others lack one for 1 s.
        let granted = flood(&limiter, || mock.advance(ns(SECOND / 2_000)));
        assert!(fill(quota) > seconds * SECOND);
        let Stats { evicted, shared, refused_full, allowed_full, .. } = limiter.stats();
        // Each key has room: a place is used again after 3 s, and 6,000 keys come in that time.
        let without = shared + refused_full + allowed_full;
        assert_eq!(granted, keys - refused_full, "{policy:?}");
        // In a table, one key in some hundred million finds both of its sets full.
        let most = if in_table() { 10 } else { 0 };
        assert!((0..=most).contains(&without), "{policy:?}: {without} found no room");
        assert_eq!(evicted, keys + 50 - without - limiter.len() as u64, "{policy:?}");
        assert!(in_table() || limiter.len() == ROOM);
        for key in limited {
            assert_eq!(limiter.try_acquire_n(&key, seconds).map(|granted| granted.remaining()), Ok(0));
            assert!(limiter.try_acquire(&key).is_err());
        }
    }
}

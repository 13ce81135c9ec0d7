//! A million distinct keys against room for ten thousand.

use std::time::Duration;

use tollgate::{Clock, MockClock, Quota, RateLimiter, Reason, Stats, WhenFull};

use crate::support::{HOUR, SECOND, fill, ns};

const ROOM: usize = 10_000;
const FLOOD: u64 = 1_000_000;

fn limiter(quota: Quota, policy: WhenFull) -> (RateLimiter<u64>, MockClock) {
    let (clock, mock) = Clock::mock();
    (RateLimiter::builder(quota).clock(clock).max_keys(ROOM).when_full(policy).build(), mock)
}

/// Sends the keys from 1 on, each once, and holds the bound after each. Tells how many were granted.
fn flood(limiter: &RateLimiter<u64>, mut before_each: impl FnMut()) -> u64 {
    let mut granted = 0;
    for key in 1..=FLOOD {
        before_each();
        granted += u64::from(limiter.try_acquire(&key).is_ok());
        assert!(limiter.len() <= ROOM, "{} keys after the key {key}", limiter.len());
    }
    granted
}

/// What is counted of a flood on a clock that stands still, less the keys.
fn counted(stats: Stats) -> [u64; 4] {
    assert_eq!(stats.keys, ROOM, "there is room for as many as promised");
    [stats.evicted, stats.shared, stats.refused_full, stats.allowed_full]
}

/// The key 0 has all its tokens taken before the flood, and half of the others have room.
fn limited_before(policy: WhenFull) -> (RateLimiter<u64>, u64) {
    let (limiter, _mock) = limiter(Quota::per_hour(5), policy);
    assert!(limiter.try_acquire_n(&0, 5).is_ok());
    let granted = flood(&limiter, || ());
    let denied = limiter.try_acquire(&0).expect_err("a flood resets no limit");
    assert_eq!((denied.reason(), denied.retry_after()), (Reason::Empty, Some(ns(HOUR / 5))));
    (limiter, granted)
}

#[test]
fn keys_without_room_share_buckets() {
    let (limiter, granted) = limited_before(WhenFull::Share);
    let without_room = FLOOD - (ROOM as u64 - 1);
    assert_eq!(counted(limiter.stats()), [0, without_room, 0, 0]);
    // 1,024 buckets of 5 tokens, each of them used up.
    assert_eq!(granted, ROOM as u64 - 1 + 1_024 * 5);
}

#[test]
fn keys_without_room_are_denied() {
    let (limiter, granted) = limited_before(WhenFull::Deny);
    let without_room = FLOOD - (ROOM as u64 - 1);
    assert_eq!(counted(limiter.stats()), [0, 0, without_room, 0]);
    assert_eq!(granted, ROOM as u64 - 1);
    let denied = limiter.try_acquire(&(FLOOD + 1)).expect_err("there is no room");
    assert_eq!((denied.reason(), denied.remaining()), (Reason::Full, 0));
    assert!(denied.retry_after().is_some_and(|wait| wait > Duration::from_secs(2)));
}

#[test]
fn keys_without_room_are_allowed() {
    let (limiter, granted) = limited_before(WhenFull::Allow);
    let without_room = FLOOD - (ROOM as u64 - 1);
    assert_eq!(counted(limiter.stats()), [0, 0, 0, without_room]);
    assert_eq!(granted, FLOOD);
    for _ in 0..20 {
        let granted = limiter.try_acquire_n(&(FLOOD + 1), 5).expect("it is not counted against anything");
        assert_eq!(granted.remaining(), 0);
    }
}

/// The flood goes on for hours, and each of its keys is idle long enough to be evicted. The ones that are
/// limited stay, and stay limited.
#[test]
fn a_flood_evicts_who_is_full_and_no_other() {
    for policy in [WhenFull::Share, WhenFull::Deny, WhenFull::Allow] {
        let quota = Quota::per_hour(3_600).burst(600);
        let (limiter, mock) = limiter(quota, policy);
        let mut limited = Vec::new();
        for key in FLOOD + 1..=FLOOD + 50 {
            assert!(limiter.try_acquire_n(&key, 600).is_ok());
            limited.push(key);
        }
        // 500 s in all: the limited are short of a hundred tokens at the end, the others of one for 1 s.
        let granted = flood(&limiter, || mock.advance(ns(SECOND / 2_000)));
        assert!(fill(quota) > 500 * SECOND);
        let Stats { evicted, shared, refused_full, allowed_full, .. } = limiter.stats();
        // Each has room: a slot is used again 3 s later at the earliest, by when 6,000 have come.
        assert_eq!((granted, shared, refused_full, allowed_full), (FLOOD, 0, 0, 0), "{policy:?}");
        assert_eq!(evicted, FLOOD - (ROOM as u64 - 50), "{policy:?}");
        for key in limited {
            assert_eq!(limiter.try_acquire_n(&key, 500).map(|granted| granted.remaining()), Ok(0));
            assert!(limiter.try_acquire(&key).is_err());
        }
    }
}

//! Calls that take nothing: 0 tokens, more than the burst, looks. And the ends of the range.

use std::time::Duration;

use tollgate::{Clock, Denied, Granted, Quota, RateLimiter, Reason, TokenBucket, WhenFull};

use super::{InStore, Room};
use crate::support::{QUOTAS, quota_text};

const POLICIES: [WhenFull; 3] = [WhenFull::Share, WhenFull::Deny, WhenFull::Allow];

fn is_for_ever(decision: Result<Granted, Denied>, remaining: u64) {
    let denied = decision.expect_err("more than the burst");
    assert_eq!(
        (denied.reason(), denied.retry_after(), denied.remaining()),
        (Reason::TooMany, None, remaining)
    );
}

#[test]
fn taking_nothing_succeeds_and_takes_nothing() {
    for numbers @ (_, _, burst) in QUOTAS {
        let (clock, mock) = Clock::mock();
        let bucket = TokenBucket::builder(quota_text(numbers).parse().unwrap()).clock(clock).build();
        let full = bucket.try_acquire_n(0).expect("nothing is always there");
        assert_eq!((full.remaining(), full.reset_after()), (burst, Duration::ZERO));
        let all = bucket.try_acquire_n(burst).expect("it was still full");
        assert_eq!(all.remaining(), 0);
        for _ in 0..3 {
            let empty = bucket.try_acquire_n(0).expect("nothing is there when it is empty, too");
            assert_eq!((empty.remaining(), empty.reset_after()), (0, all.reset_after()));
        }
        mock.advance(all.reset_after());
        assert!(bucket.try_acquire_n(burst).is_ok(), "full when it said");
    }
}

#[test]
fn a_refusal_tells_the_tokens_that_were_asked_for() {
    let (clock, _mock) = Clock::mock();
    let bucket = TokenBucket::builder(Quota::per_hour(10)).clock(clock.clone()).build();
    let limiter = RateLimiter::<u64>::stored(Quota::per_hour(10)).clock(clock).build();
    assert!(bucket.try_acquire_n(9).is_ok() && limiter.try_acquire_n(&1, 9).is_ok());
    for n in [2, 7, 10, 11, u64::MAX] {
        let denied = [bucket.try_acquire_n(n), limiter.try_acquire_n(&1, n)].map(Result::unwrap_err);
        assert_eq!(denied.map(|denied| denied.asked()), [n, n]);
    }
}

#[test]
fn more_than_the_burst_is_refused_for_ever_and_takes_nothing() {
    for numbers @ (_, _, burst) in QUOTAS {
        let (clock, _mock) = Clock::mock();
        let bucket = TokenBucket::builder(quota_text(numbers).parse().unwrap()).clock(clock).build();
        for n in [burst + 1, burst * 2, 1 << 63, u64::MAX] {
            is_for_ever(bucket.try_acquire_n(n), burst);
        }
        assert_eq!(bucket.try_acquire_n(burst).map(|granted| granted.remaining()), Ok(0));
        is_for_ever(bucket.try_acquire_n(burst + 1), 0);
        is_for_ever(bucket.try_acquire_n(u64::MAX), 0);
        assert_eq!(bucket.try_acquire_n(1).map_err(|denied| denied.reason()), Err(Reason::Empty));
    }
}

#[test]
fn only_a_take_makes_an_entry() {
    for policy in POLICIES {
        for max_keys in [0, 1, 100] {
            let (clock, _mock) = Clock::mock();
            let limiter = RateLimiter::<String>::stored(Quota::per_hour(5)).clock(clock);
            let limiter = limiter.room(max_keys).when_full(policy).build();
            let pinned = limiter.pin();
            assert_eq!(limiter.try_acquire_n("a", 0).map(|granted| granted.remaining()), Ok(5));
            assert_eq!(pinned.try_acquire_n("b", 0).map(|granted| granted.remaining()), Ok(5));
            is_for_ever(limiter.try_acquire_n("c", 6), 5);
            is_for_ever(pinned.try_acquire_n("d", u64::MAX), 5);
            let (e, f) = (limiter.peek("e"), pinned.key("f").peek());
            assert_eq!((e.remaining(), f.remaining(), e.reset_after()), (5, 5, Duration::ZERO));
            assert!(!limiter.remove("a") && !limiter.remove("b") && limiter.evict_idle() == 0);
            assert!(limiter.is_empty());
            assert_eq!(limiter.stats(), tollgate::Stats::default(), "nor is anything counted");
        }
    }
}

#[test]
fn what_takes_nothing_sees_a_held_bucket_and_one_without_room() {
    for policy in POLICIES {
        let (clock, mock) = Clock::mock();
        let limiter = RateLimiter::<u64>::stored(Quota::per_second(5)).clock(clock);
        let limiter = limiter.when_full(policy).with_places(1);
        assert!(limiter.try_acquire_n(&0, 3).is_ok());
        let outside = limiter.try_acquire_n(&1, 4);
        assert_eq!(outside.is_ok(), policy != WhenFull::Deny);
        let stats = limiter.stats();

        let left_outside = if policy == WhenFull::Share { 1 } else { 5 };
        for (key, left) in [(0, 2), (1, left_outside)] {
            let look = limiter.peek(&key);
            assert_eq!((look.remaining(), limiter.pin().key(&key).peek()), (left, look), "{policy:?} {key}");
            assert_eq!(look.reset_after(), Duration::from_millis(200 * (5 - left)));
            let nothing = limiter.try_acquire_n(&key, 0).expect("nothing is always there");
            assert_eq!((nothing.remaining(), nothing.reset_after()), (left, look.reset_after()));
            is_for_ever(limiter.try_acquire_n(&key, 6), left);
        }
        mock.advance(Duration::from_millis(200));
        assert_eq!(limiter.peek(&0).remaining(), 3);
        assert_eq!(limiter.stats(), stats);
    }
}

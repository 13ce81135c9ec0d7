// promise: law
//! A bucket that is spread: many threads, and verbs of all kinds while tokens are at hand.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::Duration;

use tollgate::{Clock, Quota, Reason, Reservation, TokenBucket, all_of};

use crate::support::{Random, SECOND, Time, ns};

const HOT: Quota = Quota::per_second(1_000).burst(10_000);

/// Takes tokens one by one until the bucket has leases, and returns how many were granted.
fn heat(bucket: &TokenBucket) -> u64 {
    (0..200).filter(|_| bucket.try_acquire().is_ok()).count() as u64
}

fn hot() -> (TokenBucket, Time) {
    let (clock, time) = Time::new();
    let bucket = TokenBucket::builder(HOT).clock(clock).spread().build();
    assert_eq!(heat(&bucket), 200);
    assert_eq!(bucket.peek().remaining(), 9_800);
    (bucket, time)
}

#[test]
fn threads_are_granted_the_burst_and_no_more() {
    for (threads, burst) in [(2, 1_000), (4, 64), (8, 100_000)] {
        for round in 0..20 {
            let (clock, mock) = Clock::mock();
            let bucket =
                TokenBucket::builder(Quota::per_second(1).burst(burst)).clock(clock).spread().build();
            let (granted, start) = (AtomicU64::new(0), Barrier::new(threads));
            thread::scope(|scope| {
                for thread in 0..threads as u64 {
                    let (bucket, granted, start, mock) = (&bucket, &granted, &start, &mock);
                    scope.spawn(move || {
                        let mut random = Random(round << 8 | thread);
                        start.wait();
                        loop {
                            let n = 1 + random.below(20) / 19 * random.below(9);
                            let taken = match random.below(50) {
                                0 => bucket.ask().n(n).acquire_up_to().tokens(),
                                1 => {
                                    mock.advance(ns(1_000));
                                    0
                                }
                                _ => bucket.try_acquire_n(n).map_or(0, |granted| granted.tokens()),
                            };
                            granted.fetch_add(taken, Relaxed);
                            if taken == 0
                                && bucket.try_acquire().map(|_| granted.fetch_add(1, Relaxed)).is_err()
                            {
                                return;
                            }
                        }
                    });
                }
            });
            let left = bucket.ask().n(burst).acquire_up_to().tokens();
            assert_eq!(granted.into_inner() + left, burst, "{threads} threads, round {round}");
        }
    }
}

#[test]
fn every_verb_counts_what_is_at_hand() {
    let (bucket, _) = hot();
    assert_eq!(bucket.ask().n(20_000).acquire_up_to().tokens(), 9_800);
    let (bucket, _) = hot();
    assert!(bucket.try_acquire_n(9_801).is_err_and(|denied| denied.remaining() == 9_800));
    assert!(bucket.try_acquire_n(9_800).is_ok());
    let (bucket, _) = hot();
    assert!(bucket.ask().n(9_800).at(bucket.now()).try_acquire().is_ok() && bucket.try_acquire().is_err());
    let (bucket, _) = hot();
    let reserved = bucket.ask().n(10_000).reserve().unwrap();
    assert_eq!((reserved.delay(), bucket.peek().remaining()), (ns(SECOND / 5), 0));
    let (bucket, _) = hot();
    assert_eq!(bucket.ask().n(9_800).hold().unwrap().settle(9_900), 0);
    assert_eq!(bucket.ask().reserve().map(Reservation::commit).unwrap().tokens(), 1);
    assert_eq!(bucket.try_acquire().unwrap_err().retry_after(), Some(ns(SECOND * 102 / 1_000)));
    let (bucket, _) = hot();
    bucket.refund(150);
    assert_eq!(bucket.peek().remaining(), 9_950);
    bucket.refund(1_000);
    assert_eq!(bucket.peek().remaining(), 10_000);
    let (bucket, _) = hot();
    assert_eq!(bucket.try_acquire_n(10_001).unwrap_err().reason(), Reason::TooMany);
    assert_eq!(bucket.try_acquire_n(0).unwrap().remaining(), 9_800);
    let (bucket, _) = hot();
    let other = TokenBucket::builder(Quota::per_hour(1)).clock(Clock::mock().0).build();
    assert!(all_of((bucket.ask().n(9_800), other.ask())).try_acquire().is_ok());
    bucket.refund(9_000);
    heat(&bucket);
    assert_eq!(all_of((bucket.ask().n(8_000), other.ask())).try_acquire().unwrap_err().which(), 1);
    assert_eq!(bucket.peek().remaining(), 8_800);
}

/// An unused reservation gives its tokens back, unless a take came after it.
#[test]
fn a_reservation_that_is_dropped_comes_back() {
    let (bucket, _) = hot();
    drop(bucket.ask().n(9_900).reserve().unwrap());
    assert_eq!(bucket.peek().remaining(), 9_800);
    heat(&bucket);
    drop(bucket.ask().n(100).reserve().unwrap());
    assert_eq!(bucket.peek().remaining(), 9_600);
}

/// A bucket that was in demand fills to three quarters of its burst. After slow use it fills to the
/// whole burst.
#[test]
fn what_was_leased_is_earned_again() {
    let (bucket, mut time) = hot();
    time.advance(60 * SECOND);
    assert!(bucket.peek().remaining() >= 7_500);
    assert!(bucket.try_acquire_n(7_500).is_ok());
    time.advance(60 * SECOND);
    for _ in 0..1_000 {
        assert!(bucket.try_acquire().is_ok());
        time.advance(2 * SECOND);
    }
    assert_eq!(bucket.peek().remaining(), 10_000);
    assert!(bucket.try_acquire_n(10_000).is_ok());
}

/// Only a spread bucket is short of its spent leases when it is full.
#[test]
fn a_spread_bucket_is_full_without_its_spent_leases() {
    let (clock, mut time) = Time::new();
    let builder = || TokenBucket::builder(HOT).clock(clock.clone());
    let buckets = [builder().spread().build(), builder().build()];
    buckets.iter().for_each(|bucket| assert_eq!(heat(bucket), 200));
    time.advance(60 * SECOND);
    let [spread, plain] = buckets.each_ref().map(|bucket| bucket.peek().remaining());
    assert_eq!(plain, 10_000);
    assert!(spread < plain, "{spread}");
}

/// At most the burst is granted at once, whatever the leases hold when time passes.
#[test]
fn a_lease_is_not_granted_twice() {
    let (bucket, mut time) = hot();
    for _ in 0..50 {
        time.advance(60 * SECOND);
        let granted = (0..20_000).filter(|_| bucket.try_acquire().is_ok()).count();
        assert!((7_500..=10_000).contains(&granted), "{granted}");
    }
}

/// Another thread sets the same quota at each reading of a few refills. The bucket is as full as
/// its leases allow, so a lost token would be missed.
#[test]
fn a_change_to_the_same_quota_loses_no_token() {
    const NEVER: u64 = u64::MAX;
    let quota = Quota::per_second(1_000_000_000).burst(4_000);
    for reading in 0..10 {
        let bucket = Arc::new(OnceLock::<TokenBucket>::new());
        let (nanos, change) = (Arc::new(AtomicU64::new(SECOND)), Arc::new(AtomicU64::new(NEVER)));
        let clock = Clock::from_fn({
            let (bucket, nanos, change) = (Arc::clone(&bucket), Arc::clone(&nanos), Arc::clone(&change));
            move || {
                if change.load(Relaxed) != NEVER && change.fetch_sub(1, Relaxed) == 0 {
                    bucket.get().expect("it is built").set_rule(quota).unwrap();
                }
                ns(nanos.load(Relaxed))
            }
        });
        let built = TokenBucket::builder(quota).clock(clock).spread().build();
        let bucket = bucket.get_or_init(|| built);
        assert_eq!(heat(bucket), 200);
        // The bucket is still in demand, and full again.
        nanos.fetch_add(4_000, Relaxed);
        let left = bucket.peek().remaining();
        change.store(reading, Relaxed);
        let taken = heat(bucket) + heat(bucket);
        change.store(NEVER, Relaxed);
        assert_eq!(taken + bucket.peek().remaining(), left, "changed at the reading {reading}");
    }
}

#[test]
fn a_smaller_burst_holds_at_once() {
    let (bucket, mut time) = hot();
    bucket.set_rule(HOT.burst(5)).unwrap();
    assert_eq!((0..100).filter(|_| bucket.try_acquire().is_ok()).count(), 5);
    bucket.set_rule(HOT).unwrap();
    time.advance(60 * SECOND);
    assert_eq!((0..20_000).filter(|_| bucket.try_acquire().is_ok()).count(), 10_000);
}

/// A clock that panics while a lease is taken or ended costs no token, and leaves no cell claimed.
#[test]
fn a_clock_that_panics_loses_nothing() {
    let panics = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&panics);
    let clock = Clock::from_fn(move || {
        assert!(!asked.load(Relaxed), "as it was told to");
        Duration::ZERO
    });
    let bucket = TokenBucket::builder(HOT).clock(clock).spread().build();
    let mut granted = 0;
    let mut panicked = 0;
    for round in 0..5_000 {
        panics.store(round % 3 == 0, Relaxed);
        let take =
            || bucket.try_acquire_n(1 + 40 * u64::from(round % 50 == 0)).map_or(0, |taken| taken.tokens());
        match catch_unwind(AssertUnwindSafe(take)) {
            Ok(tokens) => granted += tokens,
            Err(_) => panicked += 1,
        }
        if round % 100 == 0 {
            let _ = catch_unwind(AssertUnwindSafe(|| bucket.refund(20_000)));
            panics.store(false, Relaxed);
            let full = bucket.peek().remaining();
            if full == 10_000 {
                granted = 0;
            }
        }
    }
    panics.store(false, Relaxed);
    assert!(panicked > 20, "{panicked}");
    assert_eq!(granted + bucket.peek().remaining(), 10_000);
    assert_eq!(granted + bucket.ask().n(10_000).acquire_up_to().tokens(), 10_000);
}

/// A hook or shadow mode sees every decision, so the bucket stays plain.
#[test]
fn a_bucket_that_is_watched_is_not_spread() {
    let seen = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&seen);
    let builder = TokenBucket::builder(HOT).clock(Clock::mock().0);
    let bucket = builder
        .on_decision(move |_| {
            count.fetch_add(1, Relaxed);
        })
        .spread()
        .build();
    assert_eq!((heat(&bucket), seen.load(Relaxed)), (200, 200));
    let shadow =
        TokenBucket::builder(Quota::per_hour(100)).clock(Clock::mock().0).shadow(true).spread().build();
    assert_eq!((heat(&shadow), shadow.overruled()), (200, 100));
}

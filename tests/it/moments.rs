//! Decisions at earlier readings of the clock.

use tollgate::{Quota, RateLimiter};

use super::InStore;
use super::face::{Set, on_each, on_each_of};
use crate::support::{HOUR, SECOND, Time, ns};

const MS: u64 = 1_000_000;
const THOUSAND: Quota = Quota::per_second(1_000);

#[test]
fn one_reading_serves_many_decisions() {
    let (clock, mut time) = Time::new();
    let limiter = RateLimiter::<u64>::stored(Quota::per_second(10)).clock(clock).build();
    time.set(SECOND);
    let now = limiter.now();
    for key in 0..100 {
        assert_eq!(limiter.key(&key).n(10).at(now).try_acquire().map(|granted| granted.remaining()), Ok(0));
        assert_eq!(
            limiter.pin().key(&key).at(now).try_acquire().unwrap_err().retry_after(),
            Some(ns(100 * MS))
        );
    }
    time.advance(100 * MS);
    // Tokens that came since the reading are earned later, not lost.
    for key in 0..100 {
        let denied = limiter.key(&key).at(now).try_acquire().unwrap_err();
        assert_eq!(denied.retry_after(), Some(ns(100 * MS)), "counted from the reading");
        assert!(limiter.try_acquire(&key).is_ok());
    }
}

#[test]
fn a_bucket_that_was_never_used_takes_a_reading_of_its_own() {
    on_each_of(THOUSAND, |face, mut time| {
        let before = face.now();
        time.set(HOUR);
        assert!(face.try_at(before, 1_000).is_ok());
        // The bucket's stamp is the hour, so it earned no token since.
        assert!(face.try_n(1).is_err());
    });
}

/// Decisions at a reading older than jitter grant no token twice. (5,000 were granted, at one
/// instant.)
#[test]
fn a_stale_reading_never_grants_the_burst_twice() {
    for age in
        [1, 3 * SECOND, 4 * SECOND + MS, 10 * SECOND, 600 * SECOND, HOUR, HOUR + 10 * SECOND, 100 * HOUR]
    {
        on_each_of(THOUSAND, |face, mut time| {
            time.set(100 * HOUR);
            let stale = face.now();
            assert!(face.try_n(1).is_ok());
            time.advance(age);
            let mut granted = face.up_to(1_000).tokens();
            for _ in 0..5 {
                granted += u64::from(face.try_at(stale, 1).is_ok());
                granted += face.up_to(1_000).tokens();
                let _ = face.try_at(stale, 1_001);
                granted += face.up_to(1_000).tokens();
            }
            assert!(granted <= 1_000, "{granted} granted at one instant, {age} ns after the reading");
            time.advance(500 * MS);
            assert_eq!(face.peek().remaining(), 500, "and time goes on from there: {age}");
        });
    }
}

/// A reading from before the clock was set back, in turn with those of the clock, grants no token
/// twice. (A burst was granted by each pair.)
#[test]
fn a_moment_of_before_the_clock_was_set_back_grants_nothing() {
    for back in [5 * SECOND, 60 * SECOND, HOUR, 50 * HOUR] {
        on_each_of(THOUSAND, |face, mut time| {
            time.set(100 * HOUR);
            let before = face.now();
            time.set(100 * HOUR - back);
            let mut granted = face.up_to(1_000).tokens();
            for _ in 0..5 {
                granted += u64::from(face.try_at(before, 1).is_ok());
                granted += face.up_to(1_000).tokens();
            }
            assert_eq!(granted, 1_000, "at one instant, {back} ns before the moment");
        });
    }
}

/// A reading within jitter of the clock decides: tokens that came after it are not there yet.
#[test]
fn a_reading_of_the_present_decides() {
    on_each_of(THOUSAND, |face, mut time| {
        time.set(HOUR);
        assert!(face.try_n(1_000).is_ok());
        time.advance(10 * MS);
        let ten = face.now();
        time.advance(10 * MS);
        assert_eq!(face.try_at(ten, 11).unwrap_err().remaining(), 10);
        assert_eq!(face.try_at(ten, 10).map(|granted| granted.remaining()), Ok(0));
        assert_eq!(face.peek().remaining(), 10);
        // The reading is behind the last decision by jitter, and earns nothing.
        assert!(face.try_n(4).is_ok());
        assert_eq!(face.try_at(ten, 6).map(|granted| granted.remaining()), Ok(0));
        assert_eq!(face.try_at(ten, 1).unwrap_err().retry_after(), Some(ns(11 * MS)));
    });
}

/// A reading that is ahead of the clock (from another core) earns its time, and no later reading
/// earns that time again.
#[test]
fn a_reading_ahead_is_not_earned_twice() {
    on_each_of(THOUSAND, |face, mut time| {
        time.set(HOUR);
        assert!(face.try_n(1_000).is_ok());
        time.advance(2 * SECOND);
        let ahead = face.now();
        time.set(HOUR);
        assert_eq!(face.try_at(ahead, 1_000).map(|granted| granted.remaining()), Ok(0));
        time.advance(2 * SECOND);
        assert_eq!(face.peek().remaining(), 0);
        time.advance(MS);
        assert_eq!(face.peek().remaining(), 1);
    });
}

#[test]
fn nothing_and_too_much_are_as_ever_at_any_reading() {
    on_each(Set { initial: Some(4), ..Set::of(Quota::per_second(10)) }, |face, mut time| {
        let readings = [0, SECOND, HOUR].map(|now| {
            time.set(now);
            face.now()
        });
        time.set(0);
        assert!(face.try_n(1).is_ok());
        for now in readings {
            assert!(face.try_at(now, 0).is_ok());
            for n in [11, u64::MAX] {
                assert_eq!(face.try_at(now, n).unwrap_err().retry_after(), None);
            }
        }
        assert_eq!(face.peek().remaining(), 3);
    });
}

//! Costs that are estimated first and settled later.

use tollgate::{Quota, RateLimiter, Reason, WhenFull};

use super::face::{Set, on_each, on_each_of};
use super::{InStore, Room, in_table};
use crate::support::{SECOND, Time, ns};

const BYTES: Quota = Quota::per_second(1_000);

#[test]
fn a_hold_is_settled_at_what_it_came_to() {
    for (actual, left, rest) in [
        (0, 1_000, 0),
        (1, 999, 0),
        (299, 701, 0),
        (300, 700, 0),
        (301, 699, 0),
        (1_000, 0, 0),
        (1_001, 0, 0),
        (2_000, 0, 0),
        // 1,000 tokens were there, and 1,000 are owed.
        (2_001, 0, 1),
        (u64::MAX, 0, u64::MAX - 2_000),
    ] {
        on_each_of(BYTES, |face, mut time| {
            let hold = face.hold(300).unwrap();
            assert_eq!((hold.granted().tokens(), hold.granted().remaining()), (300, 700));
            assert_eq!(hold.settle(actual), rest, "{actual}");
            assert_eq!(face.peek().remaining(), left, "{actual}");
            // The debt is paid before a caller is granted.
            let counted = actual - rest;
            if counted >= 1_000 {
                let wait = (counted - 1_000 + 1) * 1_000_000;
                assert_eq!(face.try_n(1).unwrap_err().retry_after(), Some(ns(wait)), "{actual}");
            }
            time.advance(3 * SECOND);
            assert!(face.try_n(1_000).is_ok() && face.try_n(1).is_err());
        });
    }
}

#[test]
fn without_debt_what_is_there_is_charged_and_the_rest_is_told() {
    on_each(Set { max_debt: Some(0), ..Set::of(BYTES) }, |face, mut time| {
        let hold = face.hold(300).unwrap();
        assert!(face.try_n(100).is_ok());
        assert_eq!((hold.settle(1_000), face.peek().remaining()), (100, 0));
        let hold = face.hold(0).unwrap();
        time.advance(5_500_000);
        assert_eq!((hold.settle(u64::MAX), face.peek().remaining()), (u64::MAX - 5, 0));
        time.advance(500_000);
        assert_eq!(face.peek().remaining(), 1, "the half of a token stays");
    });
}

#[test]
fn a_hold_that_is_dropped_stays_as_estimated() {
    on_each_of(BYTES, |face, _| {
        drop(face.hold(300));
        assert_eq!(face.peek().remaining(), 700);
        let [one, two] = [100, 200].map(|n| face.hold(n).unwrap());
        drop(two);
        assert_eq!((one.settle(0), face.peek().remaining()), (0, 500));
    });
}

#[test]
fn an_estimate_is_a_plain_take() {
    on_each_of(BYTES, |face, _| {
        let denied = face.hold(1_001).unwrap_err();
        assert_eq!((denied.reason(), denied.retry_after()), (Reason::TooMany, None));
        assert_eq!(face.hold(u64::MAX).unwrap_err().reason(), Reason::TooMany);
        drop(face.hold(900).unwrap());
        let denied = face.hold(101).unwrap_err();
        assert_eq!((denied.reason(), denied.remaining()), (Reason::Empty, 100));
        assert_eq!(denied.retry_after(), Some(ns(1_000_000)));
        assert_eq!(face.peek().remaining(), 100, "a refusal takes nothing");
    });
}

/// The bound on the debt is the burst in force.
#[test]
fn under_a_smaller_burst_less_is_charged() {
    on_each_of(BYTES, |face, _| {
        let hold = face.hold(300).unwrap();
        face.set_rule(BYTES.burst(400)).unwrap();
        // 400 of the 700 tokens are left, and 400 are owed.
        assert_eq!(hold.settle(u64::MAX), u64::MAX - 300 - 800);
        assert_eq!(face.try_n(1).unwrap_err().retry_after(), Some(ns(401_000_000)));
    });
}

/// The tokens over the actual cost come back only up to the burst.
#[test]
fn a_hold_that_is_settled_late_mints_nothing() {
    on_each_of(BYTES, |face, mut time| {
        let hold = face.hold(600).unwrap();
        time.advance(500_000_000);
        assert_eq!((hold.settle(100), face.peek().remaining()), (0, 1_000));
        assert!(face.try_n(1_000).is_ok() && face.try_n(1).is_err());
    });
}

/// A hold of 0 tokens is charged when its cost is known, as any other estimate.
#[test]
fn an_estimate_of_nothing_is_charged_when_it_is_known() {
    on_each_of(BYTES, |face, _| {
        assert_eq!((face.hold(0).unwrap().settle(0), face.peek().remaining()), (0, 1_000));
        assert_eq!(face.hold(0).unwrap().settle(400), 0, "it was never used before");
        assert_eq!(face.peek().remaining(), 600);
        assert_eq!((face.hold(0).unwrap().settle(100), face.peek().remaining()), (0, 500));
    });
}

/// The bucket is in use from the hold on: it goes to no other key before the hold is settled.
#[test]
fn an_estimate_of_nothing_keeps_its_bucket() {
    let (clock, mut time) = Time::new();
    let limiter = RateLimiter::<u64>::stored(BYTES).clock(clock).when_full(WhenFull::Deny).with_places(1);
    let hold = limiter.key(&1).n(0).hold().unwrap();
    time.advance(SECOND);
    assert_eq!(limiter.try_acquire(&2).map_err(|denied| denied.reason()), Err(Reason::Full));
    assert_eq!((hold.settle(400), limiter.peek(&1).remaining()), (0, 600));
}

/// A hold of 0 does not touch an existing bucket: with a reading that is behind, it would earn the
/// time again.
#[test]
fn an_estimate_of_nothing_moves_no_stamp() {
    on_each_of(BYTES, |face, mut time| {
        time.set(100 * SECOND);
        assert!(face.try_n(1_000).is_ok());
        time.set(99 * SECOND);
        assert_eq!(face.hold(0).unwrap().settle(0), 0);
        time.set(100 * SECOND);
        assert!(face.try_n(1).is_err());
    });
}

#[test]
fn a_hold_of_a_key_that_was_forgotten_changes_nothing() {
    let (clock, mut time) = Time::new();
    let limiter = RateLimiter::<u64>::stored(BYTES).clock(clock).build();
    for (actual, rest) in [(0, 0), (299, 0), (300, 0), (301, 1), (u64::MAX, u64::MAX - 300)] {
        let hold = limiter.key(&1).n(300).hold().unwrap();
        time.advance(10 * SECOND);
        assert_eq!(limiter.evict_idle(), 1);
        assert!(limiter.try_acquire_n(&1, 500).is_ok(), "it is another bucket");
        // A table cannot tell the two buckets apart. The hold is settled as if the key had not been
        // evicted, which changes no decision: an excess was earned anew meanwhile.
        let (rest_now, left) = match actual {
            _ if !in_table() => (rest, 500),
            u64::MAX => (u64::MAX - 300 - 1_500, 0),
            actual => (0, 500 - actual.saturating_sub(300)),
        };
        assert_eq!((hold.settle(actual), limiter.peek(&1).remaining()), (rest_now, left), "{actual}");
        assert!(limiter.remove(&1));
        let hold = limiter.key(&1).n(300).hold().unwrap();
        assert!(limiter.remove(&1));
        assert_eq!((hold.settle(actual), limiter.len()), (rest, 0), "{actual}");
    }
}

#[test]
fn without_room_the_policy_says_what_is_settled() {
    let built = |policy| {
        let (clock, _time) = Time::new();
        RateLimiter::<u64>::stored(BYTES).clock(clock).when_full(policy).with_places(0)
    };
    let share = built(WhenFull::Share);
    assert_eq!(share.key(&1).n(300).hold().unwrap().settle(100), 0);
    assert_eq!(share.peek(&1).remaining(), 700, "what comes back would be granted to others");
    assert_eq!(share.key(&1).n(300).hold().unwrap().settle(2_000), 300);
    assert_eq!(share.peek(&1).remaining(), 0);

    assert_eq!(built(WhenFull::Deny).key(&1).hold().unwrap_err().reason(), Reason::Full);

    let allow = built(WhenFull::Allow);
    let settled = [0, 300, 1_000].map(|actual| allow.key(&1).n(300).hold().unwrap().settle(actual));
    assert_eq!(settled, [0, 0, 700], "nothing counts it");
    for estimate in [0, 300] {
        assert_eq!(allow.key(&1).n(estimate).hold().unwrap().granted().remaining(), 1_000 - estimate);
    }
}

/// Nothing was counted for it, so the key's later bucket gets nothing of it.
#[test]
fn a_hold_that_was_allowed_for_want_of_room_gives_nothing_back() {
    let (clock, mut time) = Time::new();
    let builder = RateLimiter::<u64>::stored(Quota::per_hour(10)).clock(clock).when_full(WhenFull::Allow);
    let limiter = builder.with_places(1);
    assert!(limiter.try_acquire_n(&1, 10).is_ok());
    let holds = [0, 1].map(|_| limiter.key(&2).n(4).hold().unwrap());
    let reservation = limiter.key(&2).n(4).reserve().unwrap();
    assert_eq!(limiter.stats().allowed_full, 3);
    assert!(limiter.remove(&1));
    time.advance(3 * SECOND);
    assert!(limiter.try_acquire_n(&2, 10).is_ok());
    assert_eq!(limiter.stats().allowed_full, 3, "it has a bucket now");
    let [dropped, settled] = holds;
    drop((dropped, reservation));
    let _ = settled.settle(0);
    assert_eq!(limiter.peek(&2).remaining(), 0);
}

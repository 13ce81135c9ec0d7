//! Refunds, and takes of as many tokens as there are.

use tollgate::{Quota, RateLimiter, Reason, WhenFull};

use super::face::{Set, on_each, on_each_of};
use super::{InStore, Room, crowd};
use crate::support::{QUOTAS, Random, SECOND, Time, fill, ns, quota_text, unit_of};

const MS: u64 = 1_000_000;

fn listed() -> impl Iterator<Item = Quota> {
    QUOTAS.into_iter().map(|numbers| quota_text(numbers).parse().unwrap())
}

#[test]
fn what_is_given_back_fits_below_the_burst() {
    for quota in listed() {
        let burst = quota.capacity();
        on_each_of(quota, |face, _| {
            for back in [0, 1, burst / 2, burst - 1, burst, burst + 1, 1 << 63, u64::MAX] {
                assert_eq!(face.try_n(burst).map(|granted| granted.remaining()), Ok(0), "{quota}");
                face.refund(back);
                assert_eq!(face.peek().remaining(), back.min(burst), "{quota}: {back} given back");
                face.refund(u64::MAX);
                assert_eq!((face.peek().remaining(), face.peek().reset_after()), (burst, ns(0)));
            }
        });
    }
}

/// The deepest debt of the largest burst is given back in full.
#[test]
fn the_largest_debt_is_given_back_as_well() {
    let most = 1 << 40;
    let quota = Quota::per_second(100_000_000_000).burst(most);
    on_each(Set { max_debt: Some(most), ..Set::of(quota) }, |face, _| {
        assert!(face.try_n(most).is_ok());
        face.reserve(most).expect("the debt goes as far").commit();
        assert!(face.reserve(1).is_err());
        face.refund(u64::MAX);
        assert_eq!((face.peek().remaining(), face.peek().reset_after()), (most, ns(0)));
        assert!(face.try_n(most + 1).is_err() && face.try_n(most).is_ok());
    });
}

#[test]
fn a_bucket_that_was_never_used_gets_nothing() {
    let (clock, _time) = Time::new();
    let limiter = RateLimiter::<u64>::stored(Quota::per_hour(5)).clock(clock).build();
    for n in [0, 1, 5, u64::MAX] {
        limiter.refund(&1, n);
        limiter.pin().key(&1).n(n).refund();
        assert!(limiter.is_empty() && limiter.peek(&1).remaining() == 5);
    }
    on_each_of(Quota::per_hour(5), |face, _| {
        face.refund(3);
        assert_eq!((face.peek().remaining(), face.peek().reset_after()), (5, ns(0)));
        assert!(face.try_n(6).is_err() && face.try_n(5).is_ok() && face.try_n(1).is_err());
    });
}

#[test]
fn what_was_earned_of_a_token_stays() {
    on_each_of(Quota::per_second(1).burst(5), |face, mut time| {
        assert!(face.try_n(5).is_ok());
        time.advance(300 * MS);
        face.refund(2);
        assert_eq!((face.peek().remaining(), face.peek().reset_after()), (2, ns(2_700 * MS)));
        time.advance(700 * MS - 1);
        assert_eq!(face.peek().remaining(), 2);
        time.advance(1);
        assert_eq!(face.peek().remaining(), 3);
    });
}

#[test]
fn a_refund_shortens_the_debt() {
    on_each(Set { max_debt: Some(4), ..Set::of(Quota::per_second(10).burst(2)) }, |face, _| {
        assert!(face.try_n(2).is_ok());
        let promised = [2, 2].map(|n| face.reserve(n).unwrap().commit());
        assert_eq!(promised.map(|granted| granted.remaining()), [0, 0]);
        assert_eq!(face.try_n(1).unwrap_err().retry_after(), Some(ns(500 * MS)));
        face.refund(3);
        let denied = face.try_n(1).unwrap_err();
        assert_eq!((denied.remaining(), denied.retry_after()), (0, Some(ns(200 * MS))));
        assert_eq!(face.reserve(1).unwrap().delay(), ns(200 * MS));
        face.refund(1);
        assert_eq!(face.peek().remaining(), 0);
        face.refund(u64::MAX);
        assert_eq!(face.peek().remaining(), 2);
    });
}

/// A clock that is set back earns nothing: only the refund is there.
#[test]
fn a_refund_at_an_earlier_time_earns_nothing() {
    for back in [1, SECOND, 4 * SECOND, 60 * SECOND] {
        on_each_of(Quota::per_second(10).burst(5), |face, mut time| {
            time.set(100 * SECOND);
            assert!(face.try_n(5).is_ok());
            time.set(100 * SECOND - back);
            face.refund(2);
            assert_eq!(face.peek().remaining(), 2, "back by {back} ns");
            assert!(face.try_n(2).is_ok() && face.try_n(1).is_err());
        });
    }
}

#[test]
fn a_refund_to_a_forgotten_key_is_lost() {
    let (clock, mut time) = Time::new();
    let limiter = RateLimiter::<u64>::stored(Quota::per_second(5)).clock(clock).build();
    assert!(limiter.try_acquire_n(&1, 5).is_ok());
    time.advance(4 * SECOND);
    assert_eq!(limiter.evict_idle(), 1);
    limiter.refund(&1, 5);
    assert!(limiter.is_empty() && limiter.peek(&1).remaining() == 5);

    assert!(limiter.try_acquire_n(&1, 5).is_ok() && limiter.remove(&1));
    limiter.refund(&1, 5);
    limiter.pin().key(&1).n(u64::MAX).refund();
    assert!(limiter.is_empty());
    assert!(limiter.try_acquire_n(&1, 5).is_ok() && limiter.try_acquire(&1).is_err());
}

#[test]
fn a_refund_to_a_key_that_shares_is_lost() {
    for (policy, left) in [(WhenFull::Share, 2), (WhenFull::Deny, 5), (WhenFull::Allow, 5)] {
        let (clock, _time) = Time::new();
        let limiter = RateLimiter::<u64>::stored(Quota::per_hour(5)).clock(clock);
        let limiter = limiter.when_full(policy).with_places(0);
        assert_eq!(limiter.try_acquire_n(&1, 3).is_ok(), policy != WhenFull::Deny);
        limiter.refund(&1, 3);
        limiter.pin().key(&1).n(u64::MAX).refund();
        assert_eq!((limiter.peek(&1).remaining(), limiter.len()), (left, crowd()), "{policy:?}");
    }
}

/// The bucket grants each grant of the ideal bucket. It is ahead of the ideal bucket by at most a
/// tick's worth. So over any time at most the burst, the earned tokens and the refunds are granted.
#[test]
fn refunds_add_no_more_than_they_are() {
    for (row, quota) in listed().enumerate().filter(|(_, quota)| unit_of(*quota).scale == 0) {
        let token = i128::try_from(quota.period().as_nanos()).unwrap();
        let (rate, full) = (i128::from(quota.tokens()), i128::from(quota.capacity()) * token);
        let tick = (token >> unit_of(quota).fraction) + 1;
        on_each_of(quota, |face, mut time| {
            let mut random = Random(row as u64);
            let mut ideal = full;
            for step in 0..500 {
                let span = fill(quota).min(1 << 50) >> random.below(40);
                let passed = random.below(span + 1);
                time.advance(passed);
                ideal = (ideal + i128::from(passed) * rate).min(full);
                let part = random.below(10).min(quota.capacity().ilog2().into());
                let n = 1 + random.below(quota.capacity() >> part);
                let taken = match random.below(3) {
                    0 => {
                        face.refund(n);
                        ideal = (ideal + i128::from(n) * token).min(full);
                        0
                    }
                    1 => {
                        let taken = face.up_to(n).tokens();
                        assert!(
                            i128::from(taken) >= i128::from(n).min(ideal / token),
                            "{quota}, step {step}"
                        );
                        taken
                    }
                    _ => {
                        let granted = face.try_n(n).is_ok();
                        assert!(granted || ideal < i128::from(n) * token, "{quota}, step {step}: late");
                        if granted { n } else { 0 }
                    }
                };
                ideal -= i128::from(taken) * token;
                assert!(ideal >= -tick, "{quota}, step {step}: {taken} of {n} granted, ideally {ideal}");
            }
        });
    }
}

#[test]
fn as_many_as_there_are_are_taken() {
    for quota in listed() {
        let burst = quota.capacity();
        for n in [0, 1, burst / 2, burst - 1, burst, burst + 1, 1 << 63, u64::MAX] {
            on_each_of(quota, |face, _| {
                let mut left = burst;
                for _ in 0..4 {
                    let granted = face.up_to(n);
                    left -= n.min(left);
                    assert_eq!((granted.remaining(), face.peek().remaining()), (left, left), "{quota}: {n}");
                    assert_eq!(granted.reset_after(), face.peek().reset_after());
                }
                assert_eq!(face.up_to(u64::MAX).tokens(), left);
                assert_eq!((face.up_to(n).tokens(), face.peek().remaining()), (0, 0));
            });
        }
    }
}

/// Whole tokens are taken, and the earned part of the next one stays.
#[test]
fn what_is_left_of_a_token_is_not_taken() {
    on_each_of(Quota::per_second(10).burst(10), |face, mut time| {
        assert_eq!(face.up_to(10).tokens(), 10);
        let mut taken = 0;
        for _ in 0..1_000 {
            time.advance(37 * MS);
            taken += face.up_to(u64::MAX).tokens();
        }
        assert_eq!((time.now(), taken), (37 * SECOND, 370));
        time.advance(99_999_999);
        assert_eq!(face.up_to(10).tokens(), 0);
        time.advance(1);
        assert_eq!(face.up_to(10).tokens(), 1);
        // `acquire_up_to` takes nothing from a bucket in debt.
        let _ = face.reserve(3).unwrap().commit();
        assert_eq!(face.up_to(10).tokens(), 0);
        time.advance(400 * MS);
        assert_eq!(face.up_to(10).tokens(), 1);
    });
}

#[test]
fn without_room_the_policy_says_how_many() {
    for (policy, first, second) in [(WhenFull::Share, 4, 1), (WhenFull::Deny, 0, 0), (WhenFull::Allow, 4, 5)]
    {
        let (clock, _time) = Time::new();
        let limiter = RateLimiter::<u64>::stored(Quota::per_hour(5)).clock(clock);
        let limiter = limiter.when_full(policy).with_places(0);
        assert_eq!(limiter.key(&1).n(0).acquire_up_to().tokens(), 0);
        assert_eq!(limiter.key(&1).n(4).acquire_up_to().tokens(), first, "{policy:?}");
        assert_eq!(limiter.pin().key(&1).n(u64::MAX).acquire_up_to().tokens(), second, "{policy:?}");
        let stats = limiter.stats();
        let counted = [stats.shared, stats.refused_full, stats.allowed_full];
        assert_eq!((counted.iter().sum::<u64>(), counted[policy as usize]), (2, 2), "{policy:?}");
        if policy == WhenFull::Deny {
            assert_eq!(limiter.try_acquire(&1).unwrap_err().reason(), Reason::Full);
        }
    }
}

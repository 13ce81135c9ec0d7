// promise: law
//! Quotas that change while they are in use.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tollgate::{Clock, InvalidRule, Quota, RateLimiter, Reason, TokenBucket, WhenFull, Window};

use super::face::{Face, Set, on_each, on_each_of};
use super::{InStore, Room, with_one};
use crate::support::{DAY, HOUR, Random, SECOND, Time, nanos, ns, unit_of};

const MS: u64 = 1_000_000;

fn with_headroom(quota: Quota, headroom: Quota) -> Set {
    Set { headroom: Some(headroom), ..Set::of(quota) }
}

/// Sets a quota, and checks that it is reported.
fn set(face: &dyn Face, quota: Quota) {
    face.set_rule(quota).expect("there is room for it");
    assert_eq!(face.rule(), quota);
}

#[test]
fn tokens_in_hand_are_kept_and_clamped_at_the_next_use() {
    on_each_of(Quota::per_second(10), |face, _| {
        assert_eq!(face.rule(), Quota::per_second(10));
        assert!(face.try_n(4).is_ok());
        set(face, Quota::per_second(1).burst(10));
        assert_eq!(face.peek().remaining(), 6);
        set(face, Quota::per_second(10).burst(3));
        assert_eq!((face.peek().remaining(), face.peek().reset_after()), (3, ns(0)));
        assert!(face.try_n(4).is_err() && face.reserve(4).is_err());
        // A look and a refusal do not commit the smaller burst.
        set(face, Quota::per_second(10));
        assert_eq!(face.peek().remaining(), 6);
        set(face, Quota::per_second(10).burst(3));
        assert_eq!(face.try_n(1).map(|granted| granted.remaining()), Ok(2));
        set(face, Quota::per_second(10));
        assert_eq!(face.peek().remaining(), 2);
    });
}

#[test]
fn a_bucket_that_was_never_used_is_full_whatever_the_burst() {
    on_each(with_headroom(Quota::per_second(10), Quota::per_second(10).burst(20)), |face, _| {
        for burst in [20, 1, 10] {
            set(face, Quota::per_second(10).burst(burst));
            assert_eq!((face.peek().remaining(), face.peek().reset_after()), (burst, ns(0)));
        }
        assert!(face.try_n(11).is_err() && face.try_n(10).is_ok() && face.try_n(1).is_err());
    });
}

/// The word has the time of the last use, not that the bucket was full since.
#[test]
fn a_raised_burst_is_filled_by_the_time_before() {
    let small = Quota::per_second(10).burst(10);
    for (idle, left) in [(100, 1_000), (30, 300), (1, 10), (0, 0)] {
        on_each(with_headroom(small, small.burst(1_000)), |face, mut time| {
            assert!(face.try_n(10).is_ok());
            time.advance(idle * SECOND);
            assert_eq!(face.peek().remaining(), left.min(10));
            set(face, small.burst(1_000));
            assert_eq!(face.peek().remaining(), left);
        });
    }
}

/// A stamp may be ahead by jitter at the faster rate, which is a long time at the slower one.
#[test]
fn a_stamp_that_is_ahead_at_a_change_mints_nothing() {
    let fast = Quota::per_second(1_000_000).burst(10);
    on_each_of(fast, |face, mut time| {
        time.set(100 * SECOND);
        assert!(face.try_n(10).is_ok());
        time.set(97 * SECOND);
        set(face, Quota::per_hour(1).burst(10));
        assert!(face.try_n(1).is_err());
        // A tick may be lost or gained at a change.
        let tick = HOUR >> unit_of(fast).fraction;
        time.advance(HOUR - tick);
        assert!(face.try_n(1).is_err());
        time.advance(2 * tick);
        assert_eq!(face.try_n(1).map(|granted| granted.remaining()), Ok(0));
    });
}

/// Time counts at the old rate before the change and at the new one after it, to the nanosecond.
#[test]
fn what_was_earned_before_counts_at_the_old_rate() {
    on_each_of(Quota::per_second(10).burst(30), |face, mut time| {
        assert!(face.try_n(30).is_ok());
        time.set(SECOND);
        set(face, Quota::per_second(1).burst(30));
        assert_eq!(face.peek().remaining(), 10);
        let denied = face.try_n(12).unwrap_err();
        assert_eq!(denied.retry_after(), Some(ns(2 * SECOND)));
        time.set(3 * SECOND - 1);
        assert!(face.try_n(12).is_err());
        time.set(3 * SECOND);
        assert_eq!(face.try_n(12).map(|granted| granted.remaining()), Ok(0));
        set(face, Quota::per_second(10).burst(30));
        assert_eq!(face.try_n(1).unwrap_err().retry_after(), Some(ns(100 * MS)));
        time.advance(100 * MS - 1);
        assert!(face.try_n(1).is_err());
        time.advance(1);
        assert!(face.try_n(1).is_ok());
    });
}

/// A part of a token that was earned at one rate is worth as much at another, and its wait is
/// exact.
#[test]
fn a_token_that_is_earned_at_two_rates_comes_when_it_is_said() {
    on_each_of(Quota::per_second(10).burst(30), |face, mut time| {
        assert!(face.try_n(30).is_ok());
        time.set(50 * MS);
        set(face, Quota::per_second(1).burst(30));
        let wait = nanos(face.try_n(1).unwrap_err().retry_after().unwrap());
        let tick = SECOND >> 8;
        assert!(wait.abs_diff(500 * MS) <= tick, "half a token, and {wait} ns for the other half");
        time.advance(wait - 1);
        assert_eq!(face.try_n(1).unwrap_err().retry_after(), Some(ns(1)));
        time.advance(1);
        assert!(face.try_n(1).is_ok());
    });
}

#[test]
fn changes_in_a_row_add_up() {
    let rates = [1, 100, 7, 13, 50, 100, 1];
    on_each(
        with_headroom(Quota::per_second(10).burst(1_000), Quota::per_second(100).burst(1_000)),
        |face, mut time| {
            assert!(face.try_n(1_000).is_ok());
            time.advance(SECOND);
            for rate in rates {
                set(face, Quota::per_second(rate).burst(1_000));
                // Several changes at one time count as the last.
                set(face, Quota::per_second(99).burst(1_000));
                set(face, Quota::per_second(rate).burst(1_000));
                time.advance(SECOND);
            }
            let earned = 10 + rates.iter().sum::<u64>();
            assert_eq!(face.up_to(u64::MAX).tokens(), earned);
            let wait = nanos(face.try_n(1).unwrap_err().retry_after().unwrap());
            time.advance(wait - 1);
            assert_eq!(face.peek().remaining(), 0);
            time.advance(1);
            assert_eq!(face.peek().remaining(), 1);
        },
    );
}

/// The grants are the integral of the rates, to a tick's worth for each change.
#[test]
fn many_changes_keep_to_the_integral_of_the_rates() {
    let most = Quota::per_second(1_000).burst(500);
    let quotas = [
        most,
        Quota::per_second(7).burst(500),
        Quota::per_hour(999).burst(500),
        Quota::per_second(333).burst(500),
    ];
    // A token is a second and an hour, in nanoseconds.
    let token = i128::from(SECOND) * i128::from(HOUR);
    let rate = |quota: Quota| {
        i128::from(quota.tokens()) * token / i128::try_from(quota.period().as_nanos()).unwrap()
    };
    for seed in 0..20 {
        on_each(with_headroom(quotas[1], most), |face, mut time| {
            let mut random = Random(seed);
            // The debt has a bit of its own, and the unit is that of the largest quota.
            let tick = token >> unit_of(most).fraction;
            assert!(face.try_n(500).is_ok());
            let (mut quota, mut ideal, mut slack) = (quotas[1], 0, tick);
            for step in 0..2_000 {
                let span = 1 << random.below(31);
                let passed = random.below(span);
                time.advance(passed);
                ideal = (ideal + rate(quota) * i128::from(passed)).min(500 * token);
                if random.below(2) == 0 {
                    quota = quotas[random.below(4) as usize];
                    set(face, quota);
                    slack += tick;
                } else {
                    let taken = i128::from(face.up_to(1 + random.below(300)).tokens());
                    ideal -= taken * token;
                    assert!(ideal >= -slack, "seed {seed}, step {step}: {ideal} after {taken}");
                }
                let (left, exact) = (i128::from(face.peek().remaining()) * token, ideal.max(0));
                assert!(left <= exact + slack && left + token + slack > exact, "seed {seed}, step {step}");
            }
        });
    }
}

fn refused(set: Set, quota: Quota) -> String {
    let text = std::cell::RefCell::new(String::new());
    on_each(set, |face, mut time| {
        time.set(SECOND);
        assert!(face.try_n(2).is_ok());
        let (own, before) = (face.rule(), face.peek());
        let error: InvalidRule = face.set_rule(quota).unwrap_err();
        assert_eq!((face.rule(), face.peek()), (own, before), "it changes nothing");
        time.advance(HOUR);
        assert_eq!(face.peek().remaining(), own.capacity());
        *text.borrow_mut() = error.to_string();
    });
    text.into_inner()
}

#[test]
fn a_quota_without_room_is_refused_by_its_bound() {
    let text = refused(Set::of(Quota::per_second(100)), Quota::per_second(100).burst(156));
    assert!(text.starts_with("a burst of 156 is over the bound of 155 tokens"), "{text}");
    let text = refused(Set::of(Quota::per_second(100)), Quota::per_second(1_000_000_000_000).burst(100));
    assert!(text.contains("1000000000000 tokens every 1000000000 ns") && text.contains("2^46 ns"), "{text}");
    let owed = Set { max_debt: Some(5), ..Set::of(Quota::per_second(10).burst(3)) };
    let text = refused(owed, Quota::per(1, ns(1 << 60)).burst(3));
    assert!(text.contains("1 tokens every 1152921504606846976 ns") && text.contains("2^62 ns"), "{text}");
    let fast = Quota::per_second(1_000_000_000_000).burst(1_000_000_000);
    let text = refused(Set::of(fast), Quota::per_second(1_000).burst(1_000));
    assert!(text.starts_with("a burst of 1000 is under the bound of 536870912 tokens"), "{text}");
    // The bounds themselves are within.
    on_each_of(Quota::per_second(100), |face, _| set(face, Quota::per_second(100).burst(155)));
    on_each_of(fast, |face, _| set(face, Quota::per_second(1_000).burst(536_870_912)));
}

#[test]
fn headroom_makes_room_and_what_no_word_holds_is_an_error() {
    let (day, night) = (Quota::per_second(100), Quota::per_second(1_000_000).burst(64));
    on_each(with_headroom(day, night), |face, mut time| {
        for quota in [night, day, night] {
            set(face, quota);
            time.advance(10 * SECOND);
            assert_eq!(face.try_n(quota.capacity()).map(|granted| granted.remaining()), Ok(0));
            assert_eq!(face.peek().reset_after(), ns(quota.capacity() * SECOND / quota.tokens()));
        }
    });
    let (slow, fast) =
        (Quota::per_second(1_000).burst(1 << 40), Quota::per_second(1_000_000_000_000).burst(1));
    let errors = [
        TokenBucket::builder(slow).headroom(fast).unwrap_err(),
        RateLimiter::<u64>::stored(slow).headroom(fast).map(drop).unwrap_err(),
        TokenBucket::builder(fast).headroom(slow).unwrap_err(),
    ];
    for error in errors {
        // The message names the largest burst, at the fastest rate.
        let text = error.to_string();
        assert!(text.contains("1099511627776") && text.contains("2^46 ns"), "{text}");
    }
    let error = TokenBucket::builder(day).max_debt((1 << 40) + 1).unwrap_err();
    assert!(error.to_string().contains("debt of 1099511627777"), "{error}");
    assert!(RateLimiter::<u64>::stored(day).max_debt(u64::MAX).is_err());
    assert!(TokenBucket::builder(day).max_debt(1 << 20).is_ok());
}

#[test]
fn reservations_keep_the_times_they_were_promised() {
    on_each_of(Quota::per_second(10).burst(5), |face, mut time| {
        let _ = face.reserve(5).unwrap().commit();
        let start = face.now();
        let slots = [2, 2].map(|n| face.reserve(n).unwrap());
        time.advance(100 * MS);
        set(face, Quota::per_second(1).burst(5));
        assert_eq!(slots.each_ref().map(|slot| nanos(slot.ready_at().since(start))), [200 * MS, 400 * MS]);
        // A later reservation pays at the new rate: three tokens are owed.
        let late = face.reserve(1).unwrap();
        assert!(nanos(late.delay()).abs_diff(4 * SECOND) <= SECOND >> 8, "{:?}", late.delay());
        let [first, second] = slots;
        drop(late);
        drop(second);
        let _ = first.commit();
        // One token was earned, and the first reservation owes two.
        assert!(nanos(face.reserve(1).unwrap().delay()).abs_diff(2 * SECOND) <= SECOND >> 8);
    });
}

#[test]
fn a_key_that_was_full_stays_until_it_is_full_under_the_new_quota() {
    let (clock, mut time) = Time::new();
    let large = Quota::per_second(1).burst(10);
    let limiter = RateLimiter::<u64>::stored(Quota::per_second(1).burst(2)).headroom(large).unwrap();
    let limiter = limiter.clock(clock).build();
    assert!(limiter.try_acquire_n(&1, 2).is_ok());
    time.set(2 * SECOND);
    limiter.set_rule(large).unwrap();
    time.set(10 * SECOND);
    assert_eq!((limiter.peek(&1).remaining(), limiter.evict_idle()), (10, 0));
    time.set(12 * SECOND);
    assert_eq!(limiter.evict_idle(), 0, "and for the margin, in whole ticks and one more");
    time.set(12 * SECOND + (SECOND >> 4));
    assert_eq!(limiter.evict_idle(), 1);
}

/// No key is evicted within 2 s after a change, by `evict_idle` or to make room.
#[test]
fn a_change_of_quota_puts_eviction_off() {
    for changes in 1..4 {
        let (clock, mut time) = Time::new();
        let quota = Quota::per_second(1);
        let limiter = RateLimiter::<u64>::stored(quota).clock(clock).when_full(WhenFull::Deny).with_places(1);
        assert!(limiter.try_acquire(&1).is_ok());
        for _ in 0..changes {
            time.advance(DAY);
            limiter.set_rule(quota).unwrap();
            time.advance(2 * SECOND - 1);
            assert_eq!(limiter.evict_idle(), 0);
            assert_eq!(limiter.try_acquire(&2).unwrap_err().retry_after(), Some(ns(1)));
        }
        time.advance(1);
        assert_eq!(limiter.evict_idle(), with_one());
    }
}

/// A change whose clock panicked is in force, and the next is made on top of it.
#[test]
fn a_clock_that_panics_leaves_a_quota_in_force() {
    let (armed, nanos) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clock = {
        let (armed, nanos) = (armed.clone(), nanos.clone());
        Clock::from_fn(move || {
            assert!(!armed.swap(false, Relaxed), "armed");
            ns(nanos.load(Relaxed))
        })
    };
    let bucket = TokenBucket::builder(Quota::per_second(1_000)).initial_tokens(0).clock(clock).build();
    nanos.store(SECOND / 2, Relaxed);
    armed.store(true, Relaxed);
    let slow = Quota::per_second(10).burst(1_000);
    assert!(catch_unwind(AssertUnwindSafe(|| bucket.set_rule(slow))).is_err());
    assert_eq!(bucket.rule(), slow);
    armed.store(true, Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| bucket.set_rule(Quota::per_second(1)))).is_err());
    // The next reading starts it.
    assert_eq!(bucket.peek().remaining(), 500);
    nanos.store(SECOND + SECOND / 2, Relaxed);
    assert_eq!(bucket.peek().remaining(), 510);
    bucket.set_rule(Quota::per_second(1_000)).unwrap();
    nanos.store(SECOND * 7 / 4, Relaxed);
    assert_eq!(bucket.peek().remaining(), 760);
}

/// A hand that found no room rests until the first key is due by the old rule. It looks at few keys
/// meanwhile, and one of 50 is due earlier by the new rule.
#[test]
fn a_faster_rule_makes_room_for_a_new_key() {
    let (clock, mock) = Clock::mock();
    let (slow, fast) = (Quota::per_hour(1).burst(10), Quota::per_second(1).burst(10));
    let builder = RateLimiter::<u64>::builder(slow).headroom(fast).unwrap().clock(clock);
    let limiter = builder.max_keys(50).when_full(WhenFull::Deny).build();
    for key in 0..50 {
        assert!(limiter.try_acquire_n(&key, if key == 25 { 1 } else { 10 }).is_ok());
    }
    let full = [(); 2].map(|()| limiter.try_acquire(&50).unwrap_err());
    assert!(full.iter().all(|denied| denied.reason() == Reason::Full));
    assert!(full[1].retry_after() >= Some(ns(HOUR)), "{full:?}");
    limiter.set_rule(fast).unwrap();
    mock.advance(ns(4 * SECOND));
    assert!(limiter.try_acquire(&50).is_ok());
}

#[test]
fn headroom_and_plans_leave_room_for_each_other() {
    let minute = Window::per_minute(4);
    let of = |limit| minute.with_limit(limit).unwrap();
    let (first, second) = (Quota::per_second(10).burst(700), Quota::per_second(2_000));
    let windows = RateLimiter::<u64, _>::builder(minute).headroom(of(70)).unwrap().headroom(of(7)).unwrap();
    let windows = windows.plans([of(90), of(2)]).unwrap().build();
    let quotas = RateLimiter::<u64>::builder(Quota::per_second(10)).headroom(first).unwrap();
    let quotas = quotas.headroom(second).unwrap().plans([Quota::per_second(5)]).unwrap().build();
    assert!(windows.plan(of(90)).is_ok() && quotas.plan(first).is_ok());
    for limit in [70, 90] {
        windows.set_rule(of(limit)).unwrap();
        assert_eq!(windows.key(&limit).n(limit).try_acquire().unwrap().remaining(), 0);
    }
    for quota in [first, second] {
        quotas.set_rule(quota).unwrap();
        assert_eq!(quotas.rule(), quota);
    }
}

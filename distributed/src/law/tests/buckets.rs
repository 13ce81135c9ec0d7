//! The step of a bucket against the ideal one, in exact fractions of a token.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::Quota;
use tollgate_testing::quota_text;

use crate::law::amount::Amount;
use crate::law::bucket::Bucket;
use crate::law::spec::{MAX_SKEW_US, Spec};

/// An ideal bucket. Its unit is a token divided by the nanoseconds of the period.
struct Ideal {
    level: i128,
    at_us: u64,
}

impl Ideal {
    fn refill(&mut self, quota: Quota, now_us: u64) {
        let earned = i128::from(now_us - self.at_us) * 1_000 * i128::from(quota.tokens());
        self.level = (self.level + earned).min(i128::from(quota.capacity()) * period(quota));
        self.at_us = now_us;
    }
}

fn period(quota: Quota) -> i128 {
    quota.period().as_nanos() as i128
}

fn quotas() -> impl Strategy<Value = Quota> {
    let odd = (1_u64..2_000_000, 1_u64..100_000_000_000, 1_u64..5_000_000);
    let round = (1_u64..10_000, prop::sample::select(vec![1_u64, 60, 3_600]), 1_u64..10_000);
    prop_oneof![
        odd.prop_filter_map("a quota", |numbers| quota_text(numbers).parse().ok()),
        round.prop_filter_map("a quota", |(n, s, burst)| format!("{n}/{s}s burst {burst}").parse().ok()),
    ]
}

proptest! {
    /// A bucket with ticks of a microsecond equals the ideal one, to the credit. One with longer
    /// ticks is late by a tick at most, and never ahead.
    #[test]
    fn a_bucket_is_the_ideal_one(
        quota in quotas(), debt in 0_u64..100,
        calls in prop::collection::vec((0_u64..3_000_000, 0_i64..20, 0_i64..20), 1..100),
    ) {
        let Ok(spec) = Spec::new(quota, debt) else { return Ok(()) };
        let mut now_us = 1_800_000_000_000_000;
        let (mut stored, mut ideal) = (None, Ideal { level: i128::from(quota.capacity()) * period(quota), at_us: now_us });
        let mut exact = true;
        for (gap, min, more) in calls {
            now_us += gap;
            let (min, max) = (min.min(min + more), min + more);
            let amount = Amount { min, max, spent: 0, of_us: 0 };
            let (bucket, answer) = Bucket::step(stored, &spec, now_us, amount);
            ideal.refill(quota, now_us);
            let lag = ideal.level - i128::from(answer.granted) * period(quota);
            // The level in the unit of the ideal one: both are exact multiples of it.
            let level = i128::from(answer.credits) * period(quota) / i128::from(spec.per_token());
            let tick = i128::from(spec.per_tick()) * period(quota) / i128::from(spec.per_token());
            exact &= spec.tick_us() == 1;
            prop_assert!(level <= lag + 1, "{level} is ahead of {lag}");
            prop_assert!(level >= lag - if exact { 1 } else { tick + 1 }, "{level} is behind {lag}");
            prop_assert!((0..=max).contains(&answer.granted) && (answer.granted == 0 || answer.granted >= min));
            prop_assert_eq!(bucket.is_some(), answer.granted != 0);
            let there = spec.tokens(answer.credits + spec.debt_credits() as i64) as i64 + answer.granted;
            prop_assert_eq!(answer.granted > 0, max > 0 && there >= min && (debt == 0 || min > 0 || there >= 2) && there > 0);
            ideal.level = lag;
            if let Some(bucket) = bucket {
                stored = Some(bucket);
            }
        }
    }

    /// Any stored numbers and any amounts are answered.
    #[test]
    fn no_number_panics(
        quota in quotas(), debt in any::<u64>(), credits in any::<i64>(), last_us in any::<u64>(),
        per_token in any::<u64>(), now_us in any::<u64>(), min in any::<i64>(), max in any::<i64>(), spent in any::<u64>(),
    ) {
        for debt in [0, debt % 1_000, debt] {
            let Ok(spec) = Spec::new(quota, debt) else { continue };
            let stored = Some(Bucket { credits, last_us, per_token });
            let (_, answer) = Bucket::step(stored, &spec, now_us, Amount { min, max, spent, of_us: 0 });
            let (floor, capacity) = (spec.floor() as i64, spec.capacity() as i64);
            prop_assert!((-floor..=capacity).contains(&answer.credits), "{answer:?}");
        }
    }
}

#[test]
fn a_clock_that_goes_back_mints_nothing() {
    let spec = Spec::new(Quota::per_second(1_000).burst(10), 0).unwrap();
    let now = 1_800_000_000_000_000;
    let take = |stored, now_us, max| {
        Bucket::step(stored, &spec, now_us, Amount { min: max, max, spent: 0, of_us: 0 })
    };
    let (bucket, _) = take(None, now, 10);
    for back in [1, MAX_SKEW_US, MAX_SKEW_US + 1, 3_600_000_000] {
        let (again, answer) = take(bucket, now - back, 1);
        assert_eq!((answer.granted, answer.credits), (0, 0), "{back} us back");
        assert_eq!(again.is_some(), back > MAX_SKEW_US);
        // After a longer step the new time holds from the first call on, though it was refused.
        if again.is_some() {
            assert_eq!(take(again, now - back + 3_000, 3).1.granted, 3);
        }
    }
    // After a step back of a second the bucket waits.
    let (again, answer) = take(bucket, now - MAX_SKEW_US, 0);
    assert_eq!((again, answer.granted), (None, 0));
    assert_eq!(take(bucket, now + 2_000, 3).1.granted, 0);
    assert_eq!(take(bucket, now + 3_000, 3).1.granted, 3);
}

/// The part of a tick in which a bucket became full is not counted once more.
#[test]
fn a_full_bucket_keeps_no_part_of_a_tick() {
    let quota = Quota::per(61_117, Duration::from_nanos(95_695_401_632)).burst(752_936);
    let spec = Spec::new(quota, 54).unwrap();
    let (tick, now) = (spec.tick_us(), 1_800_000_000_000_000);
    assert!(tick > 2, "a tick of {tick} us");
    let take =
        |stored, now_us| Bucket::step(stored, &spec, now_us, Amount { min: 0, max: 1, spent: 0, of_us: 0 });
    let (stored, _) = take(None, now);
    let full = now + 10_000 * tick + tick - 1;
    let (stored, taken) = take(stored, full);
    assert_eq!(Bucket::step(stored, &spec, full + tick - 1, Amount::default()).1.credits, taken.credits);
    assert!(Bucket::step(stored, &spec, full + tick, Amount::default()).1.credits > taken.credits);
}

/// A fleet with two quotas keeps its tokens, but for at most a credit at each change.
#[test]
fn a_quota_that_changes_to_and_fro_costs_a_credit_a_change() {
    let specs = [Quota::per_second(7).burst(100), Quota::per_second(1_000).burst(100)]
        .map(|quota| Spec::new(quota, 0).unwrap());
    let now = 1_800_000_000_000_000;
    let (mut stored, mut granted) = (None, 0);
    for turn in 0..2_000 {
        let amount = Amount { min: 1, max: 1, spent: 0, of_us: 0 };
        let (bucket, answer) = Bucket::step(stored, &specs[turn % 2], now, amount);
        stored = bucket.or(stored);
        granted += answer.granted;
    }
    assert_eq!(granted, 100);
}

#[test]
fn spent_tokens_are_a_debt_of_a_burst_at_most() {
    let spec = Spec::new(Quota::per_second(10).burst(5), 0).unwrap();
    let now = 1_800_000_000_000_000;
    for (spent, level) in [(3, 2), (5, 0), (8, -3), (10, -5), (1_000_000, -5), (u64::MAX, -5)] {
        let (bucket, answer) = Bucket::step(None, &spec, now, Amount { min: 0, max: 0, spent, of_us: 0 });
        assert_eq!(answer.credits, level * spec.per_token() as i64, "{spent} spent");
        assert!(bucket.is_some());
    }
}

/// A debt under a larger quota is cut to the floor of a smaller one. Else the bucket would be full
/// after the time to fill from that floor, and the rest of the debt would be lost.
#[test]
fn a_debt_is_cut_to_the_floor_of_a_smaller_quota() {
    let spec = |burst| Spec::new(Quota::per_second(1_000).burst(burst), 0).unwrap();
    let now = 1_800_000_000_000_000;
    let look = |stored, now_us| Bucket::step(stored, &spec(10), now_us, Amount::default()).1.credits;
    let (stored, _) = Bucket::step(None, &spec(500), now, Amount { min: 0, max: 0, spent: 1_000, of_us: 0 });
    assert_eq!(look(stored, now), -10 * 1_000);
    assert_eq!(look(stored, now + 19_000), 9 * 1_000);
    assert_eq!(look(stored, now + 20_000), 10 * 1_000);
}

#[test]
fn ticks_are_as_long_as_they_must_be() {
    let of = |quota| Spec::new(quota, 0).map(|spec| (spec.tick_us(), spec.per_tick(), spec.per_token()));
    assert_eq!(of(Quota::per_second(1_000)), Ok((1, 1, 1_000)));
    assert_eq!(of(Quota::per_second(3)), Ok((1, 3, 1_000_000)));
    assert_eq!(of(Quota::per_day(7).burst(365_000)), Ok((1_000, 7, 86_400_000)));
    assert_eq!(of(Quota::per_second(1_000_000_000)), Ok((1, 1_000, 1)));
}

#[test]
fn no_limit_and_a_pause_are_no_rate_of_a_store() {
    for (quota, name) in [(Quota::UNLIMITED, "unlimited"), (Quota::BLOCKED, "blocked")] {
        let refused = Spec::new(quota, 0).unwrap_err().to_string();
        assert_eq!(refused, format!("a store counts the tokens of a rate, and {name} is none"));
    }
}

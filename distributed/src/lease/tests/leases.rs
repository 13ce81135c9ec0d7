//! A lease against the sum of its grants.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{Clock, Quota};

use crate::law::spec::Spec;
use crate::lease::demand::Demand;
use crate::lease::maturing::MaturingTokens;
use crate::lease::shadow::Shadow;
use crate::lease::terms::{BucketTerms, Leasing, Terms, TermsKind};

/// Leases of any size, for a horizon in milliseconds.
fn of(horizon: u64) -> Leasing {
    Leasing { horizon: Duration::from_millis(horizon), least: 1 }
}

/// Returns the terms of a bucket.
fn bucket(terms: &Terms) -> &BucketTerms {
    match &terms.kind {
        TermsKind::Bucket(bucket) => bucket,
        TermsKind::Window(_) => unreachable!("the rule is a quota"),
    }
}

fn spec(terms: &Terms) -> &Spec {
    &bucket(terms).spec
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u64),
    /// Tokens, and the nanoseconds from the end of the last ones until these begin to mature.
    PutLater(u64, u64),
    Take(u64),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => (0_u64..20).prop_map(Step::Put),
        2 => (1_u64..40, 0_u64..3_000_000).prop_map(|(n, gap)| Step::PutLater(n, gap)),
        6 => (1_u64..4).prop_map(Step::Take),
        6 => (0_u64..2_000_000).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    /// At each moment a lease has given at most the matured tokens of its grants, whatever their
    /// gaps. In the end it has given all.
    #[test]
    fn a_lease_gives_what_has_matured(steps in steps(), rate in 1_u64..5_000) {
        let (clock, mock) = Clock::mock();
        let quota = Quota::per_second(rate * 1_000).burst(20_000);
        let terms = Terms::new(quota.into(), of(100)).unwrap();
        let lease = MaturingTokens::new(bucket(&terms), clock.clone(), clock.now());
        let (mut now, mut taken, mut at_once) = (0_u64, 0_u64, 0_u64);
        // The start and the tokens of each grant, in nanoseconds.
        let mut later: Vec<(u64, u64)> = Vec::new();
        let matured = |later: &[(u64, u64)], now: u64| -> u64 {
            later.iter().map(|&(start, n)| terms.tokens_in(now.saturating_sub(start)).min(n)).sum()
        };
        for step in steps {
            match step {
                Step::Put(n) => {
                    at_once += n;
                    lease.put(n);
                }
                Step::PutLater(n, gap) => {
                    let end = later.last().map_or(now, |&(start, n)| (start + terms.time_of(n)).max(now));
                    later.push((end + gap, n));
                    lease.put_later(&terms, n, end + gap + terms.time_of(n));
                }
                Step::Take(n) => {
                    if lease.take(n).is_ok() {
                        taken += n;
                    }
                    // A token of each grant may be early by the nanosecond to which its end is
                    // rounded.
                    let most = at_once + matured(&later, now + 1);
                    prop_assert!(taken <= most, "{taken} taken of {most} at {now}");
                }
                Step::Wait(time) => {
                    now += time;
                    mock.advance(Duration::from_nanos(time));
                }
            }
        }
        mock.advance(Duration::from_secs(60));
        let all: u64 = at_once + later.iter().map(|(_, n)| n).sum::<u64>();
        prop_assert_eq!(taken + lease.take_up_to(u64::MAX), all);
        prop_assert_eq!(lease.held(&terms), 0);
    }

    /// The level of the last answer bounds the store: a wait ends when the tokens are there, and no
    /// later.
    #[test]
    fn a_shadow_refuses_until_the_tokens_are_there(
        tokens in 1_u64..1_000_000, period in 1_u64..10_000_000, burst in 1_u64..100_000,
        part in 0.0_f64..1.0, n in 1_u64..1_000, sent in 0_u64..10_000_000_000,
    ) {
        let quota = Quota::try_per(tokens, Duration::from_micros(period)).and_then(|quota| quota.try_burst(burst));
        prop_assume!(quota.is_ok());
        let Ok(terms) = Terms::new(quota.unwrap().into(), of(0)) else { return Ok(()) };
        let n = n.min(burst);
        let shadow = Shadow::default();
        prop_assert_eq!(shadow.wait(&terms, n, sent), None);
        let spec = spec(&terms);
        let credits = (spec.capacity() as f64 * part) as i64;
        shadow.tell(spec, credits, sent);
        let need = (n * spec.per_token()) as i64;
        let wait = shadow.wait(&terms, n, sent).unwrap_or_default();
        let exact = spec.wait(credits, need);
        // The wait is never longer than that of the store. Rounding makes it shorter by at most a
        // tick, 2 us and a part of 10^-9.
        prop_assert!(wait <= exact, "{wait:?} is longer than {exact:?}");
        let slack = Duration::from_micros(spec.tick_us()) + exact.mul_f64(1e-9) + Duration::from_micros(2);
        prop_assert!(wait + slack >= exact, "{wait:?} is shorter than {exact:?}");
        prop_assert_eq!(shadow.wait(&terms, n, sent + 1_000_000_000), None, "it lives for a second");
    }
}

/// The average is half of a demand that began a half-life ago, and forgets one that ended.
#[test]
fn a_demand_has_a_half_life() {
    const HALF: Duration = Duration::from_millis(100);
    let mut demand = Demand::new(0);
    let mut asked = 0;
    for step in 1..=100_u64 {
        asked += 5;
        demand.note(asked, step * 1_000_000, HALF);
    }
    let per_second = demand.rate() * 1e9;
    assert!((2_490.0..2_510.0).contains(&per_second), "{per_second}");
    demand.note(asked, 200_000_000, HALF);
    let after = demand.rate() * 1e9;
    assert!((after - per_second / 2.0).abs() < 10.0, "{after}");
}

#[test]
fn horizons_are_cut_to_half_of_the_burst() {
    let of = |quota: Quota, horizon| Terms::new(quota.into(), self::of(horizon)).unwrap();
    assert_eq!(of(Quota::per_second(1_000), 100).debt(), 100);
    assert_eq!(of(Quota::per_second(1_000).burst(50), 100).debt(), 25);
    assert_eq!(of(Quota::per_second(1_000), 0).debt(), 0);
    let terms = of(Quota::per_second(3), 100);
    assert_eq!(
        (terms.time_of(1), terms.tokens_in(333_333_333), terms.tokens_in(333_333_334)),
        (333_333_334, 0, 1)
    );
}

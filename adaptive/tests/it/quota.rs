//! A quota that adapts: its bounds whatever the controller says, and the default rule.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tollgate::{Clock, MockClock, Quota, RateLimiter, TokenBucket};
use tollgate_adaptive::{AdaptedLimiter, Adaptive, AdaptiveBuilder, Controller, Fraction, Next, Samples};

use tollgate_testing::cases;

const INTERVAL: Duration = Duration::from_millis(250);
const TARGET: Duration = Duration::from_millis(300);
const CEILING: Quota = Quota::per_second(1_000);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn begin() -> (AdaptiveBuilder, RateLimiter<u64>, MockClock) {
    let (clock, mock) = Clock::mock();
    let limiter = RateLimiter::builder(CEILING).clock(clock.clone()).build();
    let builder = Adaptive::new(&limiter, CEILING).unwrap().target(TARGET).clock(clock);
    (builder, limiter, mock)
}

/// Returns a share in units of 2^-32.
fn units(share: Fraction) -> u64 {
    share.of(1 << 32)
}

/// Returns the rate of a quota, as a share of the ceiling in units of 2^-32.
fn rate(quota: Quota) -> u64 {
    let worth = u128::from(quota.tokens()) * CEILING.period().as_nanos();
    u64::try_from((worth << 32) / (quota.period().as_nanos() * u128::from(CEILING.tokens()))).unwrap()
}

/// A controller that says anything, and notes its latest verdict.
struct Hostile {
    verdicts: Vec<Next>,
    at: usize,
    said: Arc<Mutex<Vec<Next>>>,
}

impl Controller for Hostile {
    fn next(&mut self, _: &Samples, _: Fraction) -> Next {
        let verdict = self.verdicts[self.at % self.verdicts.len()];
        self.at += 1;
        self.said.lock().unwrap().push(verdict);
        verdict
    }
}

fn verdicts() -> impl Strategy<Value = Next> {
    let share = any::<(u32, u32)>().prop_map(|(of, all)| Fraction::new(of, all.max(1)));
    let share = prop_oneof![4 => share, 1 => Just(Fraction::ALL), 1 => Just(Fraction::new(0, 1))];
    prop_oneof![
        8 => share.prop_map(Next::Set),
        1 => Just(Next::Wait),
        1 => Just(Next::Stay),
        1 => Just(Next::Return),
    ]
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_quota_moves_by_bounded_steps_within_its_bounds_whatever_the_controller_says(
        verdicts in prop::collection::vec(verdicts(), 1..40),
        parts in 1..1_000_u32,
        steps in prop::collection::vec((0..400_u64, 0..4_u8, 0..2_000_u64), 1..200),
    ) {
        let (builder, limiter, mock) = begin();
        let floor = Fraction::new(parts, 1_000);
        let said = Arc::new(Mutex::new(Vec::new()));
        let hostile = Hostile { verdicts, at: 0, said: Arc::clone(&said) };
        let adaptive = builder.floor(floor).unwrap().by(hostile).build().unwrap();
        let (mut before, mut quota) = (units(adaptive.share()), limiter.rule());
        let (mut now, mut changed) = (Duration::ZERO, None);
        prop_assert_eq!((before, quota), (1 << 32, CEILING));
        for (by, outcome, latency) in steps {
            mock.advance(ms(by));
            now += ms(by);
            let asked = said.lock().unwrap().len();
            match outcome {
                0 => adaptive.answered(ms(latency)),
                1 => adaptive.overloaded(ms(latency)),
                2 => adaptive.failed(),
                _ => adaptive.refused(),
            }
            let said = said.lock().unwrap();
            prop_assert!(said.len() <= asked + 1);
            let after = units(adaptive.share());
            // A share is shown in 2^-24 of the ceiling, and counted in sixteenths of that.
            const PART: u64 = 1 << 10;
            prop_assert!((units(floor).saturating_sub(PART)..=1 << 32).contains(&after));
            if said.last() != Some(&Next::Return) {
                let most = before + before / 8 + PART;
                prop_assert!((before / 2 - PART.min(before / 2)..=most).contains(&after), "{} to {}", before, after);
            }
            if limiter.rule() != quota {
                prop_assert!(said.len() == asked + 1, "no verdict, and another quota");
                prop_assert!(changed.is_none_or(|at| now - at >= INTERVAL));
                changed = Some(now);
                quota = limiter.rule();
            }
            // The limiter has the share, rounded down by a millionth at most.
            let now_rate = rate(quota);
            prop_assert!(now_rate <= after && after - now_rate <= after / 1_000_000 + 2, "{} {}", now_rate, after);
            prop_assert_eq!(quota.capacity(), (1_000 * after).div_ceil(1 << 32));
            before = after;
        }
    }
}

/// Notes answers at equal distances, for a time.
fn answer(adaptive: &Adaptive, mock: &MockClock, a_second: u64, latency: Duration, time: Duration) {
    let gap = Duration::from_secs(1) / a_second as u32;
    for _ in 0..time.as_nanos() / gap.as_nanos() {
        mock.advance(gap);
        adaptive.answered(latency);
    }
}

fn share_of(adaptive: &Adaptive) -> u64 {
    adaptive.share().of(1_000)
}

#[test]
fn a_breach_sets_seven_eighths_of_the_answers_and_a_refusal_in_time_adds_a_sixteenth() {
    let (builder, limiter, mock) = begin();
    let adaptive = builder.build().unwrap();
    // Half as many as the ceiling: 7/8 of 500 a second. The first 400 ms have no sample.
    answer(&adaptive, &mock, 500, ms(400), ms(500));
    let share = share_of(&adaptive);
    assert!((490..=500).contains(&share), "the first fall is by half: {share}");
    answer(&adaptive, &mock, 500, ms(400), ms(700));
    let share = share_of(&adaptive);
    assert!((430..=440).contains(&share), "{share}");
    assert_eq!(limiter.rule().capacity(), (1_000 * units(adaptive.share())).div_ceil(1 << 32));
    // In time, and no request was refused.
    answer(&adaptive, &mock, 500, ms(100), ms(2_000));
    assert_eq!(share_of(&adaptive), share);
    // In time, and a request was refused in each window.
    let before = units(adaptive.share());
    adaptive.refused();
    answer(&adaptive, &mock, 500, ms(10), ms(260));
    let after = units(adaptive.share());
    assert!(after.abs_diff(before + before / 16) <= 1 << 9, "{before} {after}");
}

#[test]
fn failures_are_answers_and_no_samples() {
    let (builder, _limiter, mock) = begin();
    let adaptive = builder.build().unwrap();
    for _ in 0..2_000 {
        mock.advance(ms(2));
        adaptive.failed();
    }
    assert_eq!(adaptive.share(), Fraction::ALL);
}

#[test]
fn requests_from_before_a_change_are_no_samples_of_it() {
    let (builder, _limiter, mock) = begin();
    let adaptive = builder.build().unwrap();
    mock.advance(Duration::from_secs(10));
    answer(&adaptive, &mock, 1_000, ms(400), ms(100));
    let share = adaptive.share();
    assert!(share < Fraction::ALL);
    // Slow, but admitted before the change: it is less than 400 ms ago.
    answer(&adaptive, &mock, 1_000, ms(400), ms(290));
    assert_eq!(adaptive.share(), share);
    answer(&adaptive, &mock, 1_000, ms(400), ms(500));
    assert!(adaptive.share() < share);
}

#[test]
fn refusals_without_an_answer_for_four_targets_halve_the_quota() {
    let (builder, _limiter, mock) = begin();
    let adaptive = builder.build().unwrap();
    for waited in 0..20 {
        let before = adaptive.share();
        mock.advance(ms(100));
        adaptive.refused();
        let patient = ms(100) * (waited + 1) <= 4 * TARGET + INTERVAL;
        assert_eq!(adaptive.share() == before, patient || before < Fraction::ALL, "{waited}");
    }
    assert_eq!(adaptive.share(), Fraction::HALF);
}

/// Calm windows end each silence, so a refusal just after them halves nothing.
#[test]
fn a_quota_is_not_taken_for_stalled_after_calm_windows() {
    let (builder, _limiter, mock) = begin();
    let adaptive = builder.build().unwrap();
    answer(&adaptive, &mock, 400, ms(100), ms(3_100));
    for _ in 0..5 {
        mock.advance(INTERVAL);
        adaptive.refused();
        assert_eq!(adaptive.share(), Fraction::ALL);
    }
}

#[test]
fn a_bucket_adapts_in_an_arc_and_in_a_static() {
    static BUCKET: TokenBucket = TokenBucket::new(CEILING);
    let shared = Arc::new(TokenBucket::new(Quota::per_second(10)));
    assert!(Adaptive::new(&BUCKET, CEILING).unwrap().build().is_ok());
    let adaptive = Adaptive::new(Arc::clone(&shared), Quota::per_second(20)).unwrap();
    assert!(adaptive.build().is_ok());
    assert_eq!(shared.rule(), Quota::per_second(20));
}

#[test]
fn bounds_that_do_not_hold_are_named() {
    let limiter = RateLimiter::<u64>::new(Quota::per_second(10));
    let error = Adaptive::new(&limiter, Quota::per_second(1_000)).unwrap_err().to_string();
    assert!(error.contains("1000"), "{error}");
    assert_eq!(limiter.rule(), Quota::per_second(10));
    let interval =
        |interval| Adaptive::new(&limiter, Quota::per_second(10)).unwrap().interval(interval).build();
    let error = interval(Duration::ZERO).unwrap_err().to_string();
    assert_eq!(error, "an interval in ns of 0 is out of bounds: 1000000 to 60000000000");
}

#[test]
fn the_text_of_an_adaptive_quota_has_its_ceiling_and_its_share() {
    let (builder, limiter, _mock) = begin();
    assert!(format!("{builder:?}").contains("ceiling: 1000/s burst 1000, target: 300ms"), "{builder:?}");
    let adaptive = builder.build().unwrap();
    let text = format!("{adaptive:?}");
    assert!(text.starts_with("Adaptive { ceiling: 1000/s burst 1000, parts: 16777216/16777216"), "{text}");
    assert!(format!("{:?}", AdaptedLimiter::from(limiter)).starts_with("AdaptedLimiter"));
}

/// Four late samples are enough if they are more than half, and a failure by a lack of capacity is
/// a late one. Of 32 samples a tenth is enough.
#[test]
fn four_late_samples_are_enough_if_they_are_more_than_half_or_a_tenth_of_32() {
    let few = [(3, 0, 0, false), (4, 4, 0, false), (4, 3, 0, true), (4, 0, 0, true), (0, 3, 4, true)];
    let cases = few.into_iter().chain([(8, 23, 0, false), (8, 24, 0, true)]);
    for (late, in_time, overloaded, falls) in cases {
        let (builder, _limiter, mock) = begin();
        let adaptive = builder.build().unwrap();
        mock.advance(ms(500));
        (0..late).for_each(|_| adaptive.answered(ms(400)));
        (0..in_time).for_each(|_| adaptive.answered(ms(50)));
        (0..overloaded).for_each(|_| adaptive.overloaded(ms(50)));
        mock.advance(INTERVAL);
        // No sample, but a look at the window.
        adaptive.failed();
        assert_eq!(adaptive.share() < Fraction::ALL, falls, "{late} {in_time} {overloaded}");
    }
}

/// The p90 may be as slow as the target.
#[test]
fn a_latency_of_the_target_is_in_time() {
    let target = Duration::from_nanos(1 << 28);
    for (late, falls) in [(3, false), (4, true)] {
        let (builder, _limiter, mock) = begin();
        let adaptive = builder.target(target).build().unwrap();
        mock.advance(ms(500));
        // The histogram counts them as below 2^28 ns, and reads the slowest as that.
        (late..32).for_each(|_| adaptive.answered(target - Duration::from_nanos(1)));
        (0..late).for_each(|_| adaptive.answered(ms(400)));
        mock.advance(INTERVAL);
        adaptive.failed();
        assert_eq!(adaptive.share() < Fraction::ALL, falls, "{late}");
    }
}

/// A part of a quota by the microsecond has its rate.
#[test]
fn a_half_of_a_short_period_is_half_of_the_rate() {
    let (clock, mock) = Clock::mock();
    let ceiling = Quota::per(1_000, Duration::from_micros(100)).burst(50_000);
    let limiter = RateLimiter::<u64>::builder(ceiling).clock(clock.clone()).build();
    let half = Hostile { verdicts: vec![Next::Set(Fraction::HALF)], at: 0, said: Arc::default() };
    let adaptive = Adaptive::new(&limiter, ceiling).unwrap().by(half).clock(clock).build().unwrap();
    mock.advance(INTERVAL);
    adaptive.refused();
    let quota = limiter.rule();
    let rate = quota.tokens() as f64 / quota.period().as_secs_f64();
    assert!((rate / 5e6 - 1.0).abs() < 1e-4 && quota.capacity() == 25_000, "{quota}");
}

/// A quota that is set by hand stays until the share changes. The controller goes on from it, and
/// returns to no share from before it.
#[test]
fn a_quota_that_is_set_by_hand_is_gone_on_from() {
    let to = |of| Next::Set(Fraction::new(of, 1_000));
    let list = vec![to(500), to(250), Next::Return, Next::Return, to(1_000)];
    let said = Arc::default();
    let (builder, limiter, mock) = begin();
    let adaptive = builder.by(Hostile { verdicts: list, at: 0, said }).build().unwrap();
    let decide = || {
        mock.advance(INTERVAL);
        adaptive.refused();
    };
    decide();
    assert_eq!(share_of(&adaptive), 500);
    let by_hand = Quota::per_second(125).burst(8);
    limiter.set_rule(by_hand).unwrap();
    // The decision for 250 is dropped.
    decide();
    assert_eq!((share_of(&adaptive), limiter.rule()), (125, by_hand));
    // The falls from before do not count, twice.
    for _ in 0..2 {
        decide();
        assert_eq!((share_of(&adaptive), limiter.rule()), (125, by_hand));
    }
    decide();
    assert_eq!(share_of(&adaptive), 140);
    assert_eq!(limiter.rule().capacity(), 141, "a share of the ceiling's burst again");
    // Out of the bounds, the nearest share is gone on from.
    for (by_hand, share_then) in [(Quota::per_hour(3), 31), (CEILING, 1_000)] {
        limiter.set_rule(by_hand).unwrap();
        while limiter.rule() == by_hand && share_of(&adaptive) != share_then {
            decide();
        }
        assert_eq!(limiter.rule(), by_hand);
    }
}

/// A quota that adapts is a share of a rate.
#[test]
fn no_limit_and_a_pause_have_no_share() {
    let limiter = RateLimiter::<u8>::new(Quota::per_hour(1));
    for gate in [Quota::UNLIMITED, Quota::BLOCKED] {
        assert!(Adaptive::new(&limiter, gate).is_err());
    }
}

#[test]
fn a_fraction_of_no_parts_and_a_limit_of_none_panic() {
    assert!(std::panic::catch_unwind(|| Fraction::new(1, 0)).is_err());
    assert!(std::panic::catch_unwind(|| tollgate_adaptive::Inflight::fixed(0)).is_err());
}

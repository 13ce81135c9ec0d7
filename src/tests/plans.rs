// promise: law
//! Plans: their earnings over many takes, compared with exact fractions; their waits; and their
//! errors.

use std::cell::Cell;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tollgate_testing::reference::Asked;
use tollgate_testing::reference::steps::nanos;
use tollgate_testing::{cases, size};

use super::reference::answers::answer;
use super::terms::{numbers, quotas};
use crate::rule::layout::{Layout, LayoutOptions, QuotaError, RawQuota};
use crate::rule::rate::Quota;
use crate::word::plan::{PlanStart, PlanTerms, Planned};
use crate::word::state::{Reading, Refill, State};
use crate::word::terms::Terms;
use crate::word::verb::Take;

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3_600 * SECOND;

/// The terms of a limiter, and a plan for that limiter.
#[derive(Clone, Copy, Debug)]
struct Pair {
    terms: Terms,
    plan: PlanTerms,
    own: Asked,
    asked: Asked,
}

/// Returns a quota in its public form, if a word of its own can hold it.
pub(super) fn public(quota @ (tokens, nanos, burst): Asked) -> Result<Quota, QuotaError> {
    Layout::of(numbers(quota), LayoutOptions::DEFAULT)?;
    Ok(Quota::checked(tokens, Duration::from_nanos(nanos), burst).expect("it has a layout"))
}

impl Pair {
    fn new(own: Asked, asked: Asked, head: Option<Asked>) -> Result<Pair, QuotaError> {
        let room = LayoutOptions { headroom: head.map(numbers), max_debt: None };
        let terms = Layout::of(numbers(own), room).map(|layout| Terms::in_layout(numbers(own), layout))?;
        let plan = PlanTerms::compile(7, public(asked)?, public(own)?, &terms, None)?;
        Ok(Pair { terms, plan, own, asked })
    }

    fn reading(&self, nanos: u64) -> Reading<Planned> {
        Reading::new(self.terms, nanos).under(self.plan)
    }

    /// Returns the units that a tick earns, as `up` and `down` of the fraction `up / down`.
    fn ratio(&self) -> (u128, u128) {
        let ((tokens, nanos, _), own) = (self.asked, self.own);
        let up = (u128::from(tokens) * u128::from(own.1)) << self.terms.widths.scale;
        (up, u128::from(own.0) * u128::from(nanos))
    }

    fn take(&self, state: &mut State, now: u64, n: u64) -> tollgate_testing::reference::Answer {
        let reading = self.reading(now);
        let (outcome, next) = Take::Exactly(n).apply(*state, &reading);
        *state = next.unwrap_or(*state);
        answer(Take::Exactly(n).decision((outcome, reading)))
    }
}

/// Returns the refill of a bucket under a plan, if the plan is accepted.
pub(super) fn pace_of(own: Asked, asked: Asked) -> Option<Planned> {
    Pair::new(own, asked, None).ok().map(|pair| pair.reading(0).refill)
}

/// Own quotas, plans beside them, and the headroom of the limiter.
const PAIRS: [(Asked, Asked, Option<Asked>); 12] = [
    ((100, SECOND, 200), (1_000, SECOND, 200), None),
    ((100, SECOND, 200), (7, SECOND, 20), None),
    ((1_000, SECOND, 1_000), (999, SECOND, 1_000), None),
    ((1_000, SECOND, 1_000), (1_001, SECOND, 500), None),
    ((1_000, SECOND, 1_000), (1_000, SECOND, 1_000), None),
    ((7, SECOND, 10), (333, SECOND, 3), Some((7, SECOND, 1_000))),
    ((12_345, SECOND, 777), (54_321, 7 * SECOND, 700), None),
    ((333_333, SECOND, 50), (1_000, HOUR, 50), None),
    ((1_000, HOUR, 1_000), (5, SECOND, 9_000), Some((1_000_000, SECOND, 10_000))),
    ((1_000_000_000, SECOND, 1_000_000), (777_777_777, SECOND, 900_000), None),
    ((1_000_000_000, SECOND, 1_000_000), (1_300_000_000, SECOND, 800_000), None),
    ((1_000_000, SECOND, 1_000_000), (1_000, SECOND, 1_000), None),
];

/// A generator of pseudo-random numbers, without a crate for it.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(below)) >> 64) as u64
    }
}

/// The tokens taken and left are the tokens earned: to less than a unit by ticks, and to a tick by
/// the clock. The error after 10^5 takes is no larger than after one. (Thousands of units would
/// have been lost by adding up `floor(k * elapsed)`.)
#[test]
fn a_plan_never_drifts() {
    for (seed, (own, asked, head)) in PAIRS.into_iter().enumerate() {
        let pair = Pair::new(own, asked, head).unwrap_or_else(|flaw| panic!("{own:?} {asked:?}: {flaw:?}"));
        let (Terms { empty_level, .. }, widths) = (pair.terms, pair.terms.widths);
        let (tokens, period, burst) = asked;
        let mut dice = Dice(seed as u64 + 1);
        let start = 1_000_000_007 + dice.roll(1 << 40);
        let (mut state, mut now, mut granted) = (State::FULL, start, 0_u128);
        assert!(pair.take(&mut state, now, burst).granted);
        let from = pair.terms.tick(start);
        let (up, down) = pair.ratio();
        // The takes ask for more than is earned, so the bucket is never full.
        let part = (burst / 16).clamp(1, 1 << 10);
        let pause = (period as f64 / tokens as f64 * part as f64 * 0.75) as u64 + 2;
        let steps = size(2_000_u32, 100_000);
        for step in 0..steps {
            now += dice.roll(pause);
            let level = pair.reading(now).view(state).level;
            assert!(level < pair.reading(now).refill.capacity(), "the bucket is full: {pair:?} {step}");
            let n = 1 + dice.roll(part);
            if pair.take(&mut state, now, n).granted {
                granted += u128::from(n);
            }
            let view = pair.reading(now).view(state);
            let has = (granted << widths.fraction) + u128::from(view.level - empty_level);
            // By ticks, `ticks * up / down` units are earned.
            let ticks = u128::from(pair.terms.tick(now) - from);
            let earned = ticks * up;
            let at = || format!("{pair:?}, step {step}: {has} of {earned} / {down}");
            assert!((has + 1) * down > earned && has * down < earned + down, "{}", at());
            // By the clock, the error is less than the units of a tick, and one unit.
            let ideal = (u128::from(now - start) * u128::from(tokens)) << widths.fraction;
            let tick = (up * u128::from(period)).div_ceil(down) + u128::from(period);
            let has = has * u128::from(period);
            assert!(has + tick > ideal && has < ideal + tick, "by the clock: {}", at());
        }
        assert!(granted > u128::from(steps / 10), "{pair:?}: {granted} granted");
    }
}

/// Checks that a wait is the least, in ticks and in nanoseconds. Returns whether a take was
/// refused.
fn waits_are_least(pair: Pair, now: u64, share: f64, taken: f64) -> Result<bool, TestCaseError> {
    let Pair { terms, own, asked: (_, _, burst), .. } = pair;
    // Readings near the wrap of the ticks are left out.
    let exact = (u128::from(now) * u128::from(own.0)) << terms.widths.fraction;
    let tick = exact / (u128::from(own.1) << terms.widths.scale);
    let refill = pair.reading(now).refill;
    if tick >> 62 != 0 || now >> 61 != 0 {
        return Ok(false);
    }
    let tick = terms.tick(now);
    let units = ((refill.capacity() as f64 * share) as u64).clamp(1, refill.capacity());
    let ticks = refill.ticks_for(tick, units);
    prop_assert!(
        refill.earned(tick + ticks, ticks) >= units,
        "{} ticks after {} do not earn {}",
        ticks,
        tick,
        units
    );
    prop_assert!(ticks > 0 && refill.earned(tick + ticks - 1, ticks - 1) < units);

    let of_burst = |part: f64| ((part * burst as f64) as u64).clamp(1, burst);
    let (taken, n) = (of_burst(taken), of_burst(share));
    let mut state = State::FULL;
    prop_assert!(pair.take(&mut state, now, taken).granted);
    let answer = pair.take(&mut state, now, n);
    let Some(wait) = answer.retry_after else { return Ok(false) };
    prop_assert!(!pair.take(&mut state.clone(), now + wait - 1, n).granted, "{} - 1 ns at {}", wait, now);
    prop_assert!(pair.take(&mut state.clone(), now + wait, n).granted, "{} ns at {}", wait, now);
    Ok(true)
}

pub(super) fn any_pair() -> impl Strategy<Value = (Asked, Asked)> {
    // Most pairs are near each other, because others are hardly ever accepted.
    let near = (quotas(), -6.0..6.0_f64, -4.0..1.0_f64).prop_map(|(own, rate, size)| {
        let times = |n: u64, by: f64| ((n as f64 * by.exp2()) as u64).max(1);
        (own, (times(own.0, rate).min(1 << 44), own.1, times(own.2, size).min(1 << 40)))
    });
    let listed = (0..PAIRS.len()).prop_map(|row| (PAIRS[row].0, PAIRS[row].1));
    let own = ((quotas(), quotas()), 0..2_u8).prop_map(|((own, other), _)| (own, other));
    prop_oneof![6 => near, 2 => listed, 1 => own]
}

#[test]
fn the_wait_of_a_plan_is_exact_both_ways() {
    let (tried, waits) = (Cell::new(0), Cell::new(0));
    let times = prop_oneof![0..1_u64 << 40, 0..1_u64 << 58];
    let all = (any_pair(), times, 0.0..1.0_f64, 0.0..1.0_f64);
    let found = TestRunner::new(cases(20_000)).run(&all, |((own, asked), now, share, taken)| {
        tried.set(tried.get() + 1);
        if let Ok(pair) = Pair::new(own, asked, None)
            && waits_are_least(pair, now, share, taken)?
        {
            waits.set(waits.get() + 1);
        }
        Ok(())
    });
    assert!(found.is_ok(), "{found:?}");
    assert!(waits.get() > tried.get() / 8, "{} waits in {} cases", waits.get(), tried.get());
}

proptest! {
    #![proptest_config(cases(20_000))]

    /// An accepted plan keeps its documented bounds: the burst fits, a tick earns at most 1/128 of
    /// it, and the bucket fills in a 64th of the range. A refused plan is over the bound that its
    /// error names.
    #[test]
    fn a_plan_is_refused_by_its_bounds((own, asked) in any_pair()) {
        let (Ok(layout), Ok(_)) = (Layout::of(numbers(own), LayoutOptions::DEFAULT), public(asked)) else { return Ok(()) };
        let terms = Terms::in_layout(numbers(own), layout);
        let (tokens, nanos, burst) = asked;
        let down = u128::from(own.0) * u128::from(nanos);
        let up = u128::from(tokens) * u128::from(own.1);
        // Above these numbers the products would overflow. Every bound is met well below them.
        if up >> 60 != 0 || down >> 60 != 0 {
            return Ok(());
        }
        let up = up << terms.widths.scale;
        let units = u128::from(burst) << terms.widths.fraction;
        let fits = burst <= layout.most_burst();
        let fine = up.checked_mul(128).is_some_and(|most| units.checked_mul(down).is_none_or(|u| most <= u));
        let capacity = u128::from(terms.empty_level) + units;
        // The time to fill, in ticks, is `capacity * down / up`.
        let range = u128::from(terms.mask) + 1;
        let quick = |slack: u128| {
            let fill = capacity.checked_mul(down).map(|fill| fill / up);
            fill.is_some_and(|fill| fill + slack <= range / 64)
        };
        match Pair::new(own, asked, None) {
            Ok(_) => prop_assert!(fits && fine && quick(0), "accepted: {} {} {}", fits, fine, quick(0)),
            Err(QuotaError::BurstTooWide(named, most)) => {
                prop_assert_eq!((named, most), (burst, layout.most_burst()));
                prop_assert!(!fits);
                let smaller = Pair::new(own, (tokens, nanos, most), None);
                prop_assert!(!matches!(smaller, Err(QuotaError::BurstTooWide(..))), "{:?}", smaller);
            }
            Err(QuotaError::PlanTickTooCoarse(RawQuota { tokens: t, nanos: p, burst: b })) => {
                prop_assert_eq!((t, p, b), asked);
                // Rounding up makes the factor larger by at most 2^-63 of it.
                prop_assert!(!fine || up * 128 + (up >> 55) + 1 > units * down, "it is fine");
            }
            Err(QuotaError::PlanFillsTooSlowly(RawQuota { tokens: t, nanos: p, burst: b })) => {
                prop_assert_eq!((t, p, b), asked);
                prop_assert!(!quick(2), "it is quick");
            }
            Err(flaw) => prop_assert!(false, "{:?}", flaw),
        }
    }
}

#[test]
fn plans_that_do_not_fit_are_refused() {
    let refused = |own, asked| Pair::new(own, asked, None).unwrap_err();
    let own = (100, SECOND, 200);
    assert!(matches!(refused(own, (100, SECOND, 400)), QuotaError::BurstTooWide(400, 311)));
    assert!(matches!(
        refused(own, (1_000_000_000, SECOND, 200)),
        QuotaError::PlanTickTooCoarse(RawQuota { burst: 200, .. })
    ));
    assert!(matches!(
        refused((1_000_000, SECOND, 100), (1, 24 * HOUR, 100)),
        QuotaError::PlanFillsTooSlowly(RawQuota { burst: 100, .. })
    ));
    // Headroom makes room for a larger burst.
    let head = Some((1_000_000_000, SECOND, 400));
    assert!(Pair::new(own, (100, SECOND, 400), head).is_ok());
    let same = Pair::new((1_000_000, SECOND, 1_000_000), (1_000_000, SECOND, 1_000_000), None).unwrap();
    assert_eq!(same.plan.quota().capacity(), 1_000_000);
}

/// A key that moves between plans keeps its tokens, as far as the smaller burst allows. It earns at
/// the plan of the call.
#[test]
fn a_key_that_moves_between_plans_keeps_its_tokens() {
    let own = (1_000, SECOND, 1_000);
    let gold = Pair::new(own, (2_000, SECOND, 1_000), None).unwrap();
    let silver = Pair::new(own, (10, SECOND, 100), None).unwrap();
    let mut state = State::FULL;
    let mut now = 77 * SECOND;
    assert_eq!(gold.take(&mut state, now, 300).remaining, 700);
    // A look under another plan changes nothing.
    assert_eq!(silver.take(&mut state, now, 0).remaining, 100);
    assert_eq!(gold.take(&mut state, now, 0).remaining, 700);
    // The limiter's own quota counts like a plan.
    let reading = Reading::new(gold.terms, now);
    let (outcome, next) = Take::Exactly(650).apply(state, &reading);
    assert!(outcome.granted);
    state = next.unwrap();
    assert_eq!(gold.take(&mut state, now, 0).remaining, 50);
    assert_eq!(silver.take(&mut state, now, 1).remaining, 49);
    now += SECOND / 10;
    assert_eq!(silver.take(&mut state, now, 0).remaining, 50);
    assert_eq!(gold.take(&mut state, now, 0).remaining, 249);
    assert_eq!(gold.take(&mut state, now, 249).remaining, 0);
    let wait = silver.take(&mut state, now, 1).retry_after.unwrap();
    assert!(wait.abs_diff(SECOND / 10) <= 1_000_000, "{wait}");
    assert_eq!(nanos(Duration::from_nanos(wait)), wait);
    // A burst that was taken under the smaller plan is gone under the larger one, too.
    now += 3_600 * SECOND;
    assert_eq!(silver.take(&mut state, now, 100).remaining, 0);
    assert_eq!(gold.take(&mut state, now, 1).retry_after.map(|wait| wait.div_ceil(1_000)), Some(500));
}

/// A plan that was made after a change, before the ticks wrap, goes on earning after they have
/// wrapped. Ticks wrap where a nanosecond has many.
#[test]
fn a_plan_earns_on_when_ticks_have_wrapped() {
    let (own, asked) = ((100, SECOND, 100), (10, SECOND, 50));
    let pair = Pair::new(own, asked, None).unwrap();
    let at = |tick: u64, nanos| Reading { refill: Terms { base: tick, ..pair.terms }, at: nanos, tick };
    let earned = |plan, tick, nanos, passed| at(tick, nanos).under(plan).refill.earned(tick, passed);
    let wrap = 1 << 63;
    for start in [wrap - 1_000, u64::MAX - 1_000] {
        let since = PlanStart { nanos: 0, tick: start };
        let late =
            PlanTerms::compile(7, pair.plan.quota(), public(own).unwrap(), &pair.terms, Some(since)).unwrap();
        let by = |by: u64, passed| earned(late, start.wrapping_add(by), by, passed);
        for ticks in [500, 1_000, 1_500, 1 << 20] {
            let full = earned(pair.plan, 1 << 50, 0, ticks);
            for passed in [ticks, ticks + 1, 1 << 41, 1 << 61] {
                assert!(by(ticks, passed).abs_diff(full) <= 1, "{ticks} ticks after {start}: not {full}");
            }
        }
        // Half a turn later the start looks as if it were in the future.
        let ours = earned(late, start.wrapping_add(wrap / 2 + 7), 1 << 62, 640);
        assert!(ours.abs_diff(earned(pair.plan, 1 << 50, 0, 640)) <= 1, "{ours} of 640 ticks");
        // A whole turn later the start looks as if it were now: a plan may be late then, not early.
        assert_eq!(earned(late, start.wrapping_add(wrap), wrap, 640), 0);
    }
}

/// The ticks before a change are of another quota, and a plan made after the change earns none of
/// them. A reading behind the change gets a wait that counts from the change on.
#[test]
fn a_plan_earns_nothing_before_its_start() {
    let (own, asked) = ((1_000, SECOND, 1_000), (10_000, SECOND, 1_000));
    let pair = Pair::new(own, asked, None).unwrap();
    let start = 77 * SECOND;
    let since = PlanStart { nanos: start, tick: pair.terms.tick(start) };
    let late =
        PlanTerms::compile(7, pair.plan.quota(), public(own).unwrap(), &pair.terms, Some(since)).unwrap();
    let read = |nanos| Reading::new(pair.terms, nanos).under(late);
    let drained = |nanos| State::pack(&pair.terms, pair.terms.empty_level, pair.terms.tick(nanos));
    for behind in [0, 1, 3_000, 50_000_000, 10 * SECOND] {
        let now = start - behind;
        let (outcome, next) = Take::Exactly(1).apply(drained(start - 20 * SECOND), &read(now));
        assert!(!outcome.granted && next.is_none(), "{behind} ns before: {outcome:?}");
        let wait = answer(Take::Exactly(1).decision((outcome, read(now)))).retry_after.unwrap();
        let takes = |at| Take::Exactly(1).apply(drained(start - 20 * SECOND), &read(at)).0.granted;
        assert!(takes(now + wait) && !takes(now + wait - 1), "{behind} ns before: {wait} ns");
        // The wait is the time until the start, the time of a token, and at most a tick.
        assert!(
            (behind..=behind + SECOND / 10_000 + SECOND / 256_000 + 1).contains(&wait),
            "{behind} ns before: {wait} ns"
        );
    }
    // After a later change to a faster quota, a reading behind that change may have a tick from
    // before the plan's start.
    let reading = Reading { refill: pair.terms, at: start + 5, tick: since.tick - 1_000 }.under(late);
    assert_eq!(reading.refill.earned(reading.tick, 500), 0);
    assert_eq!(
        reading.refill.earned(reading.tick + 1_100, 500),
        reading.refill.earned(since.tick + 100, 100)
    );
}

/// A plan that is far faster than the quota is refused as too coarse, and a far slower one as too
/// slow.
#[test]
fn a_plan_that_is_far_from_the_quota_is_named_so() {
    let refused = Pair::new((1, 1 << 61, 1), (1_000_000_000_000, SECOND, 1), None).unwrap_err();
    assert!(matches!(refused, QuotaError::PlanTickTooCoarse(_)), "{refused:?}");
    for tokens in [1, 2, 4, 8, 16, 1_000] {
        let refused = Pair::new((tokens, 1, 1), (1, 1 << 62, 1), None).unwrap_err();
        assert!(matches!(refused, QuotaError::PlanFillsTooSlowly(_)), "{refused:?}");
    }
}

/// A plan exactly at a bound is accepted: a tick is worth a 128th of the burst, or the bucket fills
/// in a 64th of the range.
#[test]
fn a_plan_at_its_bounds_is_accepted() {
    let own = (1, SECOND, 1);
    let terms = Pair::new(own, own, None).unwrap().terms;
    let bits = (terms.widths.fraction, terms.widths.stamp, terms.empty_level);
    assert_eq!(bits, (16, 46, 1 << 16), "the bounds below are those of this layout");
    // A tick is worth 2^9 units, which are 2^-7 of a token.
    assert!(Pair::new(own, (512, SECOND, 1), None).is_ok());
    assert!(matches!(Pair::new(own, (513, SECOND, 1), None), Err(QuotaError::PlanTickTooCoarse(_))));
    // The bucket has 2^17 units, with its debt. At 2^-23 of a unit a tick, it fills in 2^40 ticks.
    let period = SECOND << 23;
    assert!(Pair::new(own, (1, period, 1), None).is_ok());
    assert!(matches!(Pair::new(own, (1, period + 1, 1), None), Err(QuotaError::PlanFillsTooSlowly(_))));
}

/// A ratio of 1 - 2^-70 is rounded up to 1, which needs one bit more than its factor has.
#[test]
fn a_ratio_may_be_rounded_up_to_another_bit() {
    let power = 1 << 35;
    let pair = Pair::new((power, power + 1, 1 << 30), (power - 1, power, 1 << 30), None).unwrap();
    assert_eq!(pair.ratio().0 + (1 << pair.terms.widths.scale), pair.ratio().1 << pair.terms.widths.scale);
    let earned = pair.reading(0).refill.earned(1 << 20, 1 << 20);
    assert_eq!(earned, 1 << (20 + pair.terms.widths.scale));
}

/// The quota that a plan was made of stands for one that no quota can be.
#[test]
fn a_plan_beyond_the_bounds_of_a_quota_tells_its_own() {
    let asked = (5, HOUR, 10);
    let plan = Pair::new((1, HOUR, 5), asked, Some(asked)).unwrap().plan;
    for (now, told) in [
        (Quota::per_hour(3), Quota::per_hour(15).burst(10)),
        (Quota::per_second(10_u64.pow(12)), plan.quota()),
        (Quota::every(Duration::from_nanos(1 << 62)), plan.quota()),
    ] {
        assert_eq!(plan.in_force(now), told, "{now}");
    }
}

// promise: inflight
//! The controller of a limit on requests in flight: its promise, for any window.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use proptest::prelude::*;

use crate::controller::controllers::{Bounds, Move, PLACE, TargetController, TargetRule};
use crate::signals::histogram::{LatencyCounts, bucket_of};
use crate::signals::samples::Samples;
use crate::{Controller, Fraction, Inflight, Next, Priority};
use tollgate::Clock;
use tollgate_testing::cases;

const MILLI: u64 = 1_000_000;

/// Returns a window with these numbers of answers at these latencies.
fn window(answers: &[(u64, u32)], overloaded: u64, refused: bool, peak: u32, now: u64) -> Samples {
    let mut answered = LatencyCounts::NONE;
    for (nanos, count) in answers {
        let counted = &mut answered.0[bucket_of(*nanos)];
        *counted = counted.saturating_add(*count);
    }
    Samples { answered, overloaded, refused, peak, now, unchanged: now / 2, ..Samples::nothing() }
}

fn windows() -> impl Strategy<Value = Samples> {
    let latency = prop_oneof![
        1_u64..1 << 20,
        1_u64 << 20..1 << 30,
        Just(u64::MAX),
        (0_u64..700).prop_map(|ms| ms * MILLI)
    ];
    let count = prop_oneof![0_u32..40, Just(u32::MAX)];
    let answers = prop::collection::vec((latency, count), 0..4);
    let overloaded = prop_oneof![Just(0_u64), 1_u64..50, Just(u64::from(u32::MAX))];
    let peak = prop_oneof![0_u32..100, Just(u32::MAX)];
    (answers, overloaded, any::<bool>(), peak, 0_u64..1 << 62).prop_map(
        |(answers, overloaded, refused, peak, now)| window(&answers, overloaded, refused, peak, now),
    )
}

fn rules() -> impl Strategy<Value = (TargetRule, Bounds, u64)> {
    let target = prop_oneof![1_000_u64..1 << 36, Just(300 * MILLI)];
    let ceiling = prop_oneof![1_u64..2_000, Just(u64::from(u32::MAX))];
    (target, ceiling, 0_u64..1 << 32, 0_u64..1 << 32, 1_u16..1_000, 1_u64..1_000).prop_map(
        |(target, ceiling, floor, start, quantile, slack)| {
            let floor = 1 + floor % ceiling;
            let start = floor + start % (ceiling - floor + 1);
            let rule = TargetRule { target, interval: 250 * MILLI, quantile, slack, samples: 32 };
            (rule, Bounds { floor: floor * PLACE, ceiling: ceiling * PLACE }, start * PLACE)
        },
    )
}

fn target_controller() -> (TargetController, Bounds) {
    let rule =
        TargetRule { target: 300 * MILLI, interval: 250 * MILLI, quantile: 900, slack: 2, samples: 32 };
    (TargetController::new(rule), Bounds { floor: PLACE, ceiling: 1_000 * PLACE })
}

proptest! {
    #![proptest_config(cases(5_000))]

    #[test]
    fn a_limit_keeps_its_bounds_and_changes_by_a_half_or_an_eighth(
        (rule, bounds, start) in rules(),
        all in prop::collection::vec(windows(), 1..40),
    ) {
        let (mut controller, mut limit) = (TargetController::new(rule), start);
        // The limits from which the latest falls began.
        let (mut highest, mut before) = (start, 0);
        for samples in all {
            // The longer target may end with this window.
            let target = if samples.now >= controller.until { rule.target } else { controller.target };
            let breach = samples.slower_than(target) > 0 || samples.nanos_at(rule.quantile).is_some_and(|slow| slow > target);
            let next = match controller.next(&samples, limit, bounds) {
                Move::Wait | Move::Stay => limit,
                Move::To(wanted) => {
                    let next = bounds.next(limit, wanted);
                    prop_assert!(next * 2 >= limit && next <= limit + limit / 8 + PLACE, "{limit} to {next}");
                    let stalled = samples.refused && samples.count() == 0;
                    prop_assert!(next >= limit || breach || stalled, "{limit} falls to {next} without a breach");
                    next
                }
                Move::Back(to) => {
                    let flying = limit.min(u64::from(samples.peak.max(1)) * PLACE);
                    prop_assert!(
                        flying * if before > 0 { 2 } else { 4 } <= highest || limit <= bounds.floor,
                        "{flying} of {highest} is no quarter, and no half after {before} falls in vain"
                    );
                    prop_assert!(to <= highest, "{to} is above {highest}");
                    before += 1;
                    to.clamp(bounds.floor, bounds.ceiling)
                }
            };
            prop_assert!((bounds.floor..=bounds.ceiling).contains(&next), "{next} of {bounds:?}");
            prop_assert!((rule.target..=rule.target.saturating_mul(rule.slack)).contains(&controller.target));
            highest = highest.max(next);
            limit = next;
        }
    }
}

#[test]
fn a_calm_limit_stays_and_a_limit_that_is_used_up_rises() {
    let (mut controller, bounds) = target_controller();
    let answers = [(50 * MILLI, 40)];
    assert_eq!(controller.next(&window(&answers, 0, false, 10, 0), 20 * PLACE, bounds), Move::Stay);
    for (refused, peak) in [(true, 1), (false, 16)] {
        let Move::To(next) = controller.next(&window(&answers, 0, refused, peak, 0), 20 * PLACE, bounds)
        else {
            panic!("it stays")
        };
        assert_eq!(next, 20 * PLACE * 9 / 8 + PLACE);
    }
    let few = window(&[(50 * MILLI, 31)], 0, true, 20, 0);
    assert_eq!(controller.next(&few, 20 * PLACE, bounds), Move::Wait);
}

#[test]
fn a_fall_that_does_not_help_goes_back() {
    let (mut controller, bounds) = target_controller();
    let (mut limit, mut falls) = (100 * PLACE, 0);
    loop {
        let peak = (limit / PLACE) as u32;
        match controller.next(&window(&[(400 * MILLI, 40)], 0, true, peak, 1), limit, bounds) {
            Move::To(wanted) => limit = bounds.next(limit, wanted),
            Move::Back(to) => {
                assert_eq!(to, 100 * PLACE);
                break;
            }
            other => panic!("{other:?}"),
        }
        falls += 1;
        assert!(falls < 10);
    }
    assert!(limit <= 25 * PLACE && falls > 1);
    // The longer target holds for 15 s.
    assert_eq!(controller.target, 600 * MILLI);
    let calm = |now| window(&[(50 * MILLI, 40)], 0, false, 1, now);
    let slow = |now| window(&[(400 * MILLI, 40)], 0, false, 1, now);
    assert_eq!(controller.next(&slow(14_000 * MILLI), limit, bounds), Move::Stay);
    assert_eq!(controller.target, 600 * MILLI);
    assert!(matches!(controller.next(&slow(15_000 * MILLI + 2), limit, bounds), Move::To(_)));
    assert_eq!(controller.target, 300 * MILLI);
    assert_eq!(controller.next(&calm(16_000 * MILLI), limit, bounds), Move::Stay);
}

/// Answers that all take as long, under a limit that is used up.
fn used_up(limit: u64, ms: u64, now: u64) -> Samples {
    Samples { unchanged: 0, ..window(&[(ms * MILLI, 40)], 0, true, (limit / PLACE) as u32, now) }
}

#[test]
fn the_second_try_of_the_target_goes_by_halves_and_ends_at_a_half() {
    let (mut controller, bounds) = target_controller();
    let (mut limit, mut now) = (100 * PLACE, 0);
    while let Move::To(wanted) = controller.next(&used_up(limit, 400, now), limit, bounds) {
        limit = bounds.next(limit, wanted);
    }
    limit = 160 * PLACE;
    // The longer target ends after 15 s, and later ones after twice as long, up to four minutes.
    for seconds in [15, 30, 60, 120, 240, 240] {
        now += seconds * 1_000 * MILLI - MILLI;
        let long = controller.next(&used_up(limit, 400, now), limit, bounds);
        assert!(matches!(long, Move::To(more) if more > limit), "{seconds}: {long:?}");
        now += MILLI;
        let first = controller.next(&used_up(limit, 400, now), limit, bounds);
        assert_eq!(first, Move::To(limit / 2));
        let half = controller.next(&used_up(limit / 2, 400, now), limit / 2, bounds);
        assert_eq!(half, Move::Back(limit));
    }
    // Well within the asked target: the next fall is a first one again.
    let calm = controller.next(&used_up(limit, 200, now), limit, bounds);
    assert!(matches!(calm, Move::To(more) if more > limit));
    assert_eq!(controller.target, 300 * MILLI);
    let fall = controller.next(&used_up(limit, 330, now), limit, bounds);
    assert!(matches!(fall, Move::To(less) if (limit * 3 / 4..limit).contains(&less)), "{fall:?}");
}

/// Only a second try of the given target goes by halves, and not a fall under the longer one.
#[test]
fn a_fall_under_the_longer_target_is_as_a_first_one() {
    let (mut controller, bounds) = target_controller();
    let (mut limit, mut next) = (100 * PLACE, Move::Stay);
    while !matches!(next, Move::Back(_)) {
        next = controller.next(&used_up(limit, 500, 0), limit, bounds);
        limit = if let Move::To(wanted) = next { bounds.next(limit, wanted) } else { 100 * PLACE };
    }
    assert_eq!(controller.target, 600 * MILLI);
    let late = controller.next(&used_up(limit, 700, 0), limit, bounds);
    assert!(matches!(late, Move::To(less) if less > limit * 3 / 4), "{late:?}");
}

#[test]
fn a_sample_in_the_bucket_of_the_target_is_not_slower() {
    for ms in [1, 30, 300, 3_000] {
        let samples = window(&[(ms * MILLI, 5), (ms * MILLI * 8 / 7, 3)], 2, false, 0, 0);
        assert_eq!([samples.slower_than(ms * MILLI), samples.slower_than(ms * MILLI * 2)], [5, 2], "{ms}");
    }
}

#[test]
fn a_quantile_is_of_the_samples_and_without_end_for_overloaded_ones() {
    assert_eq!(Samples::nothing().quantile(900), None);
    let samples = window(&[(8 << 20, 9)], 1, true, 0, 0);
    assert!(samples.quantile(899).is_some_and(|slow| slow <= Duration::from_nanos(9 << 20)));
    assert_eq!(samples.quantile(900), Some(Duration::MAX));
    assert!(samples.refused() && !Samples::nothing().refused());
}

#[test]
fn a_limit_rises_by_a_place_near_the_target_and_by_an_eighth_and_one_far_from_it() {
    let rise = |ms| {
        let (mut controller, bounds) = target_controller();
        match controller.next(&used_up(80 * PLACE, ms, 0), 80 * PLACE, bounds) {
            Move::To(next) => next / PLACE,
            other => panic!("{other:?}"),
        }
    };
    // The p90s are 284 ms, 217 ms and 108 ms; three quarters of the target are 225 ms.
    assert_eq!([rise(280), rise(205), rise(105)], [81, 83, 91]);
}

/// Returns the next limit in places, of a limit of 80.
fn lowered(samples: &Samples) -> u64 {
    let (mut controller, bounds) = target_controller();
    match controller.next(samples, 80 * PLACE, bounds) {
        Move::To(next) => next / PLACE,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_fall_is_of_the_requests_in_flight_and_by_an_eighth_at_least() {
    let full = used_up(80 * PLACE, 310, 0);
    assert_eq!(lowered(&full), 70);
    assert_eq!(lowered(&Samples { peak: 40, ..full }), 35);
}

#[test]
fn four_late_samples_decide_if_they_are_more_than_half() {
    let next = |late, in_time| {
        let (mut controller, bounds) = target_controller();
        let samples = window(&[(400 * MILLI, late), (50 * MILLI, in_time)], 0, true, 80, 0);
        controller.next(&samples, 80 * PLACE, bounds)
    };
    for (late, in_time) in [(3, 0), (4, 4)] {
        assert_eq!(next(late, in_time), Move::Wait, "{late} {in_time}");
    }
    for (late, in_time) in [(4, 0), (4, 3)] {
        assert!(matches!(next(late, in_time), Move::To(less) if less < 80 * PLACE), "{late} {in_time}");
    }
}

/// A limit of three places has no quarter above the floor.
#[test]
fn a_fall_to_the_floor_is_in_vain_without_a_quarter() {
    let (mut controller, bounds) = target_controller();
    let _ = controller.next(&used_up(3 * PLACE, 400, 0), 3 * PLACE, bounds);
    assert!(matches!(controller.next(&used_up(PLACE + 1, 400, 0), PLACE + 1, bounds), Move::To(_)));
    assert_eq!(controller.next(&used_up(PLACE, 400, 0), PLACE, bounds), Move::Back(3 * PLACE));
}

/// Refused connections and time-outs tell no latency, so no number of them shows a fall in vain.
#[test]
fn overloaded_samples_are_never_a_fall_in_vain() {
    let (mut controller, bounds) = target_controller();
    for limit in [80, 40, 20, 10] {
        let samples = Samples { unchanged: 0, ..window(&[], 40, true, limit, 0) };
        let next = controller.next(&samples, u64::from(limit) * PLACE, bounds);
        assert_eq!(next, Move::To(u64::from(limit) * PLACE / 2));
    }
}

/// The window of a limit that waits for samples goes on, and is looked at again after an eighth of
/// an interval.
#[test]
fn a_limit_that_waits_for_samples_decides_soon_after_they_are_there() {
    let (clock, mock) = Clock::mock();
    let limit = Inflight::adaptive(Duration::from_millis(300), 100).clock(clock).build().unwrap();
    mock.advance(Duration::from_millis(250));
    limit.try_enter().unwrap().answered();
    for _ in 0..31 {
        limit.try_enter().unwrap().answered();
    }
    let refused: Vec<_> = std::iter::from_fn(|| limit.try_enter().ok()).collect();
    assert_eq!((refused.len(), limit.limit()), (20, 20));
    drop(refused);
    mock.advance(Duration::from_millis(31));
    limit.try_enter().unwrap().answered();
    assert_eq!(limit.limit(), 20);
    mock.advance(Duration::from_millis(1));
    limit.try_enter().unwrap().answered();
    assert_eq!(limit.limit(), 23);
}

/// A request that its caller drops is late after the target, and not at it.
#[test]
fn a_dropped_flight_is_late_after_the_target_only() {
    for (millis, lowered) in [(300, false), (301, true)] {
        let (clock, mock) = Clock::mock();
        let limit = Inflight::adaptive(Duration::from_millis(300), 100).clock(clock).build().unwrap();
        let flights: Vec<_> = (0..10).map(|_| limit.try_enter().unwrap()).collect();
        mock.advance(Duration::from_millis(millis));
        drop(flights);
        mock.advance(Duration::from_millis(250));
        drop(limit.try_enter().unwrap());
        assert_eq!(limit.limit() < 20, lowered, "{millis}");
    }
}

/// The limit is back at the start of the fall: a later fall is another one.
#[test]
fn a_limit_that_is_back_at_the_start_has_forgotten_the_fall() {
    for (limit, forgotten) in [(40 * PLACE, true), (40 * PLACE - 1, false)] {
        let (mut controller, bounds) = target_controller();
        let _ = controller.next(&used_up(40 * PLACE, 310, 0), 40 * PLACE, bounds);
        let _ = controller.next(&used_up(limit, 280, 0), limit, bounds);
        let late = controller.next(&used_up(10 * PLACE, 310, 0), 10 * PLACE, bounds);
        assert_eq!(late == Move::Back(40 * PLACE), !forgotten, "{late:?}");
    }
}

/// A fall in vain is one after which no answer was faster. Else a limit of a small server went back
/// to the limit of a minute ago, because of a few slow samples.
#[test]
fn a_fall_that_helped_is_not_in_vain_later() {
    for (in_time, helped) in [(260, true), (290, false)] {
        let (mut controller, bounds) = target_controller();
        let first = controller.next(&used_up(40 * PLACE, 360, 0), 40 * PLACE, bounds);
        assert!(matches!(first, Move::To(_)));
        let calm = controller.next(&used_up(10 * PLACE, in_time, 0), 10 * PLACE, bounds);
        assert!(matches!(calm, Move::To(more) if more > 10 * PLACE));
        let late = controller.next(&used_up(10 * PLACE, 360, 0), 10 * PLACE, bounds);
        assert_eq!(matches!(late, Move::To(_)), helped, "{in_time}: {late:?}");
        assert_eq!(late == Move::Back(40 * PLACE), !helped, "{in_time}: {late:?}");
    }
}

/// 80 in flight and 40 answers in 200 ms: a request takes 400 ms from now on, not 330.
#[test]
fn the_first_fall_is_to_the_answers_a_second_times_the_target() {
    let late =
        |unchanged| lowered(&Samples { window: 200 * MILLI, unchanged, ..used_up(80 * PLACE, 330, 0) });
    assert_eq!(late(500 * MILLI), 60);
    // The limit is new: some of the answers are no samples.
    assert!(late(500 * MILLI - 1) >= 69);
}

#[test]
fn a_limit_that_is_full_and_silent_is_halved() {
    let (mut controller, bounds) = target_controller();
    let silent = |window, refused| Samples { window, refused, peak: 20, ..Samples::nothing() };
    let patience = 4 * 300 * MILLI + 250 * MILLI;
    assert_eq!(controller.next(&silent(patience, true), 20 * PLACE, bounds), Move::Wait);
    assert_eq!(controller.next(&silent(patience + 1, false), 20 * PLACE, bounds), Move::Wait);
    assert_eq!(controller.next(&silent(patience + 1, true), 20 * PLACE, bounds), Move::To(10 * PLACE));
}

/// Decides by a list.
struct Listed(std::vec::IntoIter<Next>);

impl Controller for Listed {
    fn next(&mut self, _: &Samples, _: Fraction) -> Next {
        self.0.next().unwrap_or(Next::Stay)
    }
}

#[test]
fn a_controller_returns_to_the_limit_before_the_latest_falls() {
    let list = vec![Next::Set(Fraction::HALF), Next::Set(Fraction::ALL), Next::Set(Fraction::QUARTER)];
    let list = [list, vec![Next::Set(Fraction::QUARTER), Next::Return]].concat();
    let (clock, mock) = Clock::mock();
    let limit = Inflight::adaptive(Duration::from_millis(300), 100).start(100).clock(clock);
    let limit = limit.controller(Listed(list.into_iter())).build().unwrap();
    let limits: Vec<u32> = (0..5)
        .map(|_| {
            mock.advance(Duration::from_millis(250));
            drop(limit.try_enter());
            limit.limit()
        })
        .collect();
    assert_eq!(limits, [50, 57, 28, 25, 57]);
}

/// Panics once, then halves the limit.
struct PanicsOnce(bool);

impl Controller for PanicsOnce {
    fn next(&mut self, _: &Samples, _: Fraction) -> Next {
        assert!(std::mem::replace(&mut self.0, true), "once");
        Next::Set(Fraction::HALF)
    }
}

#[test]
fn a_controller_that_panicked_is_asked_again() {
    let (clock, mock) = Clock::mock();
    let limit = Inflight::adaptive(Duration::from_millis(300), 100).start(100).clock(clock);
    let limit = limit.controller(PanicsOnce(false)).build().unwrap();
    mock.advance(Duration::from_millis(250));
    assert!(catch_unwind(AssertUnwindSafe(|| limit.try_enter().is_ok())).is_err());
    assert_eq!((limit.limit(), limit.in_flight()), (100, 0));
    mock.advance(Duration::from_millis(250));
    assert!(limit.try_enter().is_ok());
    assert_eq!((limit.limit(), limit.in_flight()), (50, 0));
}

#[test]
fn a_limit_without_priorities_is_used_up_to_the_last_place() {
    let limit = Inflight::fixed(64);
    let flights: Vec<_> = (0..64).map(|_| limit.try_enter().unwrap()).collect();
    assert_eq!(limit.try_enter().unwrap_err().in_flight(), 64);
    drop(flights);
    // The default priority leaves a tenth to the critical one.
    let flights: Vec<_> = std::iter::from_fn(|| limit.try_enter_as(Priority::Default).ok()).collect();
    assert_eq!(flights.len(), 57);
}

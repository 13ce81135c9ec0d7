// promise: inflight
//! The controller of a limit on requests in flight: its promise, for any window.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use proptest::prelude::*;

use super::short_cases;
use crate::inflight::controller::{Bounds, Move, PLACE, TargetController, TargetRule};
use crate::inflight::histogram::{LatencyCounts, bucket_of};
use crate::inflight::seen::Seen;
use crate::time::clock::Clock;
use crate::{Controller, Inflight, Priority, Share, Verdict};

const MILLI: u64 = 1_000_000;

/// Returns a window with these numbers of answers at these latencies.
fn window(answers: &[(u64, u32)], overloaded: u64, refused: bool, peak: u32, now: u64) -> Seen {
    let mut answered = LatencyCounts::NONE;
    for (nanos, count) in answers {
        let counted = &mut answered.0[bucket_of(*nanos)];
        *counted = counted.saturating_add(*count);
    }
    Seen { answered, overloaded, refused, peak, now, unchanged: now / 2, ..Seen::nothing() }
}

fn windows() -> impl Strategy<Value = Seen> {
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
        |(target, ceiling, floor, start, permille, slack)| {
            let floor = 1 + floor % ceiling;
            let start = floor + start % (ceiling - floor + 1);
            let rule = TargetRule { target, interval: 250 * MILLI, permille, slack, samples: 32 };
            (rule, Bounds { floor: floor * PLACE, ceiling: ceiling * PLACE }, start * PLACE)
        },
    )
}

proptest! {
    #![proptest_config(short_cases(5_000))]

    #[test]
    fn a_limit_keeps_its_bounds_and_changes_by_a_half_or_an_eighth(
        (rule, bounds, start) in rules(),
        all in prop::collection::vec(windows(), 1..40),
    ) {
        let (mut controller, mut limit) = (TargetController::new(rule), start);
        // The limits from which the latest falls began.
        let mut highest = start;
        for seen in all {
            // The longer target may end with this window.
            let target = if seen.now >= controller.until { rule.target } else { controller.target };
            let breach = seen.slower_than(target) > 0 || seen.nanos_at(rule.permille).is_some_and(|slow| slow > target);
            let next = match controller.next(&seen, limit, bounds) {
                Move::Wait | Move::Stay => limit,
                Move::To(wanted) => {
                    let next = bounds.next(limit, wanted);
                    prop_assert!(next * 2 >= limit && next <= limit + limit / 8 + PLACE, "{limit} to {next}");
                    let stalled = seen.refused && seen.samples() == 0;
                    prop_assert!(next >= limit || breach || stalled, "{limit} falls to {next} without a breach");
                    next
                }
                Move::Back(to) => {
                    let flying = limit.min(u64::from(seen.peak.max(1)) * PLACE);
                    prop_assert!(
                        flying * 4 <= highest || limit <= bounds.floor,
                        "{flying} of {highest} is no quarter"
                    );
                    prop_assert!(to <= highest + PLACE, "{to} is above {highest}");
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
    let rule =
        TargetRule { target: 300 * MILLI, interval: 250 * MILLI, permille: 900, slack: 2, samples: 32 };
    let bounds = Bounds { floor: PLACE, ceiling: 1_000 * PLACE };
    let mut controller = TargetController::new(rule);
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
    let rule =
        TargetRule { target: 300 * MILLI, interval: 250 * MILLI, permille: 900, slack: 2, samples: 32 };
    let bounds = Bounds { floor: PLACE, ceiling: 1_000 * PLACE };
    let (mut controller, mut limit, mut falls) = (TargetController::new(rule), 100 * PLACE, 0);
    loop {
        let peak = (limit / PLACE) as u32;
        match controller.next(&window(&[(400 * MILLI, 40)], 0, true, peak, 1), limit, bounds) {
            Move::To(wanted) => limit = bounds.next(limit, wanted),
            Move::Back(to) => {
                assert_eq!(to, 101 * PLACE);
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

#[test]
fn a_limit_that_is_full_and_silent_is_halved() {
    let rule =
        TargetRule { target: 300 * MILLI, interval: 250 * MILLI, permille: 900, slack: 2, samples: 32 };
    let bounds = Bounds { floor: PLACE, ceiling: 1_000 * PLACE };
    let mut controller = TargetController::new(rule);
    let silent = |unchanged, refused| Seen { unchanged, refused, peak: 20, ..Seen::nothing() };
    let patience = 4 * 300 * MILLI + 250 * MILLI;
    assert_eq!(controller.next(&silent(patience, true), 20 * PLACE, bounds), Move::Wait);
    assert_eq!(controller.next(&silent(patience + 1, false), 20 * PLACE, bounds), Move::Wait);
    assert_eq!(controller.next(&silent(patience + 1, true), 20 * PLACE, bounds), Move::To(10 * PLACE));
}

/// Panics once, then halves the limit.
struct PanicsOnce(bool);

impl Controller for PanicsOnce {
    fn next(&mut self, _: &Seen, _: Share) -> Verdict {
        assert!(std::mem::replace(&mut self.0, true), "once");
        Verdict::Set(Share::HALF)
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

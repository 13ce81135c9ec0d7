// promise: no-overflow
//! The layout of a word: the quotas that it has room for, and the quotas that it refuses.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tollgate_testing::cases;
use tollgate_testing::reference::{Asked, Unit};

use super::terms::{has_room, numbers, quotas, unit_of};
use super::verbs::{Rooms, room_of, rooms};
use crate::rule::layout::{Layout, LayoutOptions, MAX_BURST, MAX_NANOS, QuotaError, RawQuota};
use crate::word::terms::Terms;

const SECOND: u64 = 1_000_000_000;

/// Returns a quota and a second one, which is mostly near the first, and of the same period or
/// another.
fn two() -> impl Strategy<Value = (Asked, Asked)> {
    let near =
        (quotas(), -12.0..12.0_f64, -12.0..12.0_f64, any::<bool>()).prop_map(|(quota, rate, size, slow)| {
            let times = |n: u64, by: f64, most: u64| ((n as f64 * by.exp2()) as u64).clamp(1, most);
            let (tokens, nanos, burst) = quota;
            let burst = times(burst, size, MAX_BURST);
            match slow {
                true => (quota, (tokens, times(nanos, rate, MAX_NANOS), burst)),
                false => (quota, (times(tokens, rate, u64::MAX >> 1), nanos, burst)),
            }
        });
    prop_oneof![3 => near, 1 => (quotas(), quotas())]
}

/// Returns whether a quota is within the bounds of every quota: on its rate, and on its time to
/// fill.
fn is_sound((tokens, nanos, burst): Asked) -> bool {
    u128::from(tokens) <= u128::from(nanos) * 1_000 && fills((tokens, nanos, burst), burst)
}

fn fills((tokens, nanos, _): Asked, burst: u64) -> bool {
    u128::from(burst) * u128::from(nanos) <= u128::from(tokens) << 62
}

/// Checks that an accepted quota has room in the layout's unit, and that a refused quota is over
/// the bound that the error names.
fn checks(layout: Layout, quota: Asked) -> TestCaseResult {
    let (tokens, nanos, burst) = quota;
    let unit = unit_of(layout);
    let debt = if unit.fixed { unit.debt } else { unit.debt.min(burst) };
    // The largest level of the tokens field. The value above it is reserved.
    let levels = (u64::MAX >> unit.stamp) - 1;
    let wide = u128::from(burst + unit.debt) << unit.fraction <= u128::from(levels);
    let fine = unit.scale == 0 || burst >= 128 << unit.scale;
    let long = unit.holds(quota, burst + unit.debt, 46);
    match layout.check(numbers(quota)) {
        Ok(()) => {
            prop_assert!(is_sound(quota) && fills(quota, burst + debt) && wide && fine && long);
            let terms = Terms::in_layout(numbers(quota), layout);
            has_room(&terms)?;
            has_room(&terms.after_others())?;
            prop_assert_eq!(terms.layout(), layout);
            prop_assert_eq!((terms.empty_level - terms.min_level()) >> unit.fraction, debt);
        }
        Err(QuotaError::BurstTooWide(named, most)) => {
            prop_assert!(named == burst && !wide && burst > most);
            // The bound in the error is the largest burst that fits.
            prop_assert!(u128::from(most + unit.debt) << unit.fraction <= u128::from(levels));
            prop_assert!(u128::from(most + 1 + unit.debt) << unit.fraction > u128::from(levels));
        }
        Err(QuotaError::TickTooCoarse(named, least)) => {
            prop_assert!(named == burst && !fine && least == 128 << unit.scale && burst < least);
        }
        Err(QuotaError::RangeTooShort(RawQuota { tokens: t, nanos: p, .. })) => {
            prop_assert!((t, p) == (tokens, nanos) && !long)
        }
        Err(QuotaError::SlowFill(RawQuota { tokens: t, nanos: p, .. })) => {
            prop_assert!((t, p) == (tokens, nanos) && !fills(quota, burst + debt));
        }
        Err(QuotaError::FastRate(RawQuota { tokens: t, nanos: p, .. })) => {
            prop_assert!((t, p) == (tokens, nanos) && u128::from(t) > u128::from(p) * 1_000);
        }
        Err(flaw) => prop_assert!(false, "{:?}", flaw),
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn a_frame_is_the_one_the_rules_give((quota, head) in two(), (_, debt) in rooms(), headed in any::<bool>()) {
        let head = headed.then_some(head);
        let room = LayoutOptions { headroom: head.map(numbers), ..room_of((None, debt), quota) };
        let sound = is_sound(quota) && head.is_none_or(is_sound);
        let theirs = sound.then(|| Unit::with_room(quota, head, room.max_debt)).flatten();
        let ours = Layout::of(numbers(quota), room);
        prop_assert_eq!(ours.ok().map(unit_of), theirs, "{:?}", ours);
    }

    /// A layout holds the quota that it was made for, and its headroom.
    #[test]
    fn a_frame_holds_what_it_was_made_for((quota, head) in two(), (_, debt) in rooms()) {
        let room = LayoutOptions { headroom: Some(numbers(head)), ..room_of((None, debt), quota) };
        let Ok(layout) = Layout::of(numbers(quota), room) else { return Ok(()) };
        let terms = Terms::in_layout(numbers(quota), layout);
        prop_assert_eq!(layout.check(numbers(quota)), Ok(()));
        has_room(&terms)?;
        // With the debt of a larger burst the headroom may take too long to fill. It is then
        // refused by name.
        let held = layout.check(numbers(head));
        let slow = matches!(held, Err(QuotaError::SlowFill(_))) && !layout.widths.fixed_debt;
        prop_assert!(held.is_ok() || slow, "{:?}", held);
    }

    #[test]
    fn what_a_frame_refuses_is_over_a_bound((quota, other) in two(), rooms in rooms()) {
        let rooms: Rooms = rooms;
        let Ok(layout) = Layout::of(numbers(quota), room_of(rooms, quota)) else { return Ok(()) };
        checks(layout, other)?;
        checks(layout, (other.0, other.1, layout.most_burst().clamp(1, MAX_BURST)))?;
        checks(layout, (other.0, other.1, (layout.most_burst() + 1).min(MAX_BURST)))?;
    }
}

#[test]
fn room_that_cannot_be_made_is_refused_by_name() {
    let of = |quota, head: Option<Asked>, max_debt| {
        Layout::of(numbers(quota), LayoutOptions { headroom: head.map(numbers), max_debt })
            .map(|layout| layout.debt)
    };
    let quota = (100, SECOND, 200);
    assert_eq!(of(quota, None, None), Ok(200));
    assert_eq!(of(quota, None, Some(0)), Ok(0));
    assert_eq!(of(quota, None, Some(1_000)), Ok(1_000));
    assert_eq!(of(quota, Some((5, SECOND, 300)), None), Ok(300));
    let debt = MAX_BURST + 1;
    assert_eq!(of(quota, None, Some(debt)), Err(QuotaError::LargeDebt(debt)));
    // A debt that takes longer than 2^62 ns to pay off is refused if it was asked for. By default
    // the layout then has no debt.
    let slow = (2, MAX_NANOS, 2);
    assert_eq!(of(slow, None, None), Ok(0));
    let (slow_debt, fast) = ((8, MAX_NANOS, 5), (8, SECOND, 5));
    assert_eq!(of(fast, None, None), Ok(5));
    assert_eq!((of(slow_debt, Some(fast), None), of(fast, Some(slow_debt), None)), (Ok(0), Ok(0)));
    let flaw = QuotaError::SlowFill(RawQuota { tokens: 2, nanos: MAX_NANOS, burst: 3 });
    assert_eq!(of(slow, None, Some(1)), Err(flaw));
    assert_eq!(of((2, 1, 2), Some(slow), Some(1)), Err(flaw));
    assert!(matches!(of(quota, Some((1_000, 1, (1 << 39) - 1)), None), Err(QuotaError::NoLayout(_))));
    assert!(matches!(of(quota, Some((0, 1, 1)), None), Err(QuotaError::NoTokens)));
}

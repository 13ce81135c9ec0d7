// promise: no-overflow
//! The compiled terms, compared with a table of widths, and the ticks, compared with exact
//! products.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tollgate_testing::cases;
use tollgate_testing::reference::{Asked, Unit};

use crate::rule::layout::{Layout, LayoutOptions, MAX_BURST, MAX_NANOS, QuotaError, RawQuota};
use crate::word::terms::Terms;
use crate::word::tick::TickScale;

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// Bits of the whole tokens, of the fraction and of the stamp, and the scale.
type Widths = (u8, u8, u8, u8);

/// Quotas and their widths, by the rules of docs/design.md. The room for debt takes a bit of the
/// stamp.
pub(super) const TABLE: [(Asked, Widths); 16] = [
    ((1, SECOND, 1), (2, 16, 46, 0)),
    ((100, SECOND, 200), (9, 11, 44, 0)),
    ((1_000, SECOND, 1_000), (11, 8, 45, 0)),
    ((7, SECOND, 10), (5, 15, 44, 0)),
    ((12_345, SECOND, 777), (11, 7, 46, 0)),
    ((333_333, SECOND, 50), (12, 6, 46, 0)),
    ((1_000_000, SECOND, 1_000_000), (21, 1, 42, 0)),
    ((1_000_000, SECOND, 10), (11, 6, 47, 0)),
    ((1_000_000_000, SECOND, 1_000_000), (21, 0, 43, 6)),
    ((12_500_000_000, SECOND, 64 << 20), (28, 0, 36, 17)),
    ((150_000_001, SECOND, 1_000), (16, 0, 48, 0)),
    ((1_000, HOUR, 1_000), (11, 14, 39, 0)),
    ((999_983, HOUR, 1_000_000), (21, 4, 39, 0)),
    ((5, DAY, 5), (4, 16, 44, 0)),
    ((1, YEAR, 1), (2, 16, 46, 0)),
    ((1_000_000_000_000, SECOND, 1_000_000_000), (30, 0, 34, 22)),
];

/// Quotas at the edges of the bounds.
pub(super) const EXTREMES: [Asked; 12] = [
    (1, MAX_NANOS, 1),
    (1, MAX_NANOS / 3, 3),
    (1_000, 1, 1),
    (1_000_000_000_000, SECOND, 1 << 39),
    (1_000_000_000_000, SECOND, MAX_BURST),
    (1_000_000_000_000, SECOND, 1_000_000_000_000),
    (1_000, SECOND, MAX_BURST),
    (1, SECOND, 4_611_686_018),
    (7_919, 104_729, 611_953),
    (1, 1, 1),
    (1, 3, 10),
    (999_999_999_989, SECOND, 65_537),
];

pub(super) fn numbers((tokens, nanos, burst): Asked) -> RawQuota {
    RawQuota { tokens, nanos, burst }
}

pub(super) fn compile(quota: Asked) -> Result<Terms, QuotaError> {
    Terms::compile(numbers(quota), LayoutOptions::DEFAULT)
}

#[test]
fn the_units_are_those_of_the_table() {
    for (quota, (whole, fraction, stamp, scale)) in TABLE {
        let terms = compile(quota).unwrap();
        let widths = terms.widths;
        assert_eq!((widths.fraction, widths.stamp, widths.scale), (fraction, stamp, scale), "{quota:?}");
        assert_eq!(whole + fraction + stamp, 64);
        // All have room for a debt of one burst, except the last: its range has the least length
        // already. Three have room for the tokens of 10 ms, or of an eighth or a 32nd of that.
        let (debt, fixed) = match quota {
            (333_333, _, 50) => (3_333, true),
            (1_000_000, _, 10) => (10_000 / 8, true),
            (150_000_001, ..) => (1_500_000 / 32, true),
            (_, _, 1_000_000_000) => (0, false),
            (_, _, burst) => (burst, false),
        };
        assert_eq!((terms.layout().debt, widths.fixed_debt), (debt, fixed), "{quota:?}");
    }
}

#[test]
fn quotas_that_cannot_be_held_are_refused() {
    assert_eq!(compile((0, 1, 1)), Err(QuotaError::NoTokens));
    assert_eq!(compile((1, 0, 1)), Err(QuotaError::NoPeriod));
    assert_eq!(compile((1, 1, 0)), Err(QuotaError::NoBurst));
    assert!(matches!(compile((1, MAX_NANOS + 1, 1)), Err(QuotaError::LongPeriod(_))));
    assert!(matches!(compile((1_000, 1, MAX_BURST + 1)), Err(QuotaError::LargeBurst(_))));
    assert!(matches!(compile((1_001, 1, 1)), Err(QuotaError::FastRate(_))));
    assert!(compile((2, MAX_NANOS, 2)).is_ok());
    assert!(matches!(compile((2, MAX_NANOS, 3)), Err(QuotaError::SlowFill(_))));
    assert!(matches!(compile((1, MAX_NANOS / 3, 4)), Err(QuotaError::SlowFill(_))));
    assert!(matches!(compile((1_000, 1, (1 << 39) - 1)), Err(QuotaError::NoLayout(_))));
}

/// Returns quotas, accepted or not, spread over all magnitudes.
pub(super) fn quotas() -> impl Strategy<Value = Asked> {
    let spread = |bits: u32| (0..bits, any::<u64>()).prop_map(|(shift, n)| (n >> 1 >> shift).max(1));
    (spread(63), spread(63), spread(63))
        .prop_map(|(tokens, nanos, burst)| (tokens, nanos.min(MAX_NANOS), burst.min(MAX_BURST)))
}

/// Returns the unit of a layout, as the reference has it.
pub(super) fn unit_of(Layout { widths, debt }: Layout) -> Unit {
    Unit {
        fraction: widths.fraction.into(),
        scale: widths.scale.into(),
        stamp: widths.stamp.into(),
        debt,
        fixed: widths.fixed_debt,
    }
}

/// Checks that nothing overflows, and that the stamp has its range.
pub(super) fn has_room(terms: &Terms) -> Result<(), TestCaseError> {
    let widths = terms.widths;
    let stamp = u32::from(widths.stamp);
    prop_assert!(stamp <= 62 && (widths.scale == 0 || stamp + u32::from(widths.scale) <= 57));
    // The field's all-ones value is above every level, and both reserved words have it.
    prop_assert!(stamp > 0 && terms.capacity < u64::MAX >> stamp);
    prop_assert!(terms.empty_level < terms.capacity && terms.min_level() <= terms.empty_level);
    prop_assert!(
        terms.backward_from > 0 && terms.backward_from < terms.skew_from() && terms.skew_from() <= terms.mask
    );
    // The range is at least 64 fills, so that a full bucket differs from one whose stamp wrapped. A
    // range of 2^62 ns never wraps.
    let fill = u128::from(terms.ticks_for(terms.capacity));
    // Rounding the multiplier up makes the range shorter by less than a tick in 2^62 ns.
    let nanos = terms.ticks.nanos_until(0, terms.mask + 1);
    prop_assert!(nanos >= (1 << 46) - 1);
    prop_assert!(u128::from(terms.mask) + 1 >= fill * 64 || nanos >= (1 << 62) - 1);
    Ok(())
}

#[test]
fn readings_are_counts_unless_a_count_is_a_nanosecond() {
    for (whole, part, counts) in [(1, 0, false), (1, 1, true), (2, 0, true), (0, 1 << 63, true)] {
        assert_eq!(TickScale::NANOS.counted(whole, part).is_counted(), counts, "{whole} + {part} / 2^64");
    }
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn what_is_accepted_has_room(quota in quotas()) {
        let Ok(terms) = compile(quota) else { return Ok(()) };
        has_room(&terms)?;
        let Layout { widths, debt } = terms.layout();
        // Room for a debt of one burst takes one bit of the stamp or none, and never a bit of the
        // unit. More room is for the tokens of 10 ms, or a part of them.
        let (burst, stamp) = (quota.2, u32::from(widths.stamp));
        let spare = (burst + 1).leading_zeros() - u32::from(widths.fraction);
        let short = u128::from(quota.0) * 10_000_000 / u128::from(quota.1);
        match debt {
            0 => prop_assert_eq!(stamp, spare),
            debt if debt == burst => prop_assert!(stamp == spare || stamp + 1 == spare),
            debt => {
                prop_assert!(debt > burst && (0..64).any(|halves| short >> halves == u128::from(debt)));
                let wide = (burst + debt + 1).leading_zeros() - u32::from(widths.fraction);
                prop_assert!(widths.fixed_debt && stamp == wide);
            }
        }
    }

    /// The windows are 4 s and an hour, or the part that the range can spare. Each is at least two
    /// ticks.
    #[test]
    fn the_windows_are_those_of_the_design(any in quotas(), slow in any::<bool>(), row in 0..TABLE.len()) {
        let (tokens, nanos, burst) = if slow { TABLE[row].0 } else { any };
        let tokens = tokens.min(1 << 44);
        let Ok(terms) = compile((tokens, nanos, burst)) else { return Ok(()) };
        let range = 1_u128 << terms.widths.stamp;
        let ticks = |span: u128| {
            ((span * u128::from(tokens)) << terms.widths.fraction).div_ceil(u128::from(nanos) << terms.widths.scale)
        };
        let window = |span, part| ticks(span).min(range.div_ceil(part)).max(2);
        let (jitter, jump) = (window(4_000_000_000, 4096), window(3_600_000_000_000, 64));
        prop_assert_eq!(u128::from(terms.skew_from()), range - jitter);
        prop_assert_eq!(u128::from(terms.backward_from), range - jitter - jump);
        let later = terms.after_others();
        prop_assert_eq!(u128::from(later.backward_from), range - jitter - range.div_ceil(64));
        prop_assert_eq!(u128::from(terms.grace()), ticks(2_000_000_000) + 1);
    }

    #[test]
    fn the_unit_is_the_one_the_rules_give((tokens, nanos, burst) in quotas()) {
        let ours = compile((tokens, nanos, burst));
        let fits = u128::from(tokens) <= u128::from(nanos) * 1_000
            && u128::from(burst) * u128::from(nanos) <= u128::from(MAX_NANOS) * u128::from(tokens);
        let theirs = Unit::choose(tokens, nanos, burst).filter(|_| fits);
        prop_assert_eq!(ours.ok().map(|terms| unit_of(terms.layout())), theirs);
    }

    /// The tick at `now` is exact, or the next one if that is less than a quarter of a tick away. A
    /// wait is the least that reaches its tick.
    #[test]
    fn ticks_are_exact_and_waits_least(
        (tokens, nanos, burst) in quotas(),
        now in 0..MAX_NANOS,
        share in 0.0..1.0_f64,
    ) {
        let tokens = tokens.min(1 << 44);
        let Ok(terms) = compile((tokens, nanos, burst)) else { return Ok(()) };
        let (fraction, scale) = (terms.widths.fraction, terms.widths.scale);
        // now * tokens * 2^fraction < 2^62 * 2^44 * 2^16
        let earned = (u128::from(now) * u128::from(tokens)) << fraction;
        let tick = u128::from(nanos) << scale;
        let exact = earned / tick;
        let rounded = (earned + tick / 4) / tick;
        let counted = u128::from(terms.ticks.tick(now));
        prop_assert!(counted == exact as u64 as u128 || counted == rounded as u64 as u128);

        let ticks = (terms.ticks_for(terms.capacity) as f64 * share) as u64 + 1;
        let wait = terms.ticks.nanos_until(now, ticks);
        let reached = |wait: u64| terms.ticks.tick(now + wait).wrapping_sub(terms.ticks.tick(now));
        prop_assert!(reached(wait) >= ticks && reached(wait) < u64::MAX / 2);
        prop_assert!(reached(wait - 1) < ticks);
    }

    /// Ticks by raw readings are those of the nanoseconds, or at most those of the next nanosecond.
    /// For a clock that counts nanoseconds they are the same.
    #[test]
    fn ticks_by_counts_are_those_of_nanoseconds(
        (tokens, nanos, burst) in quotas(),
        now in 0..MAX_NANOS,
        // From a counter of 8 GHz to one of 1 MHz.
        scale in prop_oneof![Just(1_u128 << 64), 1_u128 << 61..1 << 64, 1_u128 << 64..1000 << 64],
    ) {
        let Ok(terms) = compile((tokens, nanos, burst)) else { return Ok(()) };
        let ticks = terms.ticks;
        let (whole, part) = ((scale >> 64) as u64, scale as u64);
        let counted = ticks.counted(whole, part);
        prop_assert!(counted.multiplier_low != 0 && counted.packed != 0);
        prop_assert_eq!(counted.is_counted(), scale != 1 << 64);
        let count = now / (whole + 1);
        let exact = count * whole + ((u128::from(count) * u128::from(part)) >> 64) as u64;
        let least = ticks.tick(exact);
        // The excess of the two roundings is under half a tick.
        let ahead = counted.tick(count).wrapping_sub(least);
        let nanosecond = ticks.tick(exact + 1).wrapping_sub(least);
        prop_assert!(ahead <= nanosecond + 1, "{ahead} {nanosecond}");
        if scale == 1 << 64 {
            prop_assert_eq!(counted.tick(now), ticks.tick(now));
            prop_assert_eq!(counted.nanos_until(now, 5), ticks.nanos_until(now, 5));
        }
    }
}

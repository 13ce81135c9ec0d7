//! Random quotas, calls and gaps of time.

use proptest::prelude::*;
use tollgate_distributed::{Amount, Spec};
use tollgate_testing::quota_text;

/// The most credits of a bucket in the tests: 0.95 * 2^53.
const MOST: u64 = (1 << 53) / 100 * 95;

/// A gap between two calls on a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gap {
    /// Real time only.
    None,
    Micros(i64),
    /// Hundredths of the time to fill.
    Fills(u64),
    /// The row is deleted.
    Forgotten,
    /// The row has any credits, and any credits of a token.
    Forged(i64, i64),
}

/// The tokens of a call, in terms of its bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    Few(u64),
    /// Hundredths of the burst.
    Part(u64),
    Any(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    Look,
    Take(Count),
    Lease(Count, Count),
    Back(Count),
    Spent(Count),
    SpentAndTake(Count, Count),
    /// Any numbers, also those that no limiter sends.
    Odd(i64, i64, u64),
}

pub(crate) fn specs() -> impl Strategy<Value = Spec> {
    let nanos = prop_oneof![
        1_000..2_000_000_000_u64,
        Just(1_000_000_000),
        1_000_000..1_u64 << 50,
        1_u64 << 50..1_u64 << 61,
    ];
    let tokens = prop_oneof![Just(1), 1..100_u64, 1..1_u64 << 30];
    let burst = prop_oneof![1..100_u64, 1..1_u64 << 20, 1..1_u64 << 40];
    let any = (tokens, nanos, burst, debts())
        .prop_filter_map("no quota", |(tokens, nanos, burst, debt)| spec(tokens, nanos, burst, debt));
    // One token in a period without a common factor with a tick: a burst near the most credits.
    let large = (1_000_u64..1 << 42, 1..=MOST, debts())
        .prop_filter_map("no quota", |(nanos, most, debt)| spec(1, nanos | 1, most / (nanos | 1), debt));
    let largest = (1_000_u64..1 << 42, debts())
        .prop_filter_map("no quota", |(nanos, debt)| spec(1, nanos | 1, MOST / (nanos | 1), debt));
    let usual = (1..1_000_u64, 1..1_000_u64, debts())
        .prop_filter_map("no quota", |(rate, burst, debt)| spec(rate, 1_000_000_000, burst, debt));
    prop_oneof![3 => usual, 3 => any, 1 => large, 1 => largest]
}

fn debts() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(0), 1 => 1..100_u64, 1 => 1..1_u64 << 30]
}

fn spec(tokens: u64, nanos: u64, burst: u64, debt: u64) -> Option<Spec> {
    Spec::new(quota_text((tokens, nanos, burst)).parse().ok()?, debt).ok()
}

fn counts() -> impl Strategy<Value = Count> {
    prop_oneof![
        4 => (0..6_u64).prop_map(Count::Few),
        4 => (0..150_u64).prop_map(Count::Part),
        1 => (0..64_u32, any::<u64>()).prop_map(|(shift, n)| Count::Any(n >> shift)),
    ]
}

pub(crate) fn wishes() -> impl Strategy<Value = Wish> {
    prop_oneof![
        1 => Just(Wish::Look),
        6 => counts().prop_map(Wish::Take),
        6 => (counts(), counts()).prop_map(|(min, max)| Wish::Lease(min, max)),
        3 => counts().prop_map(Wish::Back),
        2 => counts().prop_map(Wish::Spent),
        2 => (counts(), counts()).prop_map(|(spent, n)| Wish::SpentAndTake(spent, n)),
        1 => any::<(i64, i64, u64)>().prop_map(|(min, max, spent)| Wish::Odd(min, max, spent)),
        1 => (-9..9_i64, -9..9_i64, 0..9_u64).prop_map(|(min, max, spent)| Wish::Odd(min, max, spent)),
    ]
}

pub(crate) fn gaps() -> impl Strategy<Value = Gap> {
    // Of any magnitude, up to the largest of a row.
    let forged = (0..53_u32, 1..1_i64 << 53, 0..53_u32, 1..1_i64 << 53, any::<bool>()).prop_map(
        |(small, credits, of_unit, unit, owes)| {
            let credits = credits >> small;
            Gap::Forged(if owes { -credits } else { credits }, (unit >> of_unit).max(1))
        },
    );
    prop_oneof![
        3 => Just(Gap::None),
        2 => (0..3_000_i64).prop_map(Gap::Micros),
        6 => (0..130_u64).prop_map(Gap::Fills),
        1 => (0..1_i64 << 50).prop_map(Gap::Micros),
        1 => (-1_100_000..0_i64).prop_map(Gap::Micros),
        1 => (-3_600_000_000..-1_000_000_i64).prop_map(Gap::Micros),
        1 => Just(Gap::Forgotten),
        1 => forged,
    ]
}

impl Count {
    fn tokens(self, spec: &Spec) -> i64 {
        let count = match self {
            Count::Few(n) => n,
            Count::Part(hundredths) => {
                (u128::from(spec.quota().capacity()) * u128::from(hundredths) / 100) as u64
            }
            Count::Any(n) => n,
        };
        i64::try_from(count).unwrap_or(i64::MAX)
    }
}

impl Wish {
    pub(crate) fn amount(self, spec: &Spec) -> Amount {
        let n = |count: Count| count.tokens(spec);
        match self {
            Wish::Look => Amount::default(),
            Wish::Take(count) => Amount { min: n(count), max: n(count), spent: 0, of_us: 0 },
            Wish::Lease(one, other) => {
                Amount { min: n(one).min(n(other)), max: n(one).max(n(other)), spent: 0, of_us: 0 }
            }
            Wish::Back(count) => Amount { min: 0, max: -n(count), spent: 0, of_us: 0 },
            Wish::Spent(count) => Amount { min: 0, max: 0, spent: n(count) as u64, of_us: 0 },
            Wish::SpentAndTake(spent, count) => {
                Amount { min: n(count), max: n(count), spent: n(spent) as u64, of_us: 0 }
            }
            Wish::Odd(min, max, spent) => Amount { min, max, spent, of_us: 0 },
        }
    }
}

//! Random steps for the driver, by proptest.

use proptest::collection::vec;
use proptest::prelude::*;

use super::steps::{Ahead, Amount, Move, Verb, Which};

/// A step of a walk: a move of the clock, a change, and a verb.
pub type Step = (Move, Ahead, Verb);

/// Returns readings of the clock at the start of a walk.
pub fn starts() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..1_u64 << 45, 0..1_u64 << 50, 0..1_u64 << 61]
}

/// Returns moves of the clock.
pub fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => Just(Move::Still),
        2 => (0..2_000_u16).prop_map(Move::Nanos),
        6 => (0..3_u32 << 16).prop_map(Move::Tokens),
        2 => (0..2_u32 << 16).prop_map(Move::Fills),
        // The move is up to about 5 months.
        1 => (0..3_u64 << 52).prop_map(Move::Ahead),
        3 => any::<u8>().prop_map(Move::Stale),
        // The move is by more than jitter, and up to an hour.
        1 => (0..4 * 3_600_u16).prop_map(Move::Back),
        4 => Just(Move::Retry),
    ]
}

/// Returns a few tokens mostly, sometimes about the burst, sometimes none or too many.
pub fn amounts() -> impl Strategy<Value = Amount> {
    prop_oneof![
        6 => Just(Amount::Few(1)),
        6 => (1..6_u8).prop_map(Amount::Few),
        1 => Just(Amount::Few(0)),
        1 => (0..=32_u8).prop_map(Amount::Part),
        1 => (16..64_u8).prop_map(Amount::Part),
        1 => (-3..=3_i8).prop_map(Amount::Near),
        1 => (0..64_u32, any::<u64>()).prop_map(|(shift, n)| Amount::Any(n >> shift)),
    ]
}

/// Returns parts of a burst, in percent: none, some, all, and more than all.
pub fn percents() -> impl Strategy<Value = u8> {
    prop_oneof![8 => 0..=100_u8, 1 => Just(0), 1 => Just(100), 1 => any::<u8>()]
}

fn whiches() -> impl Strategy<Value = Which> {
    prop_oneof![3 => Just(0), 1 => 0..4_u8].prop_map(Which::Last)
}

/// Returns takes.
pub fn takes() -> impl Strategy<Value = Verb> {
    amounts().prop_map(Verb::Take)
}

/// Returns reservations without a deadline, or within up to nine times the time of a token.
pub fn reserves(amounts: impl Strategy<Value = Amount>) -> impl Strategy<Value = Verb> {
    (amounts, prop::option::of(0..9 * 256_u16)).prop_map(|(n, patience)| match patience {
        None => Verb::Reserve(n),
        Some(by) => Verb::ReserveWithin(n, by),
    })
}

fn verbs() -> impl Strategy<Value = Verb> {
    prop_oneof![
        8 => takes(),
        3 => amounts().prop_map(Verb::UpTo),
        2 => (amounts(), percents()).prop_map(|(n, percent)| Verb::UpToAbove(n, percent)),
        2 => (amounts(), percents(), prop::option::of(0..9 * 256_u16))
            .prop_map(|(n, percent, patience)| Verb::ReserveAbove(n, percent, patience)),
        3 => (amounts(), percents()).prop_map(|(n, percent)| Verb::Above(n, percent)),
        1 => (0..4_u8, amounts()).prop_map(|(which, n)| Verb::TakeAt(which, n)),
        8 => reserves(amounts()),
        2 => amounts().prop_map(Verb::Refund),
        4 => whiches().prop_map(Verb::Drop),
        1 => any::<(u8, u8)>().prop_map(|(rate, size)| Verb::SetQuota(rate, size)),
    ]
}

/// Returns the verbs that users call.
pub fn public_verbs() -> impl Strategy<Value = Verb> {
    prop_oneof![
        27 => verbs(),
        3 => amounts().prop_map(Verb::Hold),
        3 => (any::<u8>(), amounts()).prop_map(|(which, actual)| Verb::Use(which, actual)),
    ]
}

/// Returns the verbs of an engine.
pub fn inner_verbs() -> impl Strategy<Value = Verb> {
    prop_oneof![
        27 => verbs(),
        2 => whiches().prop_map(Verb::Undo),
        3 => amounts().prop_map(Verb::Charge),
    ]
}

/// Returns no change: the verb is under the own quota.
pub fn own() -> impl Strategy<Value = Ahead> {
    Just(Ahead::Under(0))
}

/// Returns plans, which are made on the way.
pub fn plans() -> impl Strategy<Value = Ahead> {
    let new = any::<(u8, u8)>().prop_map(|(rate, size)| Ahead::Plan(rate, size));
    prop_oneof![16 => (0..4_u8).prop_map(Ahead::Under), 1 => new]
}

/// Returns the steps of a walk.
pub fn steps(
    moves: impl Strategy<Value = Move>,
    aheads: impl Strategy<Value = Ahead>,
    verbs: impl Strategy<Value = Verb>,
    most: usize,
) -> impl Strategy<Value = Vec<Step>> {
    vec((moves, aheads, verbs), 1..=most)
}

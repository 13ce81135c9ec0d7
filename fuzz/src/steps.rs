//! Steps from bytes: quotas, moves of the clock, and amounts.

use tollgate_testing::SECOND;
use tollgate_testing::reference::Asked;
use tollgate_testing::reference::steps::{Amount, Move};

use crate::bytes::Bytes;

/// Returns a quota, in and out of the bounds. Its period is mostly a usual one.
pub(crate) fn asked(bytes: &mut Bytes<'_>) -> Asked {
    let kind = bytes.byte();
    let period = match kind % 8 {
        0 => 1,
        1 => 1_000_000,
        2 => SECOND,
        3 => 60 * SECOND,
        4 => 3_600 * SECOND,
        5 => 86_400 * SECOND,
        _ => bytes.spread(63),
    };
    let tokens = if kind & 8 == 0 { bytes.spread(44) } else { u64::from(bytes.byte()) };
    let burst = if kind & 16 == 0 { bytes.spread(41) } else { u64::from(bytes.byte()) };
    match kind >> 5 {
        // The rest is at a bound: the fastest rate, the largest burst, the longest period, the
        // longest time to fill.
        4 => (near_to(period.saturating_mul(1_000), bytes), period, burst),
        5 => (tokens, period, near_to(1 << 40, bytes)),
        6 => (tokens, near_to(1 << 62, bytes), burst),
        7 => {
            let most = (u128::from(tokens) << 62) / u128::from(period.max(1));
            (tokens, period, near_to(u64::try_from(most).unwrap_or(u64::MAX), bytes))
        }
        _ => (tokens, period, burst),
    }
}

/// Returns a number that is up to two more or less.
fn near_to(number: u64, bytes: &mut Bytes<'_>) -> u64 {
    number.saturating_add_signed(i64::from(bytes.byte() % 5) - 2)
}

/// Returns a move of the clock.
pub(crate) fn moved(kind: u8, bytes: &mut Bytes<'_>) -> Move {
    match kind % 16 {
        0..=3 => Move::Still,
        4 => Move::Nanos(bytes.short()),
        5 | 6 => Move::Tokens(u32::from(bytes.short()) << 8),
        7 => Move::Fills(u32::from(bytes.byte()) << 10),
        8 => Move::Sixteenths(bytes.byte()),
        9 => Move::Turn(bytes.short().cast_signed()),
        10 => Move::Ahead(bytes.spread(62)),
        11 | 12 => Move::Retry,
        13 => Move::Stale(bytes.byte()),
        14 => Move::Back(bytes.short()),
        _ => Move::Rewind(bytes.spread(62)),
    }
}

/// Returns a number of tokens.
pub(crate) fn amount(bytes: &mut Bytes<'_>) -> Amount {
    match bytes.byte() {
        few @ 0..64 => Amount::Few(few % 8),
        few @ 64..128 => Amount::Few(few),
        part @ 128..192 => Amount::Part(part % 64),
        192..224 => Amount::Near(bytes.byte().cast_signed()),
        _ => Amount::Any(bytes.spread(64)),
    }
}

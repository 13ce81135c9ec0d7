//! How cases are made: quotas, moves of the clock, and amounts, by parts of what there is.

use std::time::Duration;

use tollgate::Quota;

use crate::bytes::Bytes;
use crate::reference::{Ideal, Unit};
use crate::time::LAST;

const SECOND: u64 = 1_000_000_000;

/// Tokens, period in ns, burst.
pub(crate) type Asked = (u64, u64, u64);

/// A quota, in and out of the bounds. Periods are mostly those that people write.
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
        // At a bound: the fastest rate, the largest burst, the longest period, the longest time to fill.
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

/// A number, or up to two more or less.
fn near_to(number: u64, bytes: &mut Bytes<'_>) -> u64 {
    number.saturating_add_signed(i64::from(bytes.byte() % 5) - 2)
}

/// The same period, some times the rate and the burst.
pub(crate) fn near((tokens, period, burst): Asked, rate: u8, size: u8) -> Asked {
    // 32nds of powers of two, up to 16 times or a 16th.
    let times = |n: u64, by: u8, most: u64| {
        let n = u128::from(n) * u128::from(32 + by % 32);
        let n = if by >= 128 { n >> (by / 32 - 4) } else { n << (by / 32) };
        u64::try_from(n / 32).unwrap_or(most).clamp(1, most)
    };
    (times(tokens, rate, (1 << 44) - 1), period, times(burst, size, 1 << 40))
}

/// The quota, if there is one: it must be refused exactly when a documented bound is broken or the rules of
/// the design find no layout, which they may only above 500 tokens a nanosecond.
pub(crate) fn quota((tokens, nanos, burst): Asked) -> Option<Quota> {
    let quota = Quota::try_per(tokens, Duration::from_nanos(nanos), burst).ok();
    let (rate, period) = (u128::from(tokens), u128::from(nanos));
    let bounded = (tokens >= 1 && (1..=1 << 62).contains(&nanos) && (1..=1 << 40).contains(&burst))
        && rate <= 1_000 * period
        && u128::from(burst) * period <= rate << 62;
    let fits = bounded && Unit::choose(tokens, nanos, burst).is_some();
    assert_eq!(quota.is_some(), fits, "{tokens} every {nanos} ns, burst {burst}");
    assert!(fits || !bounded || rate > 500 * period, "{tokens} every {nanos} ns, burst {burst}");
    quota
}

/// The quota, if there is one that the reference counts in 128 bits.
pub(crate) fn counted(asked: Asked) -> Option<Quota> {
    quota(asked).filter(|quota| quota.tokens() < 1 << 44)
}

/// Whether the reference counts a plan beside the own quota: it multiplies a level by a rate.
pub(crate) fn counts_plan(own: Asked, (tokens, _, burst): Asked) -> bool {
    const MOST: u64 = 1 << 30;
    own.0 < MOST && tokens < MOST && burst < MOST && own.1 < 1 << 50
}

/// How the clock moves before a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    Still,
    Nanos(u16),
    /// By 256ths of the time of a token.
    Tokens(u16),
    /// By 64ths of the time to fill the bucket.
    Fills(u8),
    /// By 16ths of a second: about the margin of eviction.
    Sixteenths(u8),
    /// By the range of the stamp, give or take quarters of a second, up to 2 h 16 min.
    Turn(i16),
    Ahead(u64),
    /// To a nanosecond before the latest refusal is due, and then to when it is.
    Retry,
    /// Back by 256ths of what is surely jitter.
    Stale(u8),
    /// Back by the jitter and quarters of a second, up to 4 h 33 min.
    Back(u16),
    Rewind(u64),
}

impl Move {
    pub(crate) fn read(kind: u8, bytes: &mut Bytes<'_>) -> Move {
        match kind % 16 {
            0..=3 => Move::Still,
            4 => Move::Nanos(bytes.short()),
            5 | 6 => Move::Tokens(bytes.short()),
            7 => Move::Fills(bytes.byte()),
            8 => Move::Sixteenths(bytes.byte()),
            9 => Move::Turn(bytes.short().cast_signed()),
            10 => Move::Ahead(bytes.spread(62)),
            11 | 12 => Move::Retry,
            13 => Move::Stale(bytes.byte()),
            14 => Move::Back(bytes.short()),
            _ => Move::Rewind(bytes.spread(62)),
        }
    }
}

/// What moves are measured by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    quota: Asked,
    jitter: u64,
    range: u64,
}

impl Scale {
    pub(crate) fn new(quota: Asked, unit: Unit, ideal: &Ideal) -> Scale {
        let scale = Scale { quota, jitter: ideal.jitter(), range: 0 };
        let range = scale.time(1 << (unit.stamp + unit.scale), 1 << unit.fraction);
        Scale { range, ..scale }
    }

    /// The time of `n / of` tokens.
    pub(crate) fn time(&self, n: u64, of: u64) -> u64 {
        let time = u128::from(n) * u128::from(self.quota.1) / (u128::from(self.quota.0) * u128::from(of));
        u64::try_from(time).unwrap_or(LAST)
    }

    /// Where a move takes the clock.
    pub(crate) fn moved(&self, now: u64, step: Move) -> u64 {
        const QUARTER: u64 = SECOND / 4;
        match step {
            Move::Still | Move::Retry => now,
            Move::Nanos(by) => now + u64::from(by),
            Move::Tokens(by) => now.saturating_add(self.time(by.into(), 256)),
            Move::Fills(by) => now.saturating_add(self.time(u64::from(by) * self.quota.2, 64)),
            Move::Sixteenths(by) => now + u64::from(by) * SECOND / 16,
            Move::Turn(by) => {
                now.saturating_add(self.range).saturating_add_signed(i64::from(by) * QUARTER.cast_signed())
            }
            Move::Ahead(by) => now.saturating_add(by),
            Move::Stale(by) => now.saturating_sub(self.jitter / 255 * u64::from(by)),
            Move::Back(by) => now.saturating_sub(self.jitter).saturating_sub(u64::from(by) * QUARTER),
            Move::Rewind(by) => now.saturating_sub(by),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Amount {
    Few(u8),
    /// 32nds of the burst, up to eight of it.
    Part(u8),
    /// The burst and a few more or less.
    Near(i8),
    Any(u64),
}

impl Amount {
    pub(crate) fn read(bytes: &mut Bytes<'_>) -> Amount {
        match bytes.byte() {
            few @ 0..64 => Amount::Few(few % 8),
            few @ 64..128 => Amount::Few(few),
            part @ 128..192 => Amount::Part(part % 64),
            192..224 => Amount::Near(bytes.byte().cast_signed()),
            _ => Amount::Any(bytes.spread(64)),
        }
    }

    pub(crate) fn of(self, burst: u64) -> u64 {
        match self {
            Amount::Few(n) => n.into(),
            Amount::Part(part) => u64::from(part) * burst / 32,
            Amount::Near(by) => burst.saturating_add_signed(by.into()),
            Amount::Any(n) => n,
        }
    }
}

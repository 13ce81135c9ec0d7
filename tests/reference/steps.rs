//! The steps of a walk: moves of the clock, amounts and verbs, as parts of the quota.

#![allow(dead_code, reason = "not every user of the reference drives a bucket")]

use std::time::Duration;

use tollgate::Quota;

use super::time::{LAST, nanos};
use super::unit::Asked;
use super::{Ideal, Unit};

const SECOND: u64 = 1_000_000_000;

/// Returns the numbers of a quota.
pub(crate) fn asked(quota: Quota) -> Asked {
    (quota.tokens(), nanos(quota.period()), quota.capacity())
}

/// Returns a quota with the same period, and multiples of the rate and the burst.
pub(crate) fn near((tokens, period, burst): Asked, rate: u8, size: u8) -> Asked {
    // The factors are 32nds of powers of two, up to 16 times or a 16th.
    let times = |n: u64, by: u8, most: u64| {
        let n = u128::from(n) * u128::from(32 + by % 32);
        let n = if by >= 128 { n >> (by / 32 - 4) } else { n << (by / 32) };
        u64::try_from(n / 32).unwrap_or(most).clamp(1, most)
    };
    (times(tokens, rate, (1 << 44) - 1), period, times(burst, size, 1 << 40))
}

/// Returns the quota, if there is one. It must be refused exactly when a documented bound is broken
/// or the rules of the design find no layout. They may find none only above 500 tokens a
/// nanosecond.
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

/// Returns the quota, if there is one that the reference counts in 128 bits.
pub(crate) fn counted(asked: Asked) -> Option<Quota> {
    quota(asked).filter(|quota| quota.tokens() < 1 << 44)
}

/// Returns whether the reference counts a plan beside the own quota: it multiplies a level by a
/// rate.
pub(crate) fn counts_plan(own: Asked, (tokens, _, burst): Asked) -> bool {
    const MOST: u64 = 1 << 30;
    own.0 < MOST && tokens < MOST && burst < MOST && own.1 < 1 << 50
}

/// A move of the clock before a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    Still,
    Nanos(u16),
    /// Forward by 65,536ths of the time of a token.
    Tokens(u32),
    /// Forward by 65,536ths of the time to fill the bucket.
    Fills(u32),
    /// Forward by 16ths of a second: about the margin of eviction.
    Sixteenths(u8),
    /// Forward by the range of the stamp, give or take quarters of a second, up to 2 h 16 min.
    Turn(i16),
    Ahead(u64),
    /// Forward to a nanosecond before the latest refusal is due, and then to its due time.
    Retry,
    /// Back by 256ths of the sure jitter.
    Stale(u8),
    /// Back by the jitter and quarters of a second, up to 4 h 33 min.
    Back(u16),
    Rewind(u64),
}

impl Move {
    /// Returns this move, if it is not by years or through the range of a stamp.
    pub(crate) fn of_hours(self) -> Move {
        match self {
            Move::Turn(_) | Move::Ahead(_) | Move::Rewind(_) => Move::Still,
            by => by,
        }
    }
}

/// The units of moves.
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

    /// Returns the time of `n / of` tokens.
    pub(crate) fn time(&self, n: u64, of: u64) -> u64 {
        let time = u128::from(n) * u128::from(self.quota.1) / (u128::from(self.quota.0) * u128::from(of));
        u64::try_from(time).unwrap_or(LAST)
    }

    /// Returns the clock's reading after a move.
    pub(crate) fn moved(&self, now: u64, step: Move) -> u64 {
        const QUARTER: u64 = SECOND / 4;
        match step {
            Move::Still | Move::Retry => now,
            Move::Nanos(by) => now + u64::from(by),
            Move::Tokens(by) => now.saturating_add(self.time(by.into(), 1 << 16)),
            Move::Fills(by) => now.saturating_add(self.time(u64::from(by) * self.quota.2, 1 << 16)),
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
    /// 32nds of the burst, up to eight bursts.
    Part(u8),
    /// The burst and a few more or less.
    Near(i8),
    Any(u64),
}

impl Amount {
    pub(crate) fn of(self, burst: u64) -> u64 {
        match self {
            Amount::Few(n) => n.into(),
            Amount::Part(part) => u64::from(part) * burst / 32,
            Amount::Near(by) => burst.saturating_add_signed(by.into()),
            Amount::Any(n) => n,
        }
    }
}

/// One of the takes that may be given back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// Counted from the first, or the latest if there are fewer.
    First(u8),
    /// Counted back from the latest.
    Last(u8),
}

impl Which {
    /// Returns the index among `all`, which is at least one.
    pub(crate) fn of(self, all: usize) -> usize {
        match self {
            Which::First(index) => usize::from(index).min(all - 1),
            Which::Last(back) => (all - 1).saturating_sub(back.into()),
        }
    }
}

/// A change that goes ahead of a verb.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ahead {
    /// The verb is under one of the latest plans, or under the own quota.
    Under(u8),
    /// A plan is made, of multiples of the rate and the burst, and the verb is under it.
    Plan(u8, u8),
    Remove,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Take(Amount),
    UpTo(Amount),
    /// A take of the tokens above a part of the burst, in percent.
    UpToAbove(Amount, u8),
    /// A take that leaves a part of the burst, in percent.
    Above(Amount, u8),
    /// A take at one of the latest readings.
    TakeAt(u8, Amount),
    Reserve(Amount),
    /// A reservation that is due when a part of the burst stays, in percent, and its patience.
    ReserveAbove(Amount, u8, Option<u16>),
    /// A reservation with a patience of 256ths of the time of a token.
    ReserveWithin(Amount, u16),
    Refund(Amount),
    /// A reservation or a take is given back.
    Drop(Which),
    /// A reservation is used, or a hold is settled.
    Use(u8, Amount),
    Hold(Amount),
    /// A charge on credit.
    Charge(Amount),
    Undo(Which),
    /// A quota of multiples of the rate and the burst.
    SetQuota(u8, u8),
}

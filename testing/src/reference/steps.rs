//! The steps of a walk: moves of the clock, amounts and verbs, as parts of the quota.

use std::time::Duration;

use super::{Asked, Ideal, Unit};
use crate::SECOND;

/// The last reading of a mock clock: 2^62 ns, less an hour and the jitter. A bucket with no longer
/// range takes those for a jump back.
pub const LAST: u64 = (1 << 62) - (1 << 42);

/// Returns the nanoseconds of a wait.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("a wait is below 2^64 ns")
}

/// Returns a quota with the same period, and multiples of the rate and the burst.
pub fn near((tokens, period, burst): Asked, rate: u8, size: u8) -> Asked {
    // The factors are 32nds of powers of two, up to 16 times or a 16th.
    let times = |n: u64, by: u8, most: u64| {
        let n = u128::from(n) * u128::from(32 + by % 32);
        let n = if by >= 128 { n >> (by / 32 - 4) } else { n << (by / 32) };
        u64::try_from(n / 32).unwrap_or(most).clamp(1, most)
    };
    (times(tokens, rate, (1 << 44) - 1), period, times(burst, size, 1 << 40))
}

/// Returns whether the reference counts a plan beside the own quota: it multiplies a level by a
/// rate.
pub fn counts_plan(own: Asked, (tokens, _, burst): Asked) -> bool {
    const MOST: u64 = 1 << 30;
    own.0 < MOST && tokens < MOST && burst < MOST && own.1 < 1 << 50
}

/// A move of the clock before a step.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// The clock stands.
    Still,
    /// Forward by nanoseconds.
    Nanos(u16),
    /// Forward by 65,536ths of the time of a token.
    Tokens(u32),
    /// Forward by 65,536ths of the time to fill the bucket.
    Fills(u32),
    /// Forward by 16ths of a second: about the margin of eviction.
    Sixteenths(u8),
    /// Forward by the range of the stamp, give or take quarters of a second, up to 2 h 16 min.
    Turn(i16),
    /// Forward by nanoseconds, up to years.
    Ahead(u64),
    /// Forward to a nanosecond before the latest refusal is due, and then to its due time.
    Retry,
    /// Back by 256ths of the sure jitter.
    Stale(u8),
    /// Back by the jitter and quarters of a second, up to 4 h 33 min.
    Back(u16),
    /// Back by nanoseconds, up to years.
    Rewind(u64),
}

impl Move {
    /// Returns this move, if it is not by years or through the range of a stamp.
    pub fn of_hours(self) -> Move {
        match self {
            Move::Turn(_) | Move::Ahead(_) | Move::Rewind(_) => Move::Still,
            by => by,
        }
    }
}

/// The units of moves.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    quota: Asked,
    jitter: u64,
    range: u64,
}

impl Scale {
    /// Returns the units of a quota.
    pub fn new(quota: Asked, unit: Unit, ideal: &Ideal) -> Scale {
        let scale = Scale { quota, jitter: ideal.jitter(), range: 0 };
        let range = scale.time(1 << (unit.stamp + unit.scale), 1 << unit.fraction);
        Scale { range, ..scale }
    }

    /// Returns the time of `n / of` tokens.
    pub fn time(&self, n: u64, of: u64) -> u64 {
        let time = u128::from(n) * u128::from(self.quota.1) / (u128::from(self.quota.0) * u128::from(of));
        u64::try_from(time).unwrap_or(LAST)
    }

    /// Returns the clock's reading after a move.
    pub fn moved(&self, now: u64, step: Move) -> u64 {
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

/// A number of tokens.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// This number.
    Few(u8),
    /// 32nds of the burst, up to eight bursts.
    Part(u8),
    /// The burst and a few more or less.
    Near(i8),
    /// This number, of any magnitude.
    Any(u64),
}

impl Amount {
    /// Returns the tokens, beside a burst.
    pub fn of(self, burst: u64) -> u64 {
        match self {
            Amount::Few(n) => n.into(),
            // The burst may be one that no quota has.
            Amount::Part(part) => {
                u64::try_from(u128::from(part) * u128::from(burst) / 32).unwrap_or(u64::MAX)
            }
            Amount::Near(by) => burst.saturating_add_signed(by.into()),
            Amount::Any(n) => n,
        }
    }
}

/// One of the takes that may be given back.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    /// Counted from the first, or the latest if there are fewer.
    First(u8),
    /// Counted back from the latest.
    Last(u8),
}

impl Which {
    /// Returns the index among `all`, which is at least one.
    pub fn of(self, all: usize) -> usize {
        match self {
            Which::First(index) => usize::from(index).min(all - 1),
            Which::Last(back) => (all - 1).saturating_sub(back.into()),
        }
    }
}

/// A change that goes ahead of a verb.
#[derive(Clone, Copy, Debug)]
pub enum Ahead {
    /// The verb is under one of the latest plans, or under the own quota.
    Under(u8),
    /// A plan is made, of multiples of the rate and the burst, and the verb is under it.
    Plan(u8, u8),
    /// The key is removed.
    Remove,
}

/// A step of a bucket.
#[derive(Clone, Copy, Debug)]
pub enum Verb {
    /// A take of all tokens or none.
    Take(Amount),
    /// A take of the tokens that are there.
    UpTo(Amount),
    /// A take of the tokens above a part of the burst, in percent.
    UpToAbove(Amount, u8),
    /// A take that leaves a part of the burst, in percent.
    Above(Amount, u8),
    /// A take at one of the latest readings.
    TakeAt(u8, Amount),
    /// A reservation without a bound on its wait.
    Reserve(Amount),
    /// A reservation that is due when a part of the burst stays, in percent, and its patience.
    ReserveAbove(Amount, u8, Option<u16>),
    /// A reservation with a patience of 256ths of the time of a token.
    ReserveWithin(Amount, u16),
    /// A refund.
    Refund(Amount),
    /// A reservation or a take is given back.
    Drop(Which),
    /// A reservation is used, or a hold is settled.
    Use(u8, Amount),
    /// A hold.
    Hold(Amount),
    /// A charge on credit.
    Charge(Amount),
    /// A reservation is undone.
    Undo(Which),
    /// A quota of multiples of the rate and the burst.
    SetQuota(u8, u8),
}

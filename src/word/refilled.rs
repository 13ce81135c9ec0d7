//! A bucket right after a decision: its level and its refill, as far as waits need them.
//!
//! A decision stores these numbers as they are at hand. The waits are computed when asked for, in
//! `decision/waits.rs`, so that decisions do not pay for them.

use crate::rule::counts::CountWidths;
use crate::word::tick::TickScale;

/// The level and the refill of a bucket, from a clock reading `from` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refilled {
    /// A bucket under the limiter's own quota.
    Own {
        /// Units above the empty bucket, less those that are earned while the reading is behind
        /// the stamp; below 0 in debt.
        level: i64,
        /// Units of a full bucket.
        full: u64,
        from: u64,
        /// The scale, with the [fraction](TickScale::fraction) of a token.
        clock: TickScale,
    },
    /// A bucket under a plan, whose stamp is that of the reading.
    Planned {
        /// Whole tokens of a full bucket, below 2^41, in two parts beside the tag. The upper 7 bits
        /// are the plan's shift.
        burst_high: u16,
        burst_low: u32,
        tick: u64,
        factor: u64,
        from: u64,
        /// The scale, with the fraction of a token and the [part](TickScale::part) that is there.
        clock: TickScale,
    },
    /// A bucket under a plan that is in debt, or not yet at its stamp or at the plan's start.
    Late {
        /// Whole tokens of a full bucket, below 2^48, in two parts beside the tag.
        burst_high: u16,
        burst_low: u32,
        /// Ticks until one token more is there, and until the bucket is full.
        next: u64,
        reset: u64,
        from: u64,
        clock: TickScale,
    },
    /// A window.
    Window {
        counts: CountWidths,
        lag: u32,
        /// The counts in the word.
        level: u64,
        /// The limit, and in the upper 16 bits the part of a weighted window that has passed.
        limit_and_part: u64,
        from: u64,
        clock: TickScale,
    },
    /// The nanoseconds until the bucket is full: all that is known.
    Told { reset: u64 },
    /// No token comes until another limit is set.
    Never,
}

impl Refilled {
    pub(crate) const PART: u32 = 48;
    /// The bits of `burst_high` from here on are the plan's shift.
    pub(crate) const SHIFT: u32 = 9;
    pub(crate) const BURST_HIGH: u16 = (1 << Refilled::SHIFT) - 1;
}

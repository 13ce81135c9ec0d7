//! The bounds of windows, and the fields of their words.
//!
//! | window         | `S..64`                                    | `0..S`: stamp | a tick       |
//! |----------------|--------------------------------------------|---------------|--------------|
//! | fixed, `utc`   | tokens used                                | index         | `P`          |
//! | from first use | tokens used                                | start         | `P / 2^16`   |
//! | sliding, `b`   | `b + 1` counts, the current one lowest     | index         | `P / b`      |
//! | weighted       | tokens of the window before, and of this   | index         | `P`          |
//! | places         | places in use                              | commits       | none         |
//!
//! Invariants of every layout, for every limit up to its `top`:
//!
//! * no field carries into the next: a sum of counts is below `2^count`;
//! * the bits `S..64` are never all ones, so no word is a reserved one;
//! * the stamp's range is at least 2^46 ns (19.5 hours), and at least 64 times the time until
//!   tokens are forgotten.

use crate::rule::counts::{CountWidths, Counting, bits};
use crate::rule::layout::{MAX_BURST, MAX_NANOS, RawQuota, Widths, at_least};

/// A window is at least 1 ms long.
pub(crate) const MIN_PERIOD: u64 = 1_000_000;
/// Ticks in a window from the first use.
pub(crate) const FIRST_USE_TICKS: u64 = 1 << 16;
/// A sliding window has at least this number of sub-windows, unless a granularity is named.
pub(crate) const MIN_SUB_WINDOWS: u64 = 4;
/// Most places of a key. The count has 21 bits, which leaves 43 for the number of commits.
pub(crate) const MAX_PLACES: u32 = 1 << 20;
/// The longest month.
pub(crate) const MONTH: u64 = 31 * 86_400_000_000_000;

/// The reason why a window cannot be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowError {
    NoLimit,
    LargeLimit(u64),
    /// The period in nanoseconds.
    ShortPeriod(u128),
    LongPeriod(u128),
    NoGranularity,
    /// Limit and period of a sliding window, and its sub-windows: too few.
    FewSubWindows(u64, u64, u64),
    /// Limit and period of a sliding window, its sub-windows, and their greatest length.
    CoarseSubWindows(u64, u64, u64, u64),
    /// Limit and period of a window that fits no word.
    NoLayout(u64, u64),
    MonthWithoutEdges,
    /// Minutes to the east of UTC.
    FarOffset(i16),
    /// A limit that is over the largest of a word that is built.
    LimitTooWide(u64, u64),
    /// A limit of places that is 0 or above the most.
    FewOrManyPlaces(u32),
}

/// The widths of a word for windows, and its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowLayout {
    pub(crate) widths: Widths,
    /// Ticks every `nanos`. The burst is the limit.
    pub(crate) numbers: RawQuota,
}

impl WindowLayout {
    /// Returns the layout for `ticks` ticks a period, of which `live` hold tokens that count;
    /// `None` if the stamp's range is too short.
    const fn fits(
        widths: CountWidths,
        ticks: u64,
        live: u64,
        limit: u64,
        nanos: u64,
    ) -> Option<WindowLayout> {
        let stamp = widths.stamp();
        if stamp < 7 || (1 << stamp) < 64 * live || !at_least(nanos, ticks, stamp as i32 - 46) {
            return None;
        }
        Some(WindowLayout {
            widths: Widths { fraction: 0, scale: 0, stamp: stamp as u8, fixed_debt: true, counts: widths },
            numbers: RawQuota { tokens: ticks, nanos, burst: limit },
        })
    }

    /// Returns the layout of a sliding window with the most sub-windows that fit.
    pub(super) const fn sliding(limit: u64, nanos: u64, top: u64) -> Option<WindowLayout> {
        let count = bits(top);
        let mut before = 63 / count as u64;
        while before > 0 {
            let widths = CountWidths { counting: Counting::SubWindows, count, before: before as u8 };
            match WindowLayout::fits(widths, before, before + 1, limit, nanos) {
                None => before -= 1,
                found => return found,
            }
        }
        None
    }

    pub(super) const fn weighted(limit: u64, nanos: u64, top: u64) -> Option<WindowLayout> {
        let widths = CountWidths { counting: Counting::Weighted, count: bits(top + 1), before: 1 };
        WindowLayout::fits(widths, 1, 2, limit, nanos)
    }

    pub(super) const fn fixed(counting: Counting, limit: u64, nanos: u64, top: u64) -> Option<WindowLayout> {
        let ticks = if matches!(counting, Counting::FirstUse) { FIRST_USE_TICKS } else { 1 };
        WindowLayout::fits(CountWidths::alone(counting, top), ticks, ticks, limit, nanos)
    }

    /// Returns the layout of a word that counts places in use, up to a limit of [`MAX_PLACES`].
    pub(crate) const fn places(limit: u32) -> WindowLayout {
        let counts = CountWidths::alone(Counting::Places, MAX_PLACES as u64);
        WindowLayout {
            widths: Widths { fraction: 0, scale: 0, stamp: counts.stamp() as u8, fixed_debt: true, counts },
            // No decision depends on a tick.
            numbers: RawQuota { tokens: 1, nanos: 1_000_000_000, burst: limit as u64 },
        }
    }

    pub(crate) const fn sub_windows(&self) -> u64 {
        self.widths.counts.before as u64
    }
}

impl CountWidths {
    /// Checks whether the counts can hold a limit.
    pub(crate) const fn check(self, limit: u64) -> Result<(), WindowError> {
        match limit {
            0 => Err(WindowError::NoLimit),
            _ if limit > self.most() => Err(WindowError::LimitTooWide(limit, self.most())),
            _ => Ok(()),
        }
    }
}

/// Checks the bounds of every limit and period.
pub(super) const fn check(limit: u64, nanos: u128) -> Result<(), WindowError> {
    if limit == 0 {
        return Err(WindowError::NoLimit);
    }
    if limit > MAX_BURST {
        return Err(WindowError::LargeLimit(limit));
    }
    if nanos < MIN_PERIOD as u128 {
        return Err(WindowError::ShortPeriod(nanos));
    }
    if nanos > MAX_NANOS as u128 {
        return Err(WindowError::LongPeriod(nanos));
    }
    Ok(())
}

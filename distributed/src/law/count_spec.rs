//! A window as a store counts it.
//!
//! All numbers are whole, and below 2^53 for each time of the next 70 years: a store that computes
//! in doubles is exact.

use std::time::Duration;

use tollgate::Window;

use super::amount::Amount;
use super::spec::InvalidSpec;

/// The fewest sub-windows of a sliding window. It does not depend on the limit, so the counts of a
/// key keep their places when its limit changes.
const SUB_WINDOWS: u64 = 16;

/// The most sub-windows. The word of the core has at most 63.
pub(crate) const MAX_PARTS: u16 = 64;

/// A limit of tokens in a window, as a store counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CountSpec {
    limit: u64,
    parts: u16,
    edges: Edges,
    is_leased: bool,
}

/// The times at which a window, or a sub-window of a sliding one, ends and the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Edges {
    /// Every `period_us` microseconds, the first one `offset_us` after the begin of 1970.
    Every {
        /// The time between two edges.
        period_us: u64,
        /// From 0 to the time between two edges.
        offset_us: i64,
    },
    /// From the first grant for `period_us` microseconds. The next window begins with the first
    /// grant after that.
    FirstUse {
        /// The length of the window.
        period_us: u64,
    },
    /// At these times, in microseconds since 1970: the edges of two windows. They are those of
    /// civil months, which a store does not compute.
    Given([u64; 3]),
}

impl CountSpec {
    /// Returns a window as a store counts it.
    ///
    /// `unix` is the time since 1970 by the clock of the caller. It matters to civil months alone:
    /// the spec has those around it, so that each time of a store's clock which differs by less
    /// than two weeks lies in one of them.
    ///
    /// A sliding window has at least 16 sub-windows, and none is longer than in the core.
    ///
    /// # Errors
    ///
    /// [`InvalidSpec`] for a [weighted](Window::weighted) window, and for one that is
    /// [blocked](Window::blocked).
    pub fn new(window: Window, unix: Duration) -> Result<CountSpec, InvalidSpec> {
        let limit = window.limit();
        let period_us = micros_up(window.period());
        let of = |parts, edges| Ok(CountSpec { limit, parts, edges, is_leased: false });
        match (window.sub_window(), window.edges_at(unix)) {
            _ if limit == 0 => Err(InvalidSpec::of_window(window)),
            (Some(sub_window), _) => {
                let parts = window.period().as_nanos().div_ceil(sub_window.as_nanos()) as u64;
                let parts = parts.next_power_of_two().clamp(SUB_WINDOWS, u64::from(MAX_PARTS));
                let period_us = period_us.div_ceil(parts);
                of(parts as u16, Edges::Every { period_us, offset_us: 0 })
            }
            (None, Some(at)) if is_monthly(window) => of(1, Edges::Given(months_around(window, at, unix))),
            (None, Some((_, end))) => {
                of(1, Edges::Every { period_us, offset_us: (micros_up(end) % period_us) as i64 })
            }
            (None, None) if window.has_edges() => of(1, Edges::FirstUse { period_us }),
            (None, None) => Err(InvalidSpec::of_window(window)),
        }
    }

    /// Returns the spec of a lease. If a call asks for more tokens than the fewest, it is granted
    /// at most half of those left, or the fewest if that is more: later callers find some.
    #[must_use]
    pub fn leased(self) -> CountSpec {
        CountSpec { is_leased: true, ..self }
    }

    /// Returns the spec with its first edge at the begin of 1970, if it has edges at equal times: a
    /// week begins on a Thursday.
    #[must_use]
    pub fn from_1970(self) -> CountSpec {
        match self.edges {
            Edges::Every { period_us, .. } => {
                CountSpec { edges: Edges::Every { period_us, offset_us: 0 }, ..self }
            }
            _ => self,
        }
    }

    /// Returns the spec with another limit, and the same sub-windows.
    pub(crate) fn with_limit(self, limit: u64) -> CountSpec {
        CountSpec { limit, ..self }
    }

    /// Returns the limit, in tokens.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the sub-windows of a sliding window; 1 of a fixed one.
    #[must_use]
    pub fn parts(&self) -> u16 {
        self.parts
    }

    /// Returns the edges of the window, or of the sub-windows of a sliding one.
    #[must_use]
    pub fn edges(&self) -> Edges {
        self.edges
    }

    /// Tells whether a call is granted at most half of the tokens left.
    pub(crate) fn halves(&self, amount: Amount) -> bool {
        self.is_leased && amount.max > amount.min
    }

    /// Returns how many numbers are counted. An interval of a sliding window's period touches one
    /// sub-window more than the period has.
    pub(crate) fn counts(&self) -> usize {
        match self.parts {
            1 => 1,
            parts => usize::from(parts) + 1,
        }
    }
}

/// Tells whether the edges are those of civil months: their period is that of the longest month,
/// and February 1970 is shorter.
fn is_monthly(window: Window) -> bool {
    let february = window.edges_at(Duration::from_secs(40 * 86_400));
    february.is_some_and(|(begin, end)| end - begin != window.period())
}

/// Returns the edges of the month at a time and of the nearer of its neighbours.
fn months_around(window: Window, (begin, end): (Duration, Duration), unix: Duration) -> [u64; 3] {
    let (earlier, later) = (unix.saturating_sub(begin), end.saturating_sub(unix));
    let beside = |at: Duration| window.edges_at(at).unwrap_or((begin, end));
    let edges = if earlier < later && !begin.is_zero() {
        [beside(begin.saturating_sub(Duration::from_nanos(1))).0, begin, end]
    } else {
        [begin, end, beside(end).1]
    };
    edges.map(micros_up)
}

fn micros_up(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

//! The sentences of the errors of a window.

use std::fmt;
use std::time::Duration;

use crate::rule::layout::MAX_BURST;
use crate::rule::period::Period;
use crate::rule::rate::Quota;
use crate::rule::utc_offset::UtcOffset;
use crate::rule::window_layout::{MONTH, WindowError, check};

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flaw = *self;
        match flaw {
            WindowError::NoLimit | WindowError::MonthWithoutEdges => f.write_str(flaw.sentence()),
            WindowError::LargeLimit(limit) => {
                write!(f, "a limit of {limit} is over the bound of 2^40 = {MAX_BURST} tokens")
            }
            WindowError::ShortPeriod(nanos) => {
                write!(f, "a window of {nanos} ns is under the bound of 1 ms")
            }
            WindowError::LongPeriod(nanos) => {
                write!(f, "a window of {nanos} ns is over the bound of 2^62 ns (146 years)")
            }
            WindowError::NoGranularity => f.write_str("a granularity of 0 ns is under the bound of 1 ns"),
            WindowError::FewSubWindows(limit, nanos, subs) => {
                let sub = Period(nanos.div_ceil(subs));
                write!(
                    f,
                    "a limit of {limit} leaves {subs} sub-windows of {sub:#}, under the bound of 4: tokens would come \
                     back up to {sub:#} late. Say "
                )?;
                advise(f, limit, nanos, sub)
            }
            WindowError::CoarseSubWindows(limit, nanos, subs, longest) => {
                let (sub, longest) = (Period(nanos.div_ceil(subs)), Period(longest));
                write!(
                    f,
                    "a limit of {limit} leaves {subs} sub-windows of {sub:#}, over the bound of {longest:#}: say "
                )?;
                advise(f, limit, nanos, sub)
            }
            WindowError::NoLayout(limit, nanos) => {
                let period = Period(nanos);
                write!(
                    f,
                    "a limit of {limit} every {period:#} leaves one word a time range below the bound of 2^46 ns \
                     (19.5 hours)"
                )
            }
            WindowError::FarOffset(minutes) => {
                let offset = UtcOffset::minutes(minutes);
                write!(
                    f,
                    "an offset of {offset} is out of the bounds from utc-12 to utc+14, in quarter hours"
                )
            }
            WindowError::FewOrManyPlaces(limit) => {
                write!(f, "a limit of {limit} places is out of the bounds from 1 to 2^20")
            }
            WindowError::LimitTooWide(limit, most) => {
                write!(f, "a limit of {limit} is over the bound of {most} tokens that there is room for")
            }
        }
    }
}

/// Writes the texts of rules for a limit that leaves few sub-windows.
fn advise(f: &mut fmt::Formatter<'_>, limit: u64, nanos: u64, sub: Period) -> fmt::Result {
    let (period, burst) = (Period(nanos), limit / 10);
    write!(f, "\"{limit}/{period} sliding {sub:#}\"")?;
    match Quota::at_most(limit, Duration::from_nanos(nanos)).try_burst(burst) {
        Ok(_) => write!(f, ", or \"at most {limit}/{period} burst {burst}\""),
        Err(_) => Ok(()),
    }
}

/// Returns the fault of a month that is no fixed window by the calendar, or that of its limit.
pub(super) fn no_month(limit: u64) -> String {
    let advice = || format!("a civil month is a fixed window by the calendar: {limit}/month fixed utc");
    check(limit, MONTH.into()).map_or_else(|flaw| flaw.to_string(), |()| advice())
}

impl WindowError {
    /// Returns the method that helps a caller.
    pub(super) fn method(self) -> Option<&'static str> {
        match self {
            WindowError::FewSubWindows(..) | WindowError::CoarseSubWindows(..) => {
                Some("see Window::granularity and Quota::at_most")
            }
            WindowError::LimitTooWide(..) => Some("build with headroom"),
            _ => None,
        }
    }

    /// Returns the fault without its numbers: the only text that a panic in a constant can have.
    pub(super) const fn sentence(self) -> &'static str {
        match self {
            WindowError::NoLimit => "a limit of 0 tokens grants nothing: the least is 1",
            WindowError::LargeLimit(_) => "a limit is at most 2^40 tokens",
            WindowError::ShortPeriod(_) => "a window is at least 1 ms long",
            WindowError::LongPeriod(_) => "a window is at most 2^62 ns (146 years) long",
            WindowError::MonthWithoutEdges => "a civil month is a fixed window by the calendar: say utc",
            WindowError::FarOffset(_) => "an offset is a number of quarter hours, from -12 to 14 hours",
            WindowError::FewSubWindows(..) => {
                "this limit leaves fewer than 4 sub-windows: say granularity, or take Quota::at_most"
            }
            _ => "a window of this limit and this period does not fit into one word",
        }
    }
}

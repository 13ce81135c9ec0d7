//! The text form of a window.

use std::fmt;
use std::str::FromStr;

use crate::quota::period::{DAY, Period, read_count, read_period};
use crate::quota::window::{Kind, Window};
use crate::quota::window_error::InvalidWindow;
use crate::quota::window_layout::{MONTH, WindowError, check};

/// Writes the [text form](Window#text).
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Window { limit, nanos, kind, .. } = *self;
        match kind {
            Kind::Month(_) => write!(f, "{limit}/month ")?,
            _ => write!(f, "{limit}/{} ", Period(nanos))?,
        }
        match kind {
            Kind::FirstUse => f.write_str("fixed"),
            Kind::Utc(0) | Kind::Month(0) => f.write_str("fixed utc"),
            Kind::Utc(hours) | Kind::Month(hours) => write!(f, "fixed utc{hours:+}"),
            Kind::Sliding => f.write_str("sliding"),
            Kind::SlidingBy(longest) => write!(f, "sliding {:#}", Period(longest)),
            Kind::Weighted => f.write_str("weighted"),
        }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({self})")
    }
}

/// Reads the [text form](Window#text).
impl FromStr for Window {
    type Err = InvalidWindow;

    fn from_str(text: &str) -> Result<Window, InvalidWindow> {
        let unread = || InvalidWindow::unread("\"1000/d fixed utc\" or \"5/15m sliding\"", text);
        let (limit, rest) = text.split_once('/').ok_or_else(unread)?;
        let limit = read_count(limit.trim())?;
        let mut words = rest.split_whitespace();
        let mut period = words.next().ok_or_else(unread)?.to_owned();
        let mut word = words.next().ok_or_else(unread)?;
        if period.bytes().all(|byte| byte.is_ascii_digit()) {
            // The unit is a word of its own.
            period += word;
            word = words.next().ok_or_else(unread)?;
        }
        let kind = match (word, words.next()) {
            ("fixed", None) => Kind::FirstUse,
            ("fixed", Some(utc)) => Kind::Utc(offset(utc).ok_or_else(unread)?),
            ("sliding", None) => Kind::Sliding,
            ("sliding", Some(longest)) => Kind::SlidingBy(read_period(longest)?),
            ("weighted", None) => Kind::Weighted,
            _ => return Err(unread()),
        };
        if words.next().is_some() {
            return Err(unread());
        }
        let (nanos, kind) = match (period.as_str(), kind) {
            ("month", Kind::Utc(hours)) => (MONTH, Kind::Month(hours)),
            ("month", _) => return Err(WindowError::MonthWithoutEdges.into()),
            (period, kind) => (read_weeks(period)?, kind),
        };
        check(limit, nanos.into())?;
        Ok(Window { limit, top: limit, nanos, kind }.check()?)
    }
}

/// Reads the hours of `utc`, `utc+2` or `utc-11`.
fn offset(text: &str) -> Option<i8> {
    match text.strip_prefix("utc")? {
        "" => Some(0),
        hours if hours.starts_with(['+', '-']) => hours.parse().ok(),
        _ => None,
    }
}

fn read_weeks(period: &str) -> Result<u64, InvalidWindow> {
    let Some(weeks) = ["weeks", "week", "w"].iter().find_map(|unit| period.strip_suffix(unit)) else {
        return Ok(read_period(period)?);
    };
    let weeks = if weeks.is_empty() { 1 } else { read_count(weeks)? };
    let nanos = u128::from(weeks) * u128::from(7 * DAY);
    Ok(u64::try_from(nanos).map_err(|_| WindowError::LongPeriod(nanos))?)
}

//! The offset of the edges of windows by the calendar from UTC.

use std::fmt;
use std::str::FromStr;

use crate::rule::window_layout::WindowError;

/// Minutes to the east of UTC: quarter hours, from -12 to 14 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct UtcOffset(i16);

const LEAST: i16 = -12 * 60;
const MOST: i16 = 14 * 60;
const QUARTER: i16 = 15;

impl UtcOffset {
    pub(super) const ZERO: UtcOffset = UtcOffset(0);

    /// Returns the offset, unchecked: a window checks it.
    pub(super) const fn minutes(minutes: i16) -> UtcOffset {
        UtcOffset(minutes)
    }

    pub(super) const fn check(self) -> Result<(), WindowError> {
        let UtcOffset(minutes) = self;
        if minutes < LEAST || minutes > MOST || minutes % QUARTER != 0 {
            return Err(WindowError::FarOffset(minutes));
        }
        Ok(())
    }

    pub(super) const fn nanos(self) -> i64 {
        const MINUTE: i64 = 60_000_000_000;
        self.0 as i64 * MINUTE
    }
}

/// Writes `utc`, `utc+2`, `utc+5:30` or `utc-3:30`.
impl fmt::Display for UtcOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UtcOffset(minutes) = *self;
        let (hours, rest) = (minutes.unsigned_abs() / 60, minutes.unsigned_abs() % 60);
        match (minutes, rest) {
            (0, _) => f.write_str("utc"),
            (_, 0) => write!(f, "utc{}{hours}", if minutes < 0 { '-' } else { '+' }),
            (_, rest) => write!(f, "utc{}{hours}:{rest:02}", if minutes < 0 { '-' } else { '+' }),
        }
    }
}

/// Reads the text that is written. The error is `()` for a text of another form, or with a number
/// that is out of bounds by far.
impl FromStr for UtcOffset {
    type Err = ();

    fn from_str(text: &str) -> Result<UtcOffset, ()> {
        let offset = text.strip_prefix("utc").ok_or(())?;
        let (east, number) = match (offset.strip_prefix('+'), offset.strip_prefix('-')) {
            _ if offset.is_empty() => return Ok(UtcOffset::ZERO),
            (Some(number), _) => (1, number),
            (_, Some(number)) => (-1, number),
            _ => return Err(()),
        };
        let (hours, rest) = match number.split_once(':') {
            Some((hours, rest)) if rest.len() == 2 => (hours, rest),
            Some(_) => return Err(()),
            None => (number, "0"),
        };
        // `parse` takes a sign; the text form has no second one.
        let read = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse::<i16>().map_err(drop),
            false => Err(()),
        };
        let (hours, rest) = (read(hours)?, read(rest)?);
        let minutes =
            hours.checked_mul(60).filter(|_| rest < 60).and_then(|minutes| minutes.checked_add(rest));
        Ok(UtcOffset(east * minutes.ok_or(())?))
    }
}

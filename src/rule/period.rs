//! The text form of counts and periods.

use std::fmt;

use crate::rule::layout::QuotaError;

pub(crate) const DAY: u64 = 86_400_000_000_000;

const UNITS: [(&str, u64); 7] = [
    ("d", DAY),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A period in nanoseconds, which is written in the largest unit that divides it: `15m`, `d`; with
/// `#` always as a number, `1d`.
pub(crate) struct Period(pub(crate) u64);

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Period(nanos) = *self;
        let (unit, one) = UNITS
            .into_iter()
            .find(|(_, one)| nanos.is_multiple_of(*one))
            .expect("every period is a whole number of nanoseconds");
        if nanos != one || f.alternate() {
            write!(f, "{}", nanos / one)?;
        }
        f.write_str(unit)
    }
}

/// Returns the count and the rest of a text, which a slash divides.
pub(super) fn parts(text: &str) -> Result<(&str, &str), String> {
    let (count, rest) = text.split_once('/').ok_or("it has no \"/\" between a count and a period")?;
    match count.trim() {
        "" => Err("there is no count before the \"/\"".to_owned()),
        count => Ok((count, rest)),
    }
}

/// Reads digits, without a sign.
pub(super) fn read_count(text: &str) -> Result<u64, String> {
    // `parse` takes a sign; the text form does not.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let read = if digits { text.parse().ok() } else { None };
    read.ok_or_else(|| format!("{text:?} is not a whole number under 2^64"))
}

/// Reads a unit, or a number of units, in nanoseconds.
pub(super) fn read_period(period: &str) -> Result<u64, String> {
    const FORMS: &str = "ns, us, ms, s, m, h, d, w or its word";
    let digits = period.find(|c: char| !c.is_ascii_digit()).unwrap_or(period.len());
    let (number, unit) = match period.split_at(digits) {
        ("", "") => return Err("there is no period after the \"/\"".to_owned()),
        (number, "") => return Err(format!("the period {number:?} has no unit: {FORMS}")),
        (number, unit) => (number, unit.trim()),
    };
    let number: u64 = if number.is_empty() { 1 } else { read_count(number)? };
    let one = unit_nanos(unit).ok_or_else(|| format!("{unit:?} is not a unit: {FORMS}"))?;
    let nanos = u128::from(number) * u128::from(one);
    u64::try_from(nanos).map_err(|_| QuotaError::LongPeriod(nanos).to_string())
}

fn unit_nanos(word: &str) -> Option<u64> {
    let short = match word.strip_suffix('s').filter(|stem| stem.len() > 2).unwrap_or(word) {
        "nanosecond" => "ns",
        "microsecond" => "us",
        "millisecond" => "ms",
        "second" | "sec" => "s",
        "minute" | "min" => "m",
        "hour" => "h",
        "day" => "d",
        // A week is written in days.
        "week" | "w" => return Some(7 * DAY),
        other => other,
    };
    UNITS.into_iter().find(|(unit, _)| *unit == short).map(|(_, nanos)| nanos)
}

//! Civil months, of the Gregorian calendar.

/// Nanoseconds of a day.
const DAY: u64 = 86_400_000_000_000;
/// Days of a cycle of 400 years, after which the calendar repeats itself.
const CYCLE: u64 = 146_097;

/// Returns the number of the month at a Unix time in nanoseconds: 0 is January 1970.
pub(crate) fn month_at(nanos: u64) -> u64 {
    month_of(nanos / DAY)
}

/// Returns the Unix time in nanoseconds at which a month begins; the largest one if it is too far.
pub(crate) fn month_start(month: u64) -> u64 {
    first_day(month).saturating_mul(DAY)
}

/// Returns the month of a day; day 0 is 1970-01-01.
pub(crate) fn month_of(day: u64) -> u64 {
    // Years begin in March here, so that a leap day is the last day of its year.
    let day = day + DAYS_BEFORE_1970;
    let (cycle, day) = (day / CYCLE, day % CYCLE);
    // Leap days fall out every 4 years, but not every 100, and yet every 400.
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // The months from March on have 153 days in five.
    let month = (5 * day + 2) / 153;
    (400 * cycle + year) * 12 + month - MONTHS_BEFORE_1970
}

/// Returns the first day of a month.
pub(crate) fn first_day(month: u64) -> u64 {
    let month = month + MONTHS_BEFORE_1970;
    let (year, month) = (month / 12, month % 12);
    365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 - DAYS_BEFORE_1970
}

/// From 0000-03-01 to 1970-01-01.
const DAYS_BEFORE_1970: u64 = 719_468;
const MONTHS_BEFORE_1970: u64 = 1_969 * 12 + 10;

//! The times of access logs.

use std::time::{Duration, UNIX_EPOCH};

pub(super) const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Reads `27/Nov/2026:03:10:00 +0100`, or RFC 3339. Without a zone it is UTC.
pub(super) fn of_text(text: &str) -> Option<Duration> {
    if text.contains('/') { common(text) } else { rfc3339(text) }
}

/// Reads a number of seconds, or RFC 3339.
pub(super) fn of_json(text: &str) -> Option<Duration> {
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => rfc3339(text),
    }
}

pub(super) fn are_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn common(text: &str) -> Option<Duration> {
    let (date, rest) = text.split_once(':')?;
    let (time, zone) = rest.split_once(' ').unwrap_or((rest, "Z"));
    let (day, date) = date.split_once('/')?;
    let (month, year) = date.split_once('/')?;
    let month = MONTHS.iter().position(|known| *known == month)? + 1;
    in_zone(since_1970(&format!("{year}-{month:02}-{day}T{time}"))?, zone)
}

fn rfc3339(text: &str) -> Option<Duration> {
    // The date has dashes as well.
    let zone = text.get(10..)?.find(['+', '-', 'Z', 'z']);
    let (local, zone) = zone.map_or((text, "Z"), |at| text.split_at(at + 10));
    in_zone(since_1970(local)?, zone)
}

/// The time of a clock in a zone: `Z`, `+0100`, `-05:30` or `+01`.
fn in_zone(local: Duration, zone: &str) -> Option<Duration> {
    if zone.eq_ignore_ascii_case("Z") {
        return Some(local);
    }
    let digits = zone.strip_prefix(['-', '+'])?;
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None => digits.split_at_checked(2)?,
    };
    let below = |text: &str, end: u64| {
        let number = (text.len() == 2 && are_digits(text)).then(|| text.parse().ok())?;
        number.filter(|number| *number < end)
    };
    let minutes = if minutes.is_empty() { 0 } else { below(minutes, 60)? };
    let shift = Duration::from_secs(below(hours, 24)? * 3_600 + minutes * 60);
    if zone.starts_with('-') { local.checked_add(shift) } else { local.checked_sub(shift) }
}

fn since_1970(utc: &str) -> Option<Duration> {
    humantime::parse_rfc3339_weak(utc).ok()?.duration_since(UNIX_EPOCH).ok()
}

//! A line of an access log: the forms that the proxies of the pages write, and JSON.
//!
//! A line is borrowed where its text needs no change. A line that cannot be read is no error of the
//! run: the report counts it, and names the first one of each log.

use std::time::Duration;

mod json;
mod line;
mod text;
mod times;

pub(super) use line::{FieldNames, LogLine};

/// Reads a line. `None`: it is in no form that is known.
pub(super) fn read<'a>(line: &'a str, fields: &'a FieldNames) -> Option<LogLine<'a>> {
    let own = if is_dated(line) { text::own(line) } else { None };
    let read = own.or_else(|| match without_prefix(line) {
        line if line.starts_with('{') => json::read(line, fields),
        line => {
            let envoy = if line.starts_with('[') { text::envoy(line) } else { None };
            let combined = envoy.or_else(|| text::combined(line));
            combined.or_else(|| text::haproxy(line)).or_else(|| text::own(line))
        }
    });
    // A clock has no later time, such as one of milliseconds.
    read.filter(|line| line.at <= Duration::from_nanos(u64::MAX))
}

/// Returns whether the line begins with a year, as no address and no name of a host does.
fn is_dated(line: &str) -> bool {
    let (year, rest) = line.as_bytes().split_at_checked(4).unwrap_or_default();
    rest.starts_with(b"-") && year.iter().all(u8::is_ascii_digit)
}

/// Returns the line without the time, the host and the tag of syslog, or those of a container.
fn without_prefix(line: &str) -> &str {
    let is_month = |word: &str| times::MONTHS.contains(&word);
    let is_prefixed = match line.as_bytes().first() {
        Some(b'<') => true,
        Some(b'0'..=b'9') => is_dated(line),
        Some(b'A'..=b'Z') => line.get(..3).is_some_and(is_month),
        _ => false,
    };
    if is_prefixed { behind_prefix(line).unwrap_or(line) } else { line }
}

fn behind_prefix(line: &str) -> Option<&str> {
    if let Some((_, rest)) = line.strip_prefix('<').and_then(|rest| rest.split_once('>'))
        && rest.starts_with("1 ")
    {
        // RFC 5424: a version, a time, a host, a program, a process, a message's name, no data.
        return rest.splitn(8, ' ').nth(7);
    }
    for stream in [" stdout F ", " stderr F "] {
        if let Some((_, rest)) = line.split_once(stream).filter(|(time, _)| !time.contains(' ')) {
            return Some(rest);
        }
    }
    let (front, rest) = line.split_once(": ")?;
    (front.split_ascii_whitespace().count() <= 5).then_some(rest)
}

#[cfg(test)]
mod tests;

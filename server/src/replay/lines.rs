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
    let own = if line.starts_with(|first: char| first.is_ascii_digit()) { text::own(line) } else { None };
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

/// Returns the line without the time, the host and the tag of syslog, or those of a container.
fn without_prefix(line: &str) -> &str {
    let is_month = |word: &str| times::MONTHS.iter().any(|month| *month == word);
    let numbered = line.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    if let Some((_, rest)) = numbered
        && rest.starts_with("1 ")
    {
        // RFC 5424: a version, a time, a host, a program, a process, a message's name, no data.
        return rest.splitn(8, ' ').nth(7).unwrap_or(line);
    }
    let is_dated = line.get(..5).is_some_and(|year| year.ends_with('-') && times::are_digits(&year[..4]));
    if numbered.is_some() || is_dated || line.get(..3).is_some_and(is_month) {
        for stream in [" stdout F ", " stderr F "] {
            if let Some((_, rest)) = line.split_once(stream).filter(|(time, _)| !time.contains(' ')) {
                return rest;
            }
        }
        if let Some((front, rest)) = line.split_once(": ")
            && front.split_ascii_whitespace().count() <= 5
        {
            return rest;
        }
    }
    line
}

#[cfg(test)]
mod tests;

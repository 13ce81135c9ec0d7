//! A line of an access log: common and combined format, or JSON.
//!
//! A line is borrowed where its text needs no change. A line that cannot be read is no error of the
//! run: the report counts it.

use std::borrow::Cow;
use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value};

/// A request of a log.
#[derive(Debug, Default, PartialEq)]
pub(super) struct LogLine<'a> {
    /// The time since 1970.
    pub(super) at: Duration,
    /// The address of the client.
    pub(super) client: Cow<'a, str>,
    pub(super) method: Cow<'a, str>,
    /// The target of the request, with its query.
    pub(super) target: Cow<'a, str>,
    /// The headers that the log has, by their lower-case name.
    pub(super) headers: Vec<(&'a str, Cow<'a, str>)>,
}

/// The names of the fields of a log in JSON.
#[derive(Clone, Debug)]
pub(super) struct FieldNames {
    /// The names of the time, the client, the method and the target.
    pub(super) names: [String; 4],
    /// The name of the field of each header, by the lower-case name of the header.
    pub(super) headers: Vec<(String, String)>,
}

impl Default for FieldNames {
    fn default() -> Self {
        FieldNames { names: ["time", "client", "method", "path"].map(str::to_owned), headers: Vec::new() }
    }
}

impl FieldNames {
    /// Sets the field of `time`, `client`, `method`, `path` or `header:NAME`, from `WHAT=FIELD`.
    pub(super) fn set(&mut self, text: &str) -> Result<(), String> {
        let (what, field) = text.split_once('=').ok_or_else(|| format!("--field {text}: no '=' in it"))?;
        let known = FieldNames::default().names.iter().position(|name| name == what);
        match (known, what.strip_prefix("header:")) {
            (Some(index), _) => self.names[index] = field.to_owned(),
            (None, Some(header)) => self.headers.push((header.to_ascii_lowercase(), field.to_owned())),
            (None, None) => {
                return Err(format!(
                    "--field {text}: {what:?} is none of time, client, method, path, header:NAME"
                ));
            }
        }
        Ok(())
    }
}

/// Reads a line. `None`: it is in no format that is known.
pub(super) fn read<'a>(line: &'a str, fields: &'a FieldNames) -> Option<LogLine<'a>> {
    let read = if line.starts_with('{') { json(line, fields) } else { combined(line) };
    // A clock has no later time, such as one of milliseconds.
    read.filter(|line| line.at <= Duration::from_nanos(u64::MAX))
}

/// `CLIENT - USER [27/Nov/2026:03:10:00 +0100] "GET /path HTTP/1.1" 200 12 "referer" "agent"`, the
/// last two of which may be missing.
fn combined(line: &str) -> Option<LogLine<'_>> {
    let (client, rest) = line.split_once(' ')?;
    // The name of a user may have spaces, and a bracket begins the time alone.
    let (_, rest) = rest.split_once(" [")?;
    let (time, rest) = rest.split_once("] \"")?;
    let (request, rest) = quoted(rest)?;
    let mut words = request.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    if let Some((_, rest)) = rest.split_once(" \"") {
        let (referer, rest) = quoted(rest)?;
        headers.push(("referer", unescaped(referer)));
        if let Some(rest) = rest.strip_prefix(" \"") {
            headers.push(("user-agent", unescaped(quoted(rest)?.0)));
        }
    }
    // A header that is missing is a dash.
    headers.retain(|(_, value)| value != "-");
    Some(LogLine {
        at: common_time(time)?,
        client: client.into(),
        method: method.into(),
        target: unescaped(target),
        headers,
    })
}

/// The text up to the next quote that no backslash escapes, and the rest behind it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some((&text[..end], &text[end + 1..]))
}

/// The text without the escapes `\"`, `\\` and `\xHH` of nginx and Apache.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [byte, after @ ..] = rest {
        let hex = match after {
            [b'x', high, low, ..] => [*high, *low].map(|digit| (digit as char).to_digit(16)),
            _ => [None; 2],
        };
        let (byte, taken) = match (byte, after, hex) {
            (b'\\', _, [Some(high), Some(low)]) => ((high * 16 + low) as u8, 4),
            (b'\\', [escaped, ..], _) => (*escaped, 2),
            _ => (*byte, 1),
        };
        bytes.push(byte);
        rest = &rest[taken..];
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// `27/Nov/2026:03:10:00 +0100`.
fn common_time(text: &str) -> Option<Duration> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (date, rest) = text.split_once(':')?;
    let (time, zone) = rest.split_once(' ')?;
    let (day, date) = date.split_once('/')?;
    let (month, year) = date.split_once('/')?;
    let month = MONTHS.iter().position(|known| *known == month)? + 1;
    let local = since_1970(&format!("{year}-{month:02}-{day}T{time}Z"))?;
    let (is_west, zone) = (zone.starts_with('-'), zone.strip_prefix(['-', '+'])?);
    let number = |range: Range<usize>| zone.get(range)?.parse::<u8>().map(u64::from).ok();
    let zone = Duration::from_secs(number(0..2)? * 3_600 + number(2..4)? * 60);
    if is_west { local.checked_add(zone) } else { local.checked_sub(zone) }
}

/// An object with the fields of `fields`. The time is a number of seconds, or RFC 3339.
fn json<'a>(line: &str, fields: &'a FieldNames) -> Option<LogLine<'a>> {
    let mut object: Map<String, Value> = serde_json::from_str(line).ok()?;
    let mut of = |name: &str| match object.remove(name)? {
        Value::Null => None,
        Value::String(text) => Some(Cow::Owned(text)),
        other => Some(Cow::Owned(other.to_string())),
    };
    let [time, client, method, target] = &fields.names;
    Some(LogLine {
        at: time_of(&of(time)?)?,
        client: of(client)?,
        // A log of one method need not name it.
        method: of(method).unwrap_or("GET".into()),
        target: of(target)?,
        headers: fields.headers.iter().filter_map(|(header, field)| Some((&**header, of(field)?))).collect(),
    })
}

fn time_of(text: &str) -> Option<Duration> {
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => since_1970(text),
    }
}

fn since_1970(rfc3339: &str) -> Option<Duration> {
    humantime::parse_rfc3339_weak(rfc3339).ok()?.duration_since(UNIX_EPOCH).ok()
}

#[cfg(test)]
mod tests;

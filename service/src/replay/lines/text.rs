//! Lines of text: of nginx, Apache, Traefik, HAProxy, Envoy and `tollgate-proxy`.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use super::line::{LogLine, client};
use super::times;

/// The most bytes of a time.
const MAX_TIME: usize = 40;

/// `CLIENT - USER [27/Nov/2026:03:10:00 +0100] "GET /path HTTP/1.1" 200 12 "referer" "agent"`, the
/// last two of which may be missing, and with `HOST:PORT ` before it: the common, the combined and
/// the vhost_combined format.
pub(super) fn combined(line: &str) -> Option<LogLine<'_>> {
    let (front, at, rest) = timed(line, " \"")?;
    let (request, rest) = quoted(rest)?;
    let mut words = request.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    if let Some((_, rest)) = rest.split_once(" \"") {
        let (referer, rest) = quoted(rest)?;
        headers.push(("referer".into(), unescaped(referer)));
        if let Some(rest) = rest.strip_prefix(" \"") {
            headers.push(("user-agent".into(), unescaped(quoted(rest)?.0)));
        }
    }
    // A header that is missing is a dash.
    headers.retain(|(_, value)| value != "-");
    let (host, from) = host_and_client(front)?;
    headers.extend(host.map(|host| ("host".into(), host.into())));
    Some(LogLine {
        at,
        client: client(from)?,
        method: method.into(),
        target: unescaped(target),
        headers,
        was_refused: None,
    })
}

/// The virtual host, if there is one, and the client, of `HOST:PORT CLIENT IDENT USER` or
/// `CLIENT IDENT USER`. A user may have spaces.
fn host_and_client(front: &str) -> Option<(Option<&str>, &str)> {
    let mut words = front.split(' ');
    let (first, second) = (words.next()?, words.next()?);
    if second == "-" {
        return Some((None, first));
    }
    let (name, port) = first.rsplit_once(':').unwrap_or((first, ""));
    let has_port = times::are_digits(port) && first.parse::<IpAddr>().is_err();
    match has_port || second.parse::<IpAddr>().is_ok() {
        true => Some((Some(if has_port { name } else { first }), second)),
        false => Some((None, first)),
    }
}

/// `CLIENT:PORT [27/Nov/2026:03:10:00.123] FRONTEND .. {captured} "GET /path HTTP/1.1"`: the format
/// of `option httplog` and `option httpslog` of HAProxy. The time is taken for UTC.
pub(super) fn haproxy(line: &str) -> Option<LogLine<'_>> {
    let (front, at, rest) = timed(line, " ")?;
    let (from, port) = front.rsplit(' ').next()?.rsplit_once(':')?;
    let (_, rest) = rest.split_once(" \"")?;
    let (request, _) = rest.split_once('"')?;
    let mut words = request.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let client = client(from).filter(|_| times::are_digits(port))?;
    let target = without_escapes(target, "#");
    Some(LogLine { at, client, method: method.into(), target, ..LogLine::default() })
}

/// `[2026-11-27T02:10:00.123Z] "GET /path HTTP/1.1" 200 - 0 12 1 - "FORWARDED-FOR" "AGENT" "ID"
/// "HOST" "UPSTREAM"`: the default format of Envoy. The client is the last address of the list,
/// which Envoy adds with `use_remote_address`.
pub(super) fn envoy(line: &str) -> Option<LogLine<'_>> {
    let (time, rest) = line.strip_prefix('[')?.split_once("] \"")?;
    // Envoy escapes no quotes. The parts of the request have no spaces.
    let mut words = rest.splitn(4, ' ');
    let (method, target, _, rest) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let (_, rest) = rest.split_once(" \"")?;
    let mut values = rest.strip_suffix('"')?.split("\" \"");
    let [forwarded, agent, id, host, _] = [(); 5].map(|()| values.next());
    // With more, a client has written a part of them.
    if values.next().is_some() {
        return None;
    }
    let from = forwarded?.rsplit(',').next()?.trim();
    from.parse::<IpAddr>().ok()?;
    let headers =
        [("x-forwarded-for", forwarded), ("user-agent", agent), ("x-request-id", id), ("host", host)];
    let headers = headers.into_iter().filter_map(|(name, value)| Some((name.into(), value?.into())));
    Some(LogLine {
        at: times::of_text(time)?,
        client: client(from)?,
        method: method.into(),
        target: target.into(),
        headers: headers.filter(|(_, value)| value != "-").collect(),
        was_refused: None,
    })
}

/// `2026-11-27T02:10:00.123456Z  INFO request client=.. method=GET target="/path" ..`: the lines of
/// `tollgate-proxy --access-log`.
pub(super) fn own(line: &str) -> Option<LogLine<'_>> {
    let (time, rest) = line.split_once(' ')?;
    let rest = rest.trim_start().strip_prefix("INFO request client=")?;
    let (from, rest) = rest.split_once(" method=")?;
    let (method, rest) = rest.split_once(" target=\"")?;
    let target = unescaped(quoted(rest)?.0);
    let at = times::of_text(time)?;
    Some(LogLine { at, client: client(from)?, method: method.into(), target, ..LogLine::default() })
}

/// The text before the first time in brackets, the time, and the text behind it, which begins with
/// `behind`. The name of a user may have a bracket.
fn timed<'a>(line: &'a str, behind: &str) -> Option<(&'a str, Duration, &'a str)> {
    line.match_indices(" [").find_map(|(at, _)| {
        let rest = &line[at + 2..];
        let end = rest.bytes().take(MAX_TIME).position(|byte| byte == b']')?;
        let time = times::of_text(&rest[..end])?;
        Some((&line[..at], time, rest[end + 1..].strip_prefix(behind)?))
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
    without_escapes(text, "\\x")
}

/// The text without its escapes: two digits behind `mark`, or any byte behind a backslash that
/// begins the mark.
fn without_escapes<'a>(text: &'a str, mark: &str) -> Cow<'a, str> {
    let mark = mark.as_bytes();
    if !text.as_bytes().contains(&mark[0]) {
        return text.into();
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [byte, after @ ..] = rest {
        let hex = match rest.strip_prefix(mark) {
            Some([high, low, ..]) => [*high, *low].map(|digit| (digit as char).to_digit(16)),
            _ => [None; 2],
        };
        let (byte, taken) = match (byte, after, hex) {
            (_, _, [Some(high), Some(low)]) => ((high * 16 + low) as u8, mark.len() + 2),
            (b'\\', [escaped, ..], _) if mark[0] == b'\\' => (*escaped, 2),
            _ => (*byte, 1),
        };
        bytes.push(byte);
        rest = &rest[taken..];
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

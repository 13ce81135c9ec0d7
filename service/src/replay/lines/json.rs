//! A line of JSON: with the fields of `--field`, or with those of a server that is known.

use std::borrow::Cow;

use serde_json::Value;

use super::line::{FieldNames, LogLine, client};
use super::times;

/// The fields of known logs: time, client, method, target, and the host and the headers if there
/// are any. A dot leads into an object.
const KNOWN: [[&str; 6]; 5] = [
    ["time", "client", "method", "path", "", ""],
    // `tollgate-proxy --access-log --log json`.
    ["timestamp", "client", "method", "target", "", ""],
    // Caddy, and Caddy before 2.7.
    ["ts", "request.client_ip", "request.method", "request.uri", "request.host", "request.headers"],
    ["ts", "request.remote_ip", "request.method", "request.uri", "request.host", "request.headers"],
    // Traefik.
    ["StartUTC", "ClientHost", "RequestMethod", "RequestPath", "RequestHost", ""],
];

/// Reads an object. The time is a number of seconds, or RFC 3339.
pub(super) fn read<'a>(line: &str, fields: &'a FieldNames) -> Option<LogLine<'a>> {
    let object: Value = serde_json::from_str(line).ok()?;
    let mut read = match &fields.names {
        Some([time, client, method, target]) => by(&object, [time, client, method, target, "", ""]),
        None => KNOWN.into_iter().find_map(|names| by(&object, names)),
    }?;
    let decision = find(&object, fields.decision.as_deref().unwrap_or("decision")).and_then(text);
    // Some forms of a log have the text with its quotes.
    read.was_refused = decision.and_then(|decision| match decision.trim_matches('"') {
        "ok" => Some(false),
        "over" => Some(true),
        // Envoy writes `-` or null for a request that it did not ask about.
        _ => None,
    });
    let told = fields.headers.iter();
    read.headers.splice(
        0..0,
        told.filter_map(|(name, field)| Some((Cow::from(&**name), text(find(&object, field)?)?))),
    );
    Some(read)
}

fn by<'a>(object: &Value, [time, from, method, target, host, headers]: [&str; 6]) -> Option<LogLine<'a>> {
    let of = |name: &str| text(find(object, name)?);
    let (at, from, target) = (times::of_json(&of(time)?)?, of(from)?, of(target)?);
    let mut read = LogLine {
        at,
        client: match client(&from) {
            Some(client) => client.into_owned().into(),
            // It may be any name of a client.
            None => from,
        },
        // A log of one method need not name it.
        method: of(method).unwrap_or("GET".into()),
        target,
        ..LogLine::default()
    };
    read.headers.extend(of(host).map(|host| ("host".into(), host)));
    if let Some(Value::Object(headers)) = find(object, headers) {
        let header =
            |(name, value): (&String, &Value)| Some((name.to_ascii_lowercase().into(), text(value)?));
        // Caddy hides the values that prove a client.
        read.headers.extend(headers.iter().filter_map(header).filter(|(_, value)| value != "REDACTED"));
    }
    Some(read)
}

/// The value of a field, or that of a field in an object: `request.uri`.
fn find<'v>(object: &'v Value, name: &str) -> Option<&'v Value> {
    object.get(name).or_else(|| {
        let (outer, inner) = name.split_once('.')?;
        find(object.get(outer)?, inner)
    })
}

/// The text of a value. Of a list it is the first one.
fn text(value: &Value) -> Option<Cow<'static, str>> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone().into()),
        Value::Array(values) => text(values.first()?),
        other => Some(other.to_string().into()),
    }
}

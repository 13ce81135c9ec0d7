//! Requests and responses as proto3 JSON.
//!
//! A name of a field is read in both of its spellings, and `null` is the default of a field. A
//! field that the protocol does not have is an error.
//!
//! A caller passes on what its client writes, and may let a request pass that has an error. So half
//! a surrogate pair and bytes that are no UTF-8 are read as other characters.

use std::fmt::Display;

use serde_json::{Number, Value as Json, json};

use super::messages::{
    Code, CurrentLimit, DescriptorEntry, DescriptorStatus, HeaderValue, RateLimitDescriptor,
    RateLimitOverride, RateLimitRequest, RateLimitResponse, Struct, Value, ValueKind, text_of,
};
use crate::rules::tree::Unit;

/// 2^53: each whole number below is exact as a float.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;

/// Reads a request.
///
/// # Errors
///
/// A sentence that names the field and the fault.
pub fn request(text: &[u8]) -> Result<RateLimitRequest, String> {
    let text = text_of(text);
    let json = serde_json::from_str(&text).or_else(|_| serde_json::from_slice(&paired(&text)));
    let json = json.map_err(|error| format!("this is no JSON: {error}"))?;
    fields_of(&json, "a request", |request: &mut RateLimitRequest, name, value| {
        match name {
            "domain" => request.domain = string(value)?,
            "descriptors" => request.descriptors = list(value, descriptor)?,
            "hits_addend" => request.hits_addend = number(value, u32::MAX)?,
            _ => return Ok(false),
        }
        Ok(true)
    })
}

/// Returns a text of the same length, with U+FFFD for each escape of half a surrogate pair.
/// `JSON.stringify` writes those halves as they are.
#[cold]
fn paired(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    let unit = |at: usize| u16::from_str_radix(text.get(at..at + 6)?.strip_prefix("\\u")?, 16).ok();
    let mut at = 0;
    while let Some(next) = bytes[at..].iter().position(|&byte| byte == b'\\') {
        at += next;
        at += match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                bytes[at + 2..at + 6].copy_from_slice(b"fffd");
                6
            }
            // The character behind a backslash begins no escape.
            _ => 2,
        };
        at = at.min(bytes.len());
    }
    bytes
}

fn descriptor(json: &Json) -> Result<RateLimitDescriptor, String> {
    fields_of(json, "a descriptor", |descriptor: &mut RateLimitDescriptor, name, value| {
        match name {
            "entries" => descriptor.entries = list(value, entry)?,
            "limit" => descriptor.limit = optional(value, limit)?,
            "hits_addend" => descriptor.hits_addend = optional(value, |hits| number(hits, u64::MAX))?,
            "is_negative_hits" => {
                descriptor.is_negative_hits =
                    or_default(value, value.as_bool(), "is neither true nor false")?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    })
}

fn entry(json: &Json) -> Result<DescriptorEntry, String> {
    fields_of(json, "an entry", |entry: &mut DescriptorEntry, name, value| {
        match name {
            "key" => entry.key = string(value)?,
            "value" => entry.value = string(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })
}

fn limit(json: &Json) -> Result<RateLimitOverride, String> {
    fields_of(json, "a limit", |limit: &mut RateLimitOverride, name, value| {
        match name {
            "requests_per_unit" => limit.requests_per_unit = number(value, u32::MAX)?,
            "unit" => limit.unit = unit(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })
}

/// Reads an object: a function sets each field by its name with underscores, and returns whether it
/// knows the field.
fn fields_of<T: Default>(
    json: &Json,
    what: &str,
    set: impl Fn(&mut T, &str, &Json) -> Result<bool, String>,
) -> Result<T, String> {
    let Json::Object(fields) = json else {
        return Err(format!("{what} is an object, not {json}"));
    };
    let (mut message, mut known) = (T::default(), Vec::with_capacity(fields.len()));
    for (name, value) in fields {
        let spelled = with_underscores(name);
        if known.contains(&spelled) {
            return Err(format!("{what} has the field `{name}` in both spellings"));
        }
        if !set(&mut message, &spelled, value).map_err(|error| format!("{name}: {error}"))? {
            return Err(format!("{what} has no field `{name}`"));
        }
        known.push(spelled);
    }
    Ok(message)
}

fn with_underscores(name: &str) -> String {
    let mut underscored = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            underscored.push('_');
        }
        underscored.push(letter.to_ascii_lowercase());
    }
    underscored
}

fn optional<T>(json: &Json, read: impl FnOnce(&Json) -> Result<T, String>) -> Result<Option<T>, String> {
    if json.is_null() { Ok(None) } else { read(json).map(Some) }
}

/// Returns the reading of a value, or the default for `null`.
fn or_default<T: Default>(json: &Json, read: Option<T>, fault: &str) -> Result<T, String> {
    if json.is_null() { Ok(T::default()) } else { read.ok_or_else(|| format!("{json} {fault}")) }
}

fn list<T>(json: &Json, read: impl Fn(&Json) -> Result<T, String>) -> Result<Vec<T>, String> {
    let values = or_default(json, json.as_array().map(Vec::as_slice), "is no list")?;
    values.iter().map(read).collect()
}

fn string(json: &Json) -> Result<String, String> {
    or_default(json, json.as_str(), "is no string").map(str::to_owned)
}

/// Reads a number, which may be a string as well, and may have an exponent or a fraction of 0.
fn number<N: TryFrom<u64> + Default + Display>(json: &Json, most: N) -> Result<N, String> {
    let whole = |number: &Number| {
        let is_whole = |float: &f64| float.fract() == 0.0 && (0.0..MOST_EXACT).contains(float);
        number.as_u64().or_else(|| number.as_f64().filter(is_whole).map(|float| float as u64))
    };
    let number = match json {
        // Around a number in a string there is no white space.
        Json::String(text) if text.trim() == text => serde_json::from_str(text).ok().as_ref().and_then(whole),
        Json::Number(number) => whole(number),
        _ => None,
    };
    let in_range = number.and_then(|number| N::try_from(number).ok());
    or_default(json, in_range, &format!("is no whole number from 0 to {most}"))
}

/// Reads a unit: its name or its number.
fn unit(json: &Json) -> Result<i32, String> {
    match json.as_str() {
        None => number(json, i32::MAX),
        Some("UNKNOWN") => Ok(0),
        Some(name) => {
            let unit = Unit::ALL.into_iter().find(|unit| unit.name() == name);
            unit.map(Unit::wire).ok_or_else(|| format!("{json} is no unit"))
        }
    }
}

/// Writes a response.
pub fn response(response: &RateLimitResponse) -> String {
    let header = |header: &HeaderValue| json!({"key": header.key, "value": header.value});
    let fields = json!({
        "overallCode": code(response.overall_code()),
        "statuses": response.statuses.iter().map(status).collect::<Json>(),
        "responseHeadersToAdd": response.response_headers_to_add.iter().map(header).collect::<Json>(),
        "dynamicMetadata": response.dynamic_metadata.as_ref().map(object),
    });
    without_defaults(fields).to_string()
}

/// Removes each field that is 0, empty or missing.
fn without_defaults(mut json: Json) -> Json {
    let is_set = |value: &Json| ![Json::Null, json!(0), json!(""), json!([])].contains(value);
    if let Some(fields) = json.as_object_mut() {
        fields.retain(|_, value| is_set(value));
    }
    json
}

fn code(code: Code) -> &'static str {
    match code {
        Code::Unknown => "UNKNOWN",
        Code::Ok => "OK",
        Code::OverLimit => "OVER_LIMIT",
    }
}

fn status(status: &DescriptorStatus) -> Json {
    let limit = |limit: &CurrentLimit| {
        without_defaults(json!({
            "requestsPerUnit": limit.requests_per_unit,
            "unit": Unit::from_wire(limit.unit).map(Unit::name),
            "name": limit.name,
        }))
    };
    without_defaults(json!({
        "code": code(status.code()),
        "currentLimit": status.current_limit.as_ref().map(limit),
        "limitRemaining": status.limit_remaining,
        "durationUntilReset": status.duration_until_reset.map(|reset| format!("{}s", reset.seconds)),
    }))
}

fn object(fields: &Struct) -> Json {
    fields.fields.iter().map(|(key, field)| (key.clone(), value(field))).collect()
}

fn value(value: &Value) -> Json {
    match &value.kind {
        None | Some(ValueKind::Null(_)) => Json::Null,
        // JSON of this protocol has one kind of numbers: a whole one has no fraction.
        Some(ValueKind::Number(number)) if number.fract() == 0.0 && number.abs() < 1e15 => {
            (*number as i64).into()
        }
        Some(ValueKind::Number(number)) => (*number).into(),
        Some(ValueKind::Text(text)) => text.as_str().into(),
        Some(ValueKind::Bool(value)) => (*value).into(),
        Some(ValueKind::Struct(fields)) => object(fields),
        Some(ValueKind::List(list)) => list.values.iter().map(self::value).collect(),
    }
}

//! Requests and responses as proto3 JSON.
//!
//! A name of a field is read in both of its spellings, and `null` is the default of a field. A
//! field that the protocol does not have is an error.

use serde_json::{Map, Value as Json, json};

use super::messages::{
    Code, DescriptorEntry, DescriptorStatus, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, Struct, Value, ValueKind,
};
use crate::rules::tree::Unit;

/// Reads a request.
///
/// # Errors
///
/// A sentence that names the place and the fault.
pub(crate) fn request(text: &[u8]) -> Result<RateLimitRequest, String> {
    let json = serde_json::from_slice(text).map_err(|error| format!("this is no JSON: {error}"))?;
    let mut request = RateLimitRequest::default();
    each_field(&json, "a request", |name, value| {
        match name {
            "domain" => request.domain = string(value)?,
            "descriptors" => request.descriptors = list(value, descriptor)?,
            "hits_addend" => request.hits_addend = number(value, u32::MAX)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(request)
}

fn descriptor(json: &Json) -> Result<RateLimitDescriptor, String> {
    let mut descriptor = RateLimitDescriptor::default();
    each_field(json, "a descriptor", |name, value| {
        match name {
            "entries" => descriptor.entries = list(value, entry)?,
            "limit" => descriptor.limit = optional(value, limit)?,
            "hits_addend" => descriptor.hits_addend = optional(value, |hits| number(hits, u64::MAX))?,
            "is_negative_hits" => descriptor.is_negative_hits = boolean(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(descriptor)
}

fn entry(json: &Json) -> Result<DescriptorEntry, String> {
    let mut entry = DescriptorEntry::default();
    each_field(json, "an entry", |name, value| {
        match name {
            "key" => entry.key = string(value)?,
            "value" => entry.value = string(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(entry)
}

fn limit(json: &Json) -> Result<RateLimitOverride, String> {
    let mut limit = RateLimitOverride::default();
    each_field(json, "a limit", |name, value| {
        match name {
            "requests_per_unit" => limit.requests_per_unit = number(value, u32::MAX)?,
            "unit" => limit.unit = unit(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(limit)
}

/// Calls a function for each field of an object, by its name with underscores. The function returns
/// whether it knows the field.
fn each_field(
    json: &Json,
    what: &str,
    mut read: impl FnMut(&str, &Json) -> Result<bool, String>,
) -> Result<(), String> {
    let Json::Object(fields) = json else {
        return Err(format!("{what} is an object, not {json}"));
    };
    let mut known = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        let spelled = with_underscores(name);
        if known.contains(&spelled) {
            return Err(format!("{what} has the field `{name}` in both spellings"));
        }
        if !read(&spelled, value).map_err(|error| format!("{name}: {error}"))? {
            return Err(format!("{what} has no field `{name}`"));
        }
        known.push(spelled);
    }
    Ok(())
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

fn list<T>(json: &Json, read: impl Fn(&Json) -> Result<T, String>) -> Result<Vec<T>, String> {
    match json {
        Json::Null => Ok(Vec::new()),
        Json::Array(values) => values.iter().map(read).collect(),
        _ => Err(format!("{json} is no list")),
    }
}

fn string(json: &Json) -> Result<String, String> {
    match json {
        Json::Null => Ok(String::new()),
        Json::String(text) => Ok(text.clone()),
        _ => Err(format!("{json} is no string")),
    }
}

fn boolean(json: &Json) -> Result<bool, String> {
    match json {
        Json::Null => Ok(false),
        Json::Bool(value) => Ok(*value),
        _ => Err(format!("{json} is neither true nor false")),
    }
}

/// Reads a number, which may be a string as well.
fn number<N: TryFrom<u64> + std::fmt::Display>(json: &Json, most: N) -> Result<N, String> {
    let number = match json {
        Json::Null => Some(0),
        Json::String(text) => text.parse().ok(),
        _ => json.as_u64(),
    };
    let fits = number.and_then(|number| N::try_from(number).ok());
    fits.ok_or_else(|| format!("{json} is no whole number from 0 to {most}"))
}

/// Reads a unit: its name or its number.
fn unit(json: &Json) -> Result<i32, String> {
    match json {
        Json::Null => Ok(0),
        Json::String(name) if name == "UNKNOWN" => Ok(0),
        Json::String(name) => {
            let unit = Unit::ALL.into_iter().find(|unit| unit.name() == name);
            unit.map(Unit::wire).ok_or_else(|| format!("{json} is no unit"))
        }
        _ => number(json, i32::MAX),
    }
}

/// Writes a response. A field with its default is left out.
pub(crate) fn response(response: &RateLimitResponse) -> String {
    let mut fields = Map::new();
    fields.insert("overallCode".to_owned(), code(response.overall_code()));
    if !response.statuses.is_empty() {
        fields.insert("statuses".to_owned(), response.statuses.iter().map(status).collect());
    }
    let header = |header: &super::messages::HeaderValue| json!({"key": header.key, "value": header.value});
    if !response.response_headers_to_add.is_empty() {
        let headers = response.response_headers_to_add.iter().map(header).collect();
        fields.insert("responseHeadersToAdd".to_owned(), headers);
    }
    if let Some(metadata) = &response.dynamic_metadata {
        fields.insert("dynamicMetadata".to_owned(), object(metadata));
    }
    Json::Object(fields).to_string()
}

fn code(code: Code) -> Json {
    Json::from(match code {
        Code::Unknown => "UNKNOWN",
        Code::Ok => "OK",
        Code::OverLimit => "OVER_LIMIT",
    })
}

fn status(status: &DescriptorStatus) -> Json {
    let mut fields = Map::new();
    fields.insert("code".to_owned(), code(status.code()));
    if let Some(limit) = &status.current_limit {
        let mut told = Map::new();
        if limit.requests_per_unit > 0 {
            told.insert("requestsPerUnit".to_owned(), limit.requests_per_unit.into());
        }
        told.extend(Unit::from_wire(limit.unit).map(|unit| ("unit".to_owned(), unit.name().into())));
        if !limit.name.is_empty() {
            told.insert("name".to_owned(), limit.name.as_str().into());
        }
        fields.insert("currentLimit".to_owned(), Json::Object(told));
    }
    if status.limit_remaining > 0 {
        fields.insert("limitRemaining".to_owned(), status.limit_remaining.into());
    }
    if let Some(reset) = status.duration_until_reset {
        fields.insert("durationUntilReset".to_owned(), format!("{}s", reset.seconds).into());
    }
    Json::Object(fields)
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

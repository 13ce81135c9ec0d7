//! The parts of an answer: the status of a descriptor, the headers and the metadata.

use std::collections::BTreeMap;

use super::counts::Counted;
use super::messages::{
    Code, CurrentLimit, DescriptorEntry, DescriptorStatus, HeaderValue, ListValue, RateLimitDescriptor,
    RateLimitOverride, RateLimitRequest, Struct, Value, ValueKind, WholeSeconds,
};
use crate::rules::tree::Unit;

/// The names of the headers of an answer.
#[derive(Clone, Debug, Default)]
pub struct HeaderNames {
    pub(crate) limit: String,
    pub(crate) remaining: String,
    pub(crate) reset: String,
}

/// Returns the status of a descriptor that no limit counts.
pub(super) fn without_limit(limit_remaining: u32) -> DescriptorStatus {
    DescriptorStatus { code: Code::Ok.into(), limit_remaining, ..DescriptorStatus::default() }
}

/// Returns the status of a descriptor that was counted.
#[inline]
pub(super) fn counted(
    counted: &Counted,
    code: Code,
    told: (u32, Unit),
    name: Option<&str>,
) -> DescriptorStatus {
    let (requests_per_unit, unit) = told;
    let name = name.unwrap_or_default().to_owned();
    let remaining = if counted.is_over { 0 } else { counted.remaining };
    DescriptorStatus {
        code: code.into(),
        current_limit: Some(CurrentLimit { requests_per_unit, unit: unit.wire(), name }),
        limit_remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
        duration_until_reset: Some(WholeSeconds { seconds: counted.reset as i64 }), // Below 2^63.
    }
}

/// Returns the one status that headers tell, with its limit and the seconds to its reset. It is the
/// refusal with the longest wait, or the limit with the fewest left.
pub(super) fn chosen(
    statuses: &[DescriptorStatus],
    is_refused: bool,
) -> Option<(&DescriptorStatus, &CurrentLimit, i64)> {
    let limited = statuses.iter().filter_map(|status| {
        let reset = status.duration_until_reset.map_or(0, |reset| reset.seconds);
        Some((status, status.current_limit.as_ref()?, reset))
    });
    if is_refused {
        // A client that waits for another one would be refused again.
        limited.filter(|(status, ..)| status.code() == Code::OverLimit).max_by_key(|(.., reset)| *reset)
    } else {
        limited.min_by_key(|(status, ..)| status.limit_remaining)
    }
}

/// Returns the headers of the chosen status.
pub(super) fn headers(names: &HeaderNames, statuses: &[DescriptorStatus]) -> Vec<HeaderValue> {
    let is_refused = statuses.iter().any(|status| status.code() == Code::OverLimit);
    let Some((status, limit, reset)) = chosen(statuses, is_refused) else { return Vec::new() };
    let header = |key: &String, value: String| HeaderValue { key: key.clone(), value };
    vec![
        header(&names.limit, limit.requests_per_unit.to_string()),
        header(&names.remaining, status.limit_remaining.to_string()),
        header(&names.reset, reset.to_string()),
    ]
}

/// Returns the request as metadata, with that of the limits that passed.
pub(super) fn metadata(request: &RateLimitRequest, limits: BTreeMap<String, Value>) -> Struct {
    // A `Struct` has no other numbers.
    let number = |hits: u64| Value::from(ValueKind::Number(hits as f64));
    let descriptor = |descriptor: &RateLimitDescriptor| {
        let entry =
            |entry: &DescriptorEntry| Value::from(ValueKind::Text(format!("{}={}", entry.key, entry.value)));
        let entries = ListValue { values: descriptor.entries.iter().map(entry).collect() };
        let mut fields = BTreeMap::from([("entries".to_owned(), ValueKind::List(entries).into())]);
        let limit = descriptor.limit.as_ref().map(|limit| ValueKind::Text(text(limit)).into());
        fields.extend(limit.map(|limit| ("limit".to_owned(), limit)));
        fields.extend(descriptor.hits_addend.map(|hits| ("hitsAddend".to_owned(), number(hits))));
        Value::from(ValueKind::Struct(Struct { fields }))
    };
    let values = request.descriptors.iter().map(descriptor).collect();
    let mut fields = BTreeMap::from([
        ("domain".to_owned(), ValueKind::Text(request.domain.clone()).into()),
        ("descriptors".to_owned(), ValueKind::List(ListValue { values }).into()),
    ]);
    if request.hits_addend > 0 {
        fields.insert("hitsAddend".to_owned(), number(request.hits_addend.into()));
    }
    if !limits.is_empty() {
        fields.insert("metadata".to_owned(), ValueKind::Struct(Struct { fields: limits }).into());
    }
    Struct { fields }
}

/// Returns the name in statistics of the entries of a request.
pub(super) fn name<'e>(domain: &str, entries: impl Iterator<Item = (&'e str, &'e str)>) -> String {
    let mut name = domain.to_owned();
    for (key, value) in entries {
        name.extend([".", key]);
        if !value.is_empty() {
            name.extend(["_", value]);
        }
    }
    name
}

/// Adds the metadata of a limit to that of those before it, which win. Maps of one name are merged.
pub(super) fn merge(limits: &mut BTreeMap<String, Value>, metadata: &serde_json::Value) {
    for (key, value) in metadata.as_object().into_iter().flatten() {
        match limits.get_mut(key).map(|known| &mut known.kind) {
            None => drop(limits.insert(key.clone(), value.into())),
            Some(Some(ValueKind::Struct(known))) => merge(&mut known.fields, value),
            Some(_) => (),
        }
    }
}

/// Returns the text of an override: the fields that are not 0, as Protobuf writes them.
fn text(limit: &RateLimitOverride) -> String {
    let unit = match Unit::from_wire(limit.unit) {
        Some(unit) => unit.name().to_owned(),
        None => limit.unit.to_string(),
    };
    let fields = [("requests_per_unit", limit.requests_per_unit.to_string()), ("unit", unit)];
    let is_set = |(_, value): &&(&str, String)| value != "0";
    let fields = fields.iter().filter(is_set).map(|(name, value)| format!("{name}:{value}"));
    fields.collect::<Vec<_>>().join(" ")
}

impl From<ValueKind> for Value {
    fn from(kind: ValueKind) -> Value {
        Value { kind: Some(kind) }
    }
}

impl From<&serde_json::Value> for Value {
    fn from(value: &serde_json::Value) -> Value {
        Value::from(match value {
            serde_json::Value::Null => ValueKind::Null(0),
            serde_json::Value::Bool(value) => ValueKind::Bool(*value),
            serde_json::Value::Number(number) => ValueKind::Number(number.as_f64().unwrap_or_default()),
            serde_json::Value::String(text) => ValueKind::Text(text.clone()),
            serde_json::Value::Array(values) => {
                ValueKind::List(ListValue { values: values.iter().map(Value::from).collect() })
            }
            serde_json::Value::Object(fields) => ValueKind::Struct(Struct {
                fields: fields.iter().map(|(key, value)| (key.clone(), value.into())).collect(),
            }),
        })
    }
}

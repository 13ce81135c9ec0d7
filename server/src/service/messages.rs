//! The messages of `envoy.service.ratelimit.v3` and `grpc.health.v1`, with the fields in use.
//!
//! Names and numbers are those of Envoy's `rls.proto` and `ratelimit.proto`. A field that is not
//! here is skipped when a message is read. The JSON is that of proto3: a name is read in both of
//! its spellings, `null` is the default, and a field that the protocol does not have is an error.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use prost::{Enumeration, Message, Oneof};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;

use crate::rules::tree::Unit;

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "objects")]
    pub(crate) descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint32, tag = "3")]
    #[serde(deserialize_with = "number", alias = "hits_addend")]
    pub(crate) hits_addend: u32,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "objects")]
    pub(crate) entries: Vec<DescriptorEntry>,
    #[prost(message, optional, tag = "2")]
    #[serde(deserialize_with = "object")]
    pub(crate) limit: Option<RateLimitOverride>,
    /// A `google.protobuf.UInt64Value`: 0 looks, and is not the same as none.
    #[prost(message, optional, tag = "3")]
    #[serde(deserialize_with = "optional_number", alias = "hits_addend")]
    pub(crate) hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    #[serde(deserialize_with = "or_default", alias = "is_negative_hits")]
    pub(crate) is_negative_hits: bool,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct DescriptorEntry {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "or_default")]
    pub(crate) value: String,
}

#[derive(Clone, Copy, PartialEq, Message, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RateLimitOverride {
    #[prost(uint32, tag = "1")]
    #[serde(deserialize_with = "number", alias = "requests_per_unit")]
    pub(crate) requests_per_unit: u32,
    /// The number of a unit in a message; 0 or an unknown one is no override.
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "unit")]
    pub(crate) unit: i32,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RateLimitResponse {
    #[prost(enumeration = "Code", tag = "1")]
    #[serde(serialize_with = "code_name")]
    pub(crate) overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) response_headers_to_add: Vec<HeaderValue>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) dynamic_metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescriptorStatus {
    #[prost(enumeration = "Code", tag = "1")]
    #[serde(serialize_with = "code_name")]
    pub(crate) code: i32,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) current_limit: Option<CurrentLimit>,
    #[prost(uint32, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) duration_until_reset: Option<WholeSeconds>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CurrentLimit {
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    #[serde(skip_serializing_if = "is_default", serialize_with = "unit_name")]
    pub(crate) unit: i32,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum Code {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

/// A `google.protobuf.Duration` without its nanoseconds.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WholeSeconds {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub(crate) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// A `google.protobuf.Struct`.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(transparent)]
pub(crate) struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) fields: BTreeMap<String, Value>,
}

/// A `google.protobuf.Value`.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(transparent)]
pub(crate) struct Value {
    #[prost(oneof = "ValueKind", tags = "1, 2, 3, 4, 5, 6")]
    pub(crate) kind: Option<ValueKind>,
}

#[derive(Clone, PartialEq, Oneof, Serialize)]
#[serde(untagged)]
pub(crate) enum ValueKind {
    /// The number is always 0.
    #[prost(int32, tag = "1")]
    #[serde(serialize_with = "null")]
    Null(i32),
    #[prost(double, tag = "2")]
    #[serde(serialize_with = "json_number")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
    #[prost(message, tag = "5")]
    Struct(Struct),
    #[prost(message, tag = "6")]
    List(ListValue),
}

/// A `google.protobuf.ListValue`.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(transparent)]
pub(crate) struct ListValue {
    #[prost(message, repeated, tag = "1")]
    pub(crate) values: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    pub(crate) service: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub(crate) status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    /// Of `Watch` alone: `Check` has the status NOT_FOUND for a service that is not known.
    ServiceUnknown = 3,
}

impl Serialize for WholeSeconds {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{}s", self.seconds))
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A value from an object. A derived reader takes a list of the fields as well, and that is no
/// message.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Object<T>, D::Error> {
        from.deserialize_map(Object(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<PhantomData<T>> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(from)?.map(|Object(value)| value))
}

fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let objects: Vec<Object<T>> = or_default(from)?;
    Ok(objects.into_iter().map(|Object(value)| value).collect())
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

fn number<'de, D: Deserializer<'de>, N: TryFrom<u64> + Default>(from: D) -> Result<N, D::Error> {
    optional_number(from).map(Option::unwrap_or_default)
}

/// Reads a number, which may be a string as well.
fn optional_number<'de, D, N>(from: D) -> Result<Option<N>, D::Error>
where
    D: Deserializer<'de>,
    N: TryFrom<u64>,
{
    let json = Json::deserialize(from)?;
    let number = match &json {
        Json::Null => return Ok(None),
        Json::String(text) => text.parse().ok(),
        _ => json.as_u64(),
    };
    let bits = 8 * size_of::<N>();
    let fits = number.and_then(|number| N::try_from(number).ok());
    fits.map(Some).ok_or_else(|| D::Error::custom(format!("{json} is no whole number of {bits} bits")))
}

/// Reads a unit: its name or its number.
fn unit<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    let json = Json::deserialize(from)?;
    let unit = match &json {
        Json::Null => Some(0),
        Json::String(name) if name == "UNKNOWN" => Some(0),
        Json::String(name) => Unit::ALL.into_iter().find(|unit| unit.name() == name).map(Unit::wire),
        _ => json.as_i64().and_then(|number| i32::try_from(number).ok()),
    };
    unit.ok_or_else(|| D::Error::custom(format!("{json} is no unit")))
}

fn unit_name<S: Serializer>(unit: &i32, to: S) -> Result<S::Ok, S::Error> {
    Unit::from_wire(*unit).map(Unit::name).serialize(to)
}

fn code_name<S: Serializer>(code: &i32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match Code::try_from(*code) {
        Ok(Code::Ok) => "OK",
        Ok(Code::OverLimit) => "OVER_LIMIT",
        _ => "UNKNOWN",
    })
}

fn null<S: Serializer>(_: &i32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_unit()
}

/// JSON of this protocol has one kind of numbers: a whole one has no fraction.
fn json_number<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
    match number.fract() == 0.0 && number.abs() < 1e15 {
        true => to.serialize_i64(*number as i64),
        false => to.serialize_f64(*number),
    }
}

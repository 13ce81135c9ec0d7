//! The messages of `envoy.service.ratelimit.v3` and `grpc.health.v1`, with the fields in use.
//!
//! Names and numbers are those of Envoy's `rls.proto` and `ratelimit.proto`. A field that is not
//! here is skipped when a message is read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use prost::{DecodeError, Enumeration, Message, Oneof};

/// The most descriptors of a request. The file of Envoy decides about them: more are an error.
pub(super) const DESCRIPTORS: usize = 1_024;

#[derive(Clone, PartialEq, Message)]
pub struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<DescriptorEntry>,
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    /// A `google.protobuf.UInt64Value`: 0 looks, and is not the same as none.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct DescriptorEntry {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct RateLimitOverride {
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// The number of a unit in a message; 0 or an unknown one is no override.
    #[prost(int32, tag = "2")]
    pub unit: i32,
}

impl RateLimitRequest {
    /// Reads a message. Bytes that are no UTF-8 are a text as well: a client chooses them, and
    /// Envoy lets a request pass that is answered by an error.
    ///
    /// # Errors
    ///
    /// The bytes are no message.
    pub fn read(bytes: &[u8]) -> Result<RateLimitRequest, DecodeError> {
        RateLimitRequest::decode(bytes).or_else(|_| RawRequest::decode(bytes).map(RateLimitRequest::from))
    }
}

/// Returns bytes as a text. A byte that is no part of UTF-8 becomes a character of its own.
///
/// These are U+10F780 to U+10F7FF, which are for private use. So two values that differ in such a
/// byte stay two, and a pattern matches the bytes around.
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 64);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        let private = chunk.invalid().iter().map(|&byte| char::from_u32(0x10_F700 + u32::from(byte)));
        text.extend(private.map(|each| each.unwrap_or(char::REPLACEMENT_CHARACTER)));
    }
    Cow::Owned(text)
}

/// A [`RateLimitRequest`] whose entries may be any bytes.
#[derive(Clone, PartialEq, Message)]
struct RawRequest {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<RawDescriptor>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RawDescriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<RawEntry>,
    #[prost(message, optional, tag = "2")]
    limit: Option<RateLimitOverride>,
    #[prost(message, optional, tag = "3")]
    hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    is_negative_hits: bool,
}

#[derive(Clone, PartialEq, Message)]
struct RawEntry {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

impl From<RawRequest> for RateLimitRequest {
    fn from(RawRequest { domain, descriptors, hits_addend }: RawRequest) -> RateLimitRequest {
        let descriptors = descriptors.into_iter().map(RateLimitDescriptor::from).collect();
        RateLimitRequest { domain, descriptors, hits_addend }
    }
}

impl From<RawDescriptor> for RateLimitDescriptor {
    fn from(raw: RawDescriptor) -> RateLimitDescriptor {
        let RawDescriptor { entries, limit, hits_addend, is_negative_hits } = raw;
        let text = |bytes: &[u8]| text_of(bytes).into_owned();
        let entry = |entry: &RawEntry| DescriptorEntry { key: text(&entry.key), value: text(&entry.value) };
        let entries = entries.iter().map(entry).collect();
        RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct RateLimitResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
    #[prost(message, optional, tag = "6")]
    pub dynamic_metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DescriptorStatus {
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<CurrentLimit>,
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<WholeSeconds>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CurrentLimit {
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    pub unit: i32,
    #[prost(string, tag = "3")]
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Code {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

/// A `google.protobuf.Duration` without its nanoseconds.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct WholeSeconds {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct HeaderValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A `google.protobuf.Struct`.
#[derive(Clone, PartialEq, Message)]
pub struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

/// A `google.protobuf.Value`.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(oneof = "ValueKind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<ValueKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum ValueKind {
    /// The number is always 0.
    #[prost(int32, tag = "1")]
    Null(i32),
    #[prost(double, tag = "2")]
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
#[derive(Clone, PartialEq, Message)]
pub struct ListValue {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    pub service: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    /// Of `Watch` alone: `Check` has the status NOT_FOUND for a service that is not known.
    ServiceUnknown = 3,
}

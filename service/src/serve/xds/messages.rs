//! The messages of `envoy.service.discovery.v3` and `ratelimit.config.ratelimit.v3`, with the
//! fields in use.
//!
//! Names and numbers are those of `discovery.proto` and `rls_conf.proto`.

use bytes::Bytes;
use prost::Message;

use crate::serve::messages::Struct;

/// The type of the resources.
pub(super) const TYPE: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

#[derive(Clone, PartialEq, Message)]
pub(super) struct DiscoveryRequest {
    /// The version that was accepted last.
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    #[prost(message, optional, tag = "2")]
    pub(super) node: Option<NodeMessage>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    /// That of the answered response, or empty at the begin of a stream.
    #[prost(string, tag = "5")]
    pub(super) response_nonce: String,
    /// The reason of a refusal.
    #[prost(message, optional, tag = "6")]
    pub(super) error_detail: Option<RpcStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeMessage {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, optional, tag = "3")]
    pub(super) metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DiscoveryResponse {
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) resources: Vec<AnyMessage>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) nonce: String,
}

/// A `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AnyMessage {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

/// A `RateLimitConfig`: a document of rules.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ConfigMessage {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) domain: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) descriptors: Vec<ConfigDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ConfigDescriptor {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
    #[prost(message, optional, tag = "3")]
    pub(super) rate_limit: Option<ConfigLimit>,
    #[prost(message, repeated, tag = "4")]
    pub(super) descriptors: Vec<ConfigDescriptor>,
    #[prost(bool, tag = "5")]
    pub(super) shadow_mode: bool,
    #[prost(bool, tag = "6")]
    pub(super) detailed_metric: bool,
    #[prost(bool, tag = "7")]
    pub(super) quota_mode: bool,
    #[prost(message, optional, tag = "8")]
    pub(super) metadata: Option<Struct>,
}

/// A `RateLimitPolicy`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ConfigLimit {
    #[prost(int32, tag = "1")]
    pub(super) unit: i32,
    #[prost(uint32, tag = "2")]
    pub(super) requests_per_unit: u32,
    #[prost(bool, tag = "3")]
    pub(super) unlimited: bool,
    #[prost(string, tag = "4")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) replaces: Vec<ConfigReplace>,
}

/// A `RateLimitReplace`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ConfigReplace {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

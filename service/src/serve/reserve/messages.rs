//! The messages of `kuadrant.service.ratelimit.v1`, beside those of Envoy.

use prost::{DecodeError, Enumeration, Message};

use super::super::messages::{Code, RateLimitDescriptor, RawDescriptor};

#[derive(Clone, PartialEq, Message)]
pub(in crate::serve) struct ReserveRequest {
    #[prost(string, tag = "1")]
    pub(in crate::serve) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::serve) descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint64, tag = "3")]
    pub(in crate::serve) amount: u64,
    #[prost(message, optional, tag = "4")]
    pub(in crate::serve) ttl: Option<Time>,
}

/// A `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(in crate::serve) struct Time {
    #[prost(int64, tag = "1")]
    pub(in crate::serve) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(in crate::serve) nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::serve) struct ReserveResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub(in crate::serve) code: i32,
    /// A text on the wire, of ASCII; empty unless the code is OK.
    #[prost(bytes = "vec", tag = "2")]
    pub(in crate::serve) reservation_id: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::serve) struct CommitRequest {
    #[prost(string, tag = "1")]
    pub(in crate::serve) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::serve) descriptors: Vec<RateLimitDescriptor>,
    /// Without one the actual amount is added, as by `Report`.
    #[prost(string, tag = "3")]
    pub(in crate::serve) reservation_id: String,
    #[prost(uint64, tag = "4")]
    pub(in crate::serve) actual_amount: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(in crate::serve) struct CommitResponse {
    /// The reservation was open, and is settled.
    #[prost(bool, tag = "1")]
    pub(in crate::serve) reservation_released: bool,
    /// An extension of this service: a client that does not know it skips it.
    #[prost(enumeration = "Outcome", tag = "100")]
    pub(in crate::serve) outcome: i32,
}

/// The outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(in crate::serve) enum Outcome {
    Unspecified = 0,
    Committed = 1,
    Late = 2,
    Twice = 3,
    OtherReplica = 4,
    Unknown = 5,
    /// The commit has no id.
    Reported = 6,
}

impl Outcome {
    /// All outcomes, with their names in the metrics.
    pub(super) const NAMES: [(Outcome, &str); 6] = [
        (Outcome::Committed, "committed"),
        (Outcome::Late, "late"),
        (Outcome::Twice, "twice"),
        (Outcome::OtherReplica, "other_replica"),
        (Outcome::Unknown, "unknown"),
        (Outcome::Reported, "reported"),
    ];
}

#[derive(Clone, PartialEq, Message)]
struct RawReserve {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<RawDescriptor>,
    #[prost(uint64, tag = "3")]
    amount: u64,
    #[prost(message, optional, tag = "4")]
    ttl: Option<Time>,
}

#[derive(Clone, PartialEq, Message)]
struct RawCommit {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<RawDescriptor>,
    #[prost(string, tag = "3")]
    reservation_id: String,
    #[prost(uint64, tag = "4")]
    actual_amount: u64,
}

impl ReserveRequest {
    /// Reads a message, whose entries may be any bytes.
    pub(in crate::serve) fn read(bytes: &[u8]) -> Result<ReserveRequest, DecodeError> {
        ReserveRequest::decode(bytes).or_else(|_| {
            let RawReserve { domain, descriptors, amount, ttl } = RawReserve::decode(bytes)?;
            let descriptors = descriptors.into_iter().map(RateLimitDescriptor::from).collect();
            Ok(ReserveRequest { domain, descriptors, amount, ttl })
        })
    }
}

impl CommitRequest {
    /// Reads a message, whose entries may be any bytes.
    pub(in crate::serve) fn read(bytes: &[u8]) -> Result<CommitRequest, DecodeError> {
        CommitRequest::decode(bytes).or_else(|_| {
            let RawCommit { domain, descriptors, reservation_id, actual_amount } = RawCommit::decode(bytes)?;
            let descriptors = descriptors.into_iter().map(RateLimitDescriptor::from).collect();
            Ok(CommitRequest { domain, descriptors, reservation_id, actual_amount })
        })
    }
}

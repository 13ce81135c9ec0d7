//! Limits over HTTP for any framework: the keys of requests, and the headers of responses.

mod check;
mod client_ip;
mod digest;
mod exempt;
mod fields;
mod forwarded;
pub(crate) mod grpc;
mod key;
mod policy;
mod policy_name;
mod refusal;

pub use check::Check;
#[cfg(feature = "ipnet")]
pub use client_ip::networks::InvalidNetwork;
pub use client_ip::{ClientIp, ClientIpStats, InvalidPrefix};
pub use digest::Digest;
pub use exempt::{Exempt, InvalidPath};
pub use fields::Fields;
pub use grpc::GrpcForm;
pub use key::{Extension, Head, HeaderKey, KeyFrom, key_fn};
pub use policy::{Headers, Policy};
pub use policy_name::InvalidName;
pub use refusal::{Bare, Problem, Refusal, Reject};

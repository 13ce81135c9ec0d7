//! Limits over HTTP, whatever the framework: who asks, and what a response says of it.

pub(crate) mod base64;
mod check;
mod client_ip;
mod fields;
mod forwarded;
pub(crate) mod grpc;
mod head;
mod policy;
mod refusal;
mod secret;
#[cfg(feature = "ipnet")]
mod trusted;

pub use check::Check;
pub use client_ip::{ClientIp, ClientIpStats, InvalidPrefix};
pub use fields::Fields;
pub use head::{Extension, Head, HeaderKey, KeyFrom, key_fn};
pub use policy::{Headers, InvalidName, Policy, ResetFormat};
pub use refusal::{Bare, Problem, Refusal, Reject};
pub use secret::Digest;

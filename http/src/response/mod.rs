//! The response: the policy that a limit reports, its headers, and refusals over HTTP and gRPC.

pub(crate) mod fields;
pub(crate) mod grpc;
pub(crate) mod head;
pub(crate) mod policy;
pub(crate) mod policy_name;
pub(crate) mod refusal;
pub(crate) mod refusal_body;

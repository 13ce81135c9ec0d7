//! Requests and responses as proto3 JSON, which [`messages`](super::messages) describe.

use super::messages::{Object, RateLimitRequest, RateLimitResponse};

/// Reads a request. The error is a sentence that names the fault and its place.
pub(crate) fn request(text: &[u8]) -> Result<RateLimitRequest, String> {
    serde_json::from_slice(text).map(|Object(request)| request).map_err(|error| error.to_string())
}

/// Writes a response. A field with its default is left out.
pub(crate) fn response(response: &RateLimitResponse) -> String {
    serde_json::to_string(response).unwrap_or_default()
}

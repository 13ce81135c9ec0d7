//! A response of pingora, whose names keep their spelling beside the map.

use http::header::{HeaderName, HeaderValue};
use pingora_http::ResponseHeader;
use tollgate_http::{ResponseHead, ResponseMut};

/// A head to which fields are added.
pub(crate) struct Spelled<'a>(pub(crate) &'a mut ResponseHeader);

impl ResponseMut for Spelled<'_> {
    fn head(&self) -> ResponseHead<'_> {
        ResponseHead::from(&**self.0)
    }

    // A map that is full, with 32,768 fields, takes no more.
    fn append(&mut self, name: HeaderName, value: HeaderValue) {
        let _ = match spelled(&name) {
            Some(spelled) => self.0.append_header(spelled, value),
            None => self.0.append_header(name, value),
        };
    }

    fn insert(&mut self, name: HeaderName, value: HeaderValue) {
        let _ = self.0.insert_header(name, value);
    }
}

/// Returns the name of a field of each grant, as its specification spells it. pingora copies the name
/// of any other.
#[inline]
fn spelled(name: &HeaderName) -> Option<&'static str> {
    match name.as_str() {
        "ratelimit-policy" => Some("RateLimit-Policy"),
        "ratelimit" => Some("RateLimit"),
        _ => None,
    }
}

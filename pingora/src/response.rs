//! A response of pingora, whose names keep their spelling beside the map.

use http::header::{HeaderName, HeaderValue};
use pingora_http::ResponseHeader;
use tollgate_http::{ResponseHead, ResponseMut};

/// A head to which fields are added.
pub(crate) struct Spelled<'a>(pub(crate) &'a mut ResponseHeader);

/// The names that a grant adds, as their specifications spell them. pingora copies any other name.
const SPELLED: [&str; 2] = ["RateLimit-Policy", "RateLimit"];

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

fn spelled(name: &HeaderName) -> Option<&'static str> {
    SPELLED.into_iter().find(|spelled| name.as_str().eq_ignore_ascii_case(spelled))
}

//! The fields of a head.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

/// Returns the value of a field, if there is one alone.
pub fn only_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

//! The head of a response, to read and to add fields to.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::response::Parts;
use http::{Extensions, Response, StatusCode};

/// The head of a response, for [`LayerBuilder::settle_on`](crate::LayerBuilder::settle_on).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ResponseHead<'a> {
    /// The status.
    pub status: StatusCode,
    /// The headers, as the inner service wrote them.
    pub headers: &'a HeaderMap,
    /// The notes of the inner service.
    pub extensions: &'a Extensions,
}

impl<'a, B> From<&'a Response<B>> for ResponseHead<'a> {
    fn from(response: &'a Response<B>) -> ResponseHead<'a> {
        let (status, headers) = (response.status(), response.headers());
        ResponseHead { status, headers, extensions: response.extensions() }
    }
}

impl<'a> From<&'a Parts> for ResponseHead<'a> {
    fn from(parts: &'a Parts) -> ResponseHead<'a> {
        let Parts { status, headers, extensions, .. } = parts;
        ResponseHead { status: *status, headers, extensions }
    }
}

/// A response whose head takes the fields of a decision, for
/// [`Passed::respond`](crate::Passed::respond).
///
/// [`Response`] and [`Parts`] are such. A framework with another type of headers implements it for
/// a reference to its own.
///
/// # Examples
///
/// A framework that keeps the spelling of names beside the map:
///
/// ```
/// use http::header::{HeaderName, HeaderValue};
/// use tollgate_http::{ResponseHead, ResponseMut};
///
/// struct Spelled<'a> {
///     head: &'a mut http::response::Parts,
///     names: Vec<String>,
/// }
///
/// impl ResponseMut for Spelled<'_> {
///     fn head(&self) -> ResponseHead<'_> {
///         ResponseHead::from(&*self.head)
///     }
///     fn append(&mut self, name: HeaderName, value: HeaderValue) {
///         self.names.push(name.to_string());
///         self.head.headers.append(name, value);
///     }
///     fn insert(&mut self, name: HeaderName, value: HeaderValue) {
///         self.names.push(name.to_string());
///         self.head.headers.insert(name, value);
///     }
/// }
/// ```
pub trait ResponseMut {
    /// Returns the head.
    fn head(&self) -> ResponseHead<'_>;

    /// Adds a field beside others of its name.
    fn append(&mut self, name: HeaderName, value: HeaderValue);

    /// Adds a field in place of all others of its name.
    fn insert(&mut self, name: HeaderName, value: HeaderValue);
}

impl<B> ResponseMut for Response<B> {
    #[inline]
    fn head(&self) -> ResponseHead<'_> {
        self.into()
    }

    #[inline]
    fn append(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers_mut().append(name, value);
    }

    #[inline]
    fn insert(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers_mut().insert(name, value);
    }
}

impl ResponseMut for Parts {
    #[inline]
    fn head(&self) -> ResponseHead<'_> {
        self.into()
    }

    #[inline]
    fn append(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.append(name, value);
    }

    #[inline]
    fn insert(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }
}

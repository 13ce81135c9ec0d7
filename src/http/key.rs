//! What a limit is told of a request, and the keys that are found in it.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use http::header::{HeaderMap, HeaderName};
use http::request::Parts;
use http::{Extensions, Method, Request, Uri, Version};

use super::check::Check;
use super::digest::Digest;

/// The head of a request, borrowed from a whole one or from its [`Parts`].
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::http::Head;
///
/// let request = Request::post("/login").body(()).unwrap();
/// assert_eq!(Head::from(&request).uri.path(), "/login");
/// let (parts, ()) = request.into_parts();
/// assert_eq!(Head::from(&parts).method, "POST");
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Head<'a> {
    /// GET and so on.
    pub method: &'a Method,
    /// What is asked for.
    pub uri: &'a Uri,
    /// Of HTTP.
    pub version: Version,
    /// What the client says, and who forwards for it.
    pub headers: &'a HeaderMap,
    /// What the server has noted: the peer's address, who was authenticated.
    pub extensions: &'a Extensions,
}

impl<'a, B> From<&'a Request<B>> for Head<'a> {
    fn from(request: &'a Request<B>) -> Head<'a> {
        Head {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

impl<'a> From<&'a Parts> for Head<'a> {
    fn from(parts: &'a Parts) -> Head<'a> {
        let Parts { method, uri, version, headers, extensions, .. } = parts;
        Head { method, uri, version: *version, headers, extensions }
    }
}

/// Finds the key that a request is limited by.
///
/// A closure does, and so does a pair or a triple, whose key is a pair or a triple: `("a", "b:c")` is never taken for
/// `("a:b", "c")`. It can be boxed: `Box<dyn KeyFrom<Key = K>>`.
///
/// What a client says of itself is whatever it likes. Limit by it only what somebody has checked: see
/// [`ClientIp`](super::ClientIp) and [`HeaderKey`].
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::http::{Head, HeaderKey, KeyFrom, key_fn};
///
/// let by_path = key_fn(|head| Some(head.uri.path().to_owned()));
/// let by_both = (by_path, HeaderKey::new("x-tenant").unwrap());
/// let request = Request::get("/a").header("X-Tenant", "7").body(()).unwrap();
/// assert_eq!(by_both.key_from(Head::from(&request)).unwrap().0, "/a");
///
/// // Without one of them there is none of both.
/// let request = Request::get("/a").body(()).unwrap();
/// assert!(by_both.key_from(Head::from(&request)).is_none());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` finds no key in the head of a request",
    label = "neither `ClientIp`, `HeaderKey` nor `Extension`, nor a pair of these, nor a closure",
    note = "a closure takes a `Head<'_>` and returns an `Option` of the limiter's key: `key_fn(|head| ..)` infers the type"
)]
pub trait KeyFrom: Send + Sync {
    /// A type of its own for each kind of key, so that none is taken for another's.
    type Key: Hash + Eq + Clone + Send + Sync + 'static;

    /// The key, if the request has one.
    fn key_from(&self, head: Head<'_>) -> Option<Self::Key>;

    /// Returns a fault of the server's setup that `head` shows; `None` if it shows none.
    ///
    /// A layer asks about requests that have no key and about refused ones, never about granted
    /// ones. It asks once without a request when it is built. A request without a key is answered
    /// with 500 for [`Check::NoPeer`], and with 400 otherwise.
    fn check(&self, head: Option<Head<'_>>) -> Option<Check> {
        let _ = head;
        None
    }
}

/// A closure as a [`KeyFrom`], whose argument needs no type: `key_fn(|head| ..)`.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::http::{Head, KeyFrom, key_fn};
///
/// let by_path = key_fn(|head| Some(head.uri.path().to_owned()));
/// let request = Request::get("/a").body(()).unwrap();
/// assert_eq!(by_path.key_from(Head::from(&request)).as_deref(), Some("/a"));
/// ```
pub fn key_fn<K, F: Fn(Head<'_>) -> Option<K> + Send + Sync>(find: F) -> F {
    find
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, F> KeyFrom for F
where
    F: Fn(Head<'_>) -> Option<K> + Send + Sync,
{
    type Key = K;

    fn key_from(&self, head: Head<'_>) -> Option<K> {
        self(head)
    }
}

impl<A: KeyFrom, B: KeyFrom> KeyFrom for (A, B) {
    type Key = (A::Key, B::Key);

    fn key_from(&self, head: Head<'_>) -> Option<Self::Key> {
        Some((self.0.key_from(head)?, self.1.key_from(head)?))
    }

    fn check(&self, head: Option<Head<'_>>) -> Option<Check> {
        self.0.check(head).or_else(|| self.1.check(head))
    }
}

impl<A: KeyFrom, B: KeyFrom, C: KeyFrom> KeyFrom for (A, B, C) {
    type Key = (A::Key, B::Key, C::Key);

    fn key_from(&self, head: Head<'_>) -> Option<Self::Key> {
        Some((self.0.key_from(head)?, self.1.key_from(head)?, self.2.key_from(head)?))
    }

    fn check(&self, head: Option<Head<'_>>) -> Option<Check> {
        self.0.check(head).or_else(|| self.1.check(head)).or_else(|| self.2.check(head))
    }
}

/// A [`Digest`] of a header's value: no secret is kept.
///
/// A request that has the header more than once has no key. A value is whatever the client says until something has
/// checked it, and each new one is a new bucket: combine it with a limit by address, or limit after authentication, by an
/// [`Extension`].
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::http::{Digest, Head, HeaderKey, KeyFrom};
///
/// let key = HeaderKey::new("x-api-key")?;
/// let request = Request::get("/").header("X-API-Key", "k1").body(()).unwrap();
/// assert_eq!(key.key_from(Head::from(&request)), Some(Digest::of(b"k1")));
/// # Ok::<(), http::header::InvalidHeaderName>(())
/// ```
#[derive(Clone, Debug)]
pub struct HeaderKey(HeaderName);

impl HeaderKey {
    /// The key in the header of this name.
    ///
    /// # Errors
    ///
    /// It is no name of a header.
    pub fn new(name: &str) -> Result<HeaderKey, http::header::InvalidHeaderName> {
        HeaderName::from_bytes(name.as_bytes()).map(HeaderKey)
    }
}

impl From<HeaderName> for HeaderKey {
    fn from(name: HeaderName) -> HeaderKey {
        HeaderKey(name)
    }
}

impl KeyFrom for HeaderKey {
    type Key = Digest;

    fn key_from(&self, head: Head<'_>) -> Option<Digest> {
        only(head.headers, &self.0).map(Digest::of)
    }
}

/// The value of a header that is there once.
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let only = values.next()?;
    values.next().is_none().then_some(only.as_bytes())
}

/// What was put into the request's extensions, as by a layer that has authenticated it.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::http::{Extension, Head, KeyFrom};
///
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// struct UserId(u64);
///
/// let mut request = Request::new(());
/// request.extensions_mut().insert(UserId(7));
/// assert!(Extension::<UserId>::new().key_from(Head::from(&request)) == Some(UserId(7)));
/// ```
pub struct Extension<T>(PhantomData<fn() -> T>);

impl<T> Extension<T> {
    /// That of type `T`.
    #[must_use]
    pub const fn new() -> Extension<T> {
        Extension(PhantomData)
    }
}

impl<T> Default for Extension<T> {
    fn default() -> Extension<T> {
        Extension::new()
    }
}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Extension<T> {
        *self
    }
}

impl<T> Copy for Extension<T> {}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extension").finish_non_exhaustive()
    }
}

impl<T: Hash + Eq + Clone + Send + Sync + 'static> KeyFrom for Extension<T> {
    type Key = T;

    fn key_from(&self, head: Head<'_>) -> Option<T> {
        head.extensions.get::<T>().cloned()
    }
}

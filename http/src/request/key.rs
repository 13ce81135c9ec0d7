//! The head of a request, and the keys in it.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::marker::PhantomData;
use std::net::IpAddr;

use http::header::{HeaderMap, HeaderName};
use http::request::Parts;
use http::{Extensions, Method, Request, Uri, Version};

use super::check::Check;
use super::digest::Digest;
use super::value::header_value;

/// Returns the hash of a key: the same in each process.
pub(crate) fn hash_of<K: Hash>(key: &K) -> u64 {
    BuildHasherDefault::<DefaultHasher>::new().hash_one(key)
}

/// The head of a request, borrowed from the request or from its [`Parts`].
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate_http::Head;
///
/// let request = Request::post("/login").body(()).unwrap();
/// assert_eq!(Head::from(&request).uri.path(), "/login");
/// let (parts, ()) = request.into_parts();
/// assert_eq!(Head::from(&parts).method, "POST");
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Head<'a> {
    /// The method, such as GET.
    pub method: &'a Method,
    /// The target of the request.
    pub uri: &'a Uri,
    /// The version of HTTP.
    pub version: Version,
    /// The headers, as the client and its proxies wrote them.
    pub headers: &'a HeaderMap,
    /// The server's notes, such as the peer's address and the authenticated user.
    pub extensions: &'a Extensions,
    /// The peer's address, if the server keeps it apart from the request.
    pub peer: Option<IpAddr>,
}

impl Head<'_> {
    /// Sets the peer's address: for a server that keeps it apart from the request.
    ///
    /// A [`ClientIp`](crate::ClientIp) takes this one, and looks for no other.
    #[must_use]
    pub fn with_peer(self, peer: impl Into<Option<IpAddr>>) -> Self {
        Head { peer: peer.into(), ..self }
    }
}

impl<'a, B> From<&'a Request<B>> for Head<'a> {
    fn from(request: &'a Request<B>) -> Head<'a> {
        Head {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
            peer: None,
        }
    }
}

impl<'a> From<&'a Parts> for Head<'a> {
    fn from(parts: &'a Parts) -> Head<'a> {
        let Parts { method, uri, version, headers, extensions, .. } = parts;
        Head { method, uri, version: *version, headers, extensions, peer: None }
    }
}

/// A source of keys: finds the key that a request is limited by.
///
/// Closures are sources, and so are pairs and triples of sources. The key of a pair is a pair:
/// `("a", "b:c")` is never taken for `("a:b", "c")`. A source can be boxed: `Box<dyn KeyFrom<Key =
/// K>>`.
///
/// A client can send any value. Limit only by values that a server or proxy has checked: see
/// [`ClientIp`](crate::ClientIp) and [`HeaderKey`].
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate_http::{Head, HeaderKey, KeyFrom, key_fn};
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
    /// The type of the keys. Each kind of key has its own, so that no two are mixed up.
    type Key: Hash + Eq + Clone + Send + Sync + 'static;

    /// Returns the key, if the request has one.
    fn key_from(&self, head: Head<'_>) -> Option<Self::Key>;

    /// Returns a fault of the server's setup that `head` shows; `None` if it shows none.
    ///
    /// A layer asks about requests without a key and about refused ones, never about granted ones.
    /// A request without a key is answered with 500 for [`Check::NoPeer`], and with 400 otherwise.
    fn check(&self, head: Head<'_>) -> Option<Check> {
        let _ = head;
        None
    }

    /// Returns whether no client can choose the key of another one, as its address.
    ///
    /// A layer bans only such keys: see [`ban_after`](crate::LimitBy::ban_after). Nothing is
    /// known of a closure, and so it is trusted. A pair is proved if one part is.
    fn is_proved(&self) -> bool {
        true
    }
}

/// Returns a closure as a [`KeyFrom`], and infers the type of its argument: `key_fn(|head| ..)`.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate_http::{Head, KeyFrom, key_fn};
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

    fn check(&self, head: Head<'_>) -> Option<Check> {
        self.0.check(head).or_else(|| self.1.check(head))
    }

    fn is_proved(&self) -> bool {
        self.0.is_proved() || self.1.is_proved()
    }
}

impl<A: KeyFrom, B: KeyFrom, C: KeyFrom> KeyFrom for (A, B, C) {
    type Key = (A::Key, B::Key, C::Key);

    fn key_from(&self, head: Head<'_>) -> Option<Self::Key> {
        Some((self.0.key_from(head)?, self.1.key_from(head)?, self.2.key_from(head)?))
    }

    fn check(&self, head: Head<'_>) -> Option<Check> {
        self.0.check(head).or_else(|| self.1.check(head)).or_else(|| self.2.check(head))
    }

    fn is_proved(&self) -> bool {
        self.0.is_proved() || self.1.is_proved() || self.2.is_proved()
    }
}

/// A source of keys that are [`Digest`]s of a header's value: no secret is kept.
///
/// The value is read by [`header_value`]: a request with two different ones, or an empty one, has
/// no key. Each new value is a new bucket, and a client can
/// send any value, also that of another client: it spends the other's tokens. Combine this limit
/// with one by address, or limit after authentication, by an [`Extension`]. A limit bans these keys
/// only if they are [proved](HeaderKey::proved).
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate_http::{Digest, Head, HeaderKey, KeyFrom};
///
/// let key = HeaderKey::new("x-api-key")?;
/// let request = Request::get("/").header("X-API-Key", "k1").body(()).unwrap();
/// assert_eq!(key.key_from(Head::from(&request)), Some(Digest::of(b"k1")));
/// # Ok::<(), http::header::InvalidHeaderName>(())
/// ```
#[derive(Clone, Debug)]
pub struct HeaderKey {
    name: HeaderName,
    proved: bool,
}

impl HeaderKey {
    /// Takes the key from the header of this name.
    ///
    /// # Errors
    ///
    /// `name` is no valid header name.
    pub fn new(name: &str) -> Result<HeaderKey, http::header::InvalidHeaderName> {
        HeaderName::from_bytes(name.as_bytes()).map(HeaderKey::from)
    }

    /// Says that a server in front of the layer has checked the value, or has written it.
    ///
    /// So no client can send the value of another one, and a limit may [ban](KeyFrom::is_proved)
    /// it.
    #[must_use]
    pub fn proved(self) -> HeaderKey {
        HeaderKey { proved: true, ..self }
    }
}

impl From<HeaderName> for HeaderKey {
    fn from(name: HeaderName) -> HeaderKey {
        HeaderKey { name, proved: false }
    }
}

impl KeyFrom for HeaderKey {
    type Key = Digest;

    fn key_from(&self, head: Head<'_>) -> Option<Digest> {
        header_value(head.headers, &self.name).map(|value| Digest::of(&value))
    }

    fn is_proved(&self) -> bool {
        self.proved
    }
}

/// A source of keys in the request's extensions, such as those of a layer that authenticates.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate_http::{Extension, Head, KeyFrom};
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
    /// Takes the extension of type `T`.
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

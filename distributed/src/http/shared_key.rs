//! Keys of a fleet from values that clients send.

use std::fmt;
use std::hash::{Hash, Hasher};

use http::header::{HeaderName, InvalidHeaderName};
use ring::digest::{SHA256, digest};
use tollgate::KeyBytes;
use tollgate_http::{Head, KeyFrom, header_value};

use crate::key::StoreKey;

/// A digest of a value that is the same in each process: the first 128 bits of its SHA-256.
///
/// The store has the digest and not the value. A value that can be guessed can be found from its
/// digest, which has no secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedDigest([u8; 16]);

impl SharedDigest {
    /// Returns the digest of a value.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_distributed::SharedDigest;
    ///
    /// assert_eq!(SharedDigest::of(b"k1").to_string(), "6ab9f1eb8f7d3388f4f9d586f66e99fd");
    /// ```
    #[must_use]
    pub fn of(value: &[u8]) -> SharedDigest {
        let mut first = [0; 16];
        first.copy_from_slice(&digest(&SHA256, value).as_ref()[..16]);
        SharedDigest(first)
    }
}

/// Writes the 16 bytes alone: a saved table has hashes, which another build has to find again.
impl Hash for SharedDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for SharedDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SharedDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StoreKey for SharedDigest {
    fn write(&self, bytes: &mut Vec<u8>) {
        StoreKey::write(&self.to_string(), bytes);
    }
}

/// For the saved state of a limiter of one process.
impl KeyBytes for SharedDigest {
    fn write(&self, bytes: &mut Vec<u8>) {
        KeyBytes::write(&self.0, bytes);
    }

    fn read(bytes: &[u8]) -> Option<SharedDigest> {
        KeyBytes::read(bytes).map(SharedDigest)
    }
}

/// A source of keys that are digests of a header's value, for a limiter that a fleet shares.
///
/// [`HeaderKey`](tollgate_http::HeaderKey) is for a limiter of one process: its digests differ
/// from process to process. As there, a request with two different values has no key, each new
/// value is a new bucket, and a limit bans these keys only if they are
/// [proved](SharedHeaderKey::proved).
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate_http::{Head, KeyFrom};
/// use tollgate_distributed::{SharedDigest, SharedHeaderKey};
///
/// let key = SharedHeaderKey::new("x-api-key")?;
/// let request = Request::get("/").header("X-API-Key", "k1").body(()).unwrap();
/// assert_eq!(key.key_from(Head::from(&request)), Some(SharedDigest::of(b"k1")));
/// # Ok::<(), http::header::InvalidHeaderName>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedHeaderKey {
    name: HeaderName,
    proved: bool,
}

impl SharedHeaderKey {
    /// Takes the key from the header of this name.
    ///
    /// # Errors
    ///
    /// [`InvalidHeaderName`] if `name` is no valid name of a header.
    pub fn new(name: &str) -> Result<SharedHeaderKey, InvalidHeaderName> {
        HeaderName::from_bytes(name.as_bytes()).map(SharedHeaderKey::from)
    }

    /// Says that a server in front of the layer has checked the value, or has written it.
    ///
    /// So no client can send the value of another one, and a limit may ban it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_http::KeyFrom;
    /// use tollgate_distributed::SharedHeaderKey;
    ///
    /// let key = SharedHeaderKey::new("x-account")?;
    /// assert!(!key.is_proved());
    /// // A gateway in front writes the header.
    /// assert!(key.proved().is_proved());
    /// # Ok::<(), http::header::InvalidHeaderName>(())
    /// ```
    #[must_use]
    pub fn proved(self) -> SharedHeaderKey {
        SharedHeaderKey { proved: true, ..self }
    }
}

impl From<HeaderName> for SharedHeaderKey {
    fn from(name: HeaderName) -> SharedHeaderKey {
        SharedHeaderKey { name, proved: false }
    }
}

impl KeyFrom for SharedHeaderKey {
    type Key = SharedDigest;

    fn key_from(&self, head: Head<'_>) -> Option<SharedDigest> {
        header_value(head.headers, &self.name).map(|value| SharedDigest::of(&value))
    }

    fn is_proved(&self) -> bool {
        self.proved
    }
}

//! Digests of values that clients send: no secret is kept, and a key has a fixed size.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::OnceLock;

/// A 128-bit digest of a value: two SipHashes whose keys are random in each process.
///
/// Two values collide with a probability of 2^-128, and no search for a collision is possible
/// outside the process. Digests must not be stored: another process has other keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u64; 2]);

/// The most bytes of a value that are hashed, besides its length.
const MAX_HASHED: usize = 4096;

impl Digest {
    /// Returns the digest of the first 4,096 bytes and of the length.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_http::Digest;
    ///
    /// assert_eq!(Digest::of(b"secret"), Digest::of(b"secret"));
    /// assert_ne!(Digest::of(b"secret"), Digest::of(b"Secret"));
    /// ```
    #[must_use]
    pub fn of(value: &[u8]) -> Digest {
        static KEYS: OnceLock<[RandomState; 2]> = OnceLock::new();
        let keys = KEYS.get_or_init(Default::default);
        let counted = (&value[..value.len().min(MAX_HASHED)], value.len());
        Digest([keys[0].hash_one(counted), keys[1].hash_one(counted)])
    }
}

/// Writes half of the digest, which is as random as a hash.
impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0[0]);
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

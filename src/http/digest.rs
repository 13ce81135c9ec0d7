//! Digests of what clients send, so that no secret is kept and a key has a fixed size.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::OnceLock;

/// 128 bits that stand for a value: two SipHashes with keys that are random in each process.
///
/// Two values have the same one with a probability of 2^-128, and nobody outside of the process can look for two that have. It is
/// not to be kept: another process has other keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u64; 2]);

/// Of a longer value so many bytes count, and its length.
const MAX_HASHED: usize = 4096;

impl Digest {
    /// The digest of some bytes: of the first 4,096, and their number.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::http::Digest;
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

/// Half of it does: it is as random as a hash.
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

//! The hasher of keys, by a secret.
//!
//! A table keeps hashes of keys, and no key. So a saved one is of use to a process that has the
//! secret, which is a part of the same file.

use std::hash::{BuildHasher, RandomState};
use std::io;

use siphasher::sip::SipHasher13;

use tollgate_common::state_file::{SavedPart, Writer, take_secret};

/// A hasher with a secret. A client that knows it can make up keys that meet in a table, so the
/// type has no `Debug`.
#[derive(Clone, Copy)]
pub(crate) struct KeyHasher(SipHasher13);

impl KeyHasher {
    /// Returns a hasher with a new secret.
    pub(crate) fn new() -> KeyHasher {
        let random = RandomState::new();
        KeyHasher(SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1)))
    }

    /// Returns the hasher of a saved state, or one with a new secret if that has none. It takes the
    /// secret out of the parts.
    pub(crate) fn of_saved(parts: &mut Vec<SavedPart>) -> KeyHasher {
        take_secret(parts).map_or_else(KeyHasher::new, |secret| KeyHasher(SipHasher13::new_with_key(&secret)))
    }

    /// Writes the secret.
    pub(super) fn save(&self, to: &mut Writer) -> io::Result<()> {
        to.put_secret(&self.0.key())
    }
}

impl BuildHasher for KeyHasher {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        self.0
    }
}

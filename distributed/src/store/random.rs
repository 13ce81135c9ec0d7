//! Random numbers, by the keys of a hasher of the standard library.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns a random number.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

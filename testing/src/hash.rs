//! Hashers and keys by which a test chooses what collides.

use std::hash::{BuildHasher, Hash, Hasher};

/// A hasher that returns the written number, so that a test chooses which keys collide.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain(u64);

impl BuildHasher for Plain {
    type Hasher = Plain;

    fn build_hasher(&self) -> Plain {
        Plain(0)
    }
}

impl Hasher for Plain {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = self.0.rotate_left(5) ^ word;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A key that collides with every other key of its `hash`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin {
    /// The hash.
    pub hash: u64,
    /// Tells keys of one hash apart.
    pub id: u64,
}

impl Hash for Twin {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

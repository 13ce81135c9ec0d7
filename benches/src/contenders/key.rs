//! The keys of the contenders.

/// A key of a limiter.
pub trait Key: std::hash::Hash + Eq + Clone + Send + Sync + std::fmt::Debug + 'static {
    /// Returns the key as bytes, for a contender that has no other keys.
    fn bytes(&self) -> impl AsRef<[u8]>;
}

impl Key for u64 {
    fn bytes(&self) -> impl AsRef<[u8]> {
        self.to_ne_bytes()
    }
}

impl Key for String {
    fn bytes(&self) -> impl AsRef<[u8]> {
        self.as_bytes()
    }
}

//! Promises of keys, wherever their buckets are: these files are compiled for either store.
//!
//! The stores differ on purpose in their room. A map has exactly the room asked for. The smallest
//! table has eight places; so a test that needs a full limiter fills them with keys that it does
//! not use.

mod all_of;
mod batch;
mod between;
mod conformance;
mod crossed;
mod dropped;
mod edges;
mod eviction;
mod face;
mod flood;
mod hold;
mod janitor;
mod leaps;
mod moments;
mod options;
mod plans;
mod refund;
mod reserve;
mod set_quota;
mod shadow;
mod small;
#[cfg(feature = "tokio")]
mod timeouts;
#[cfg(feature = "tokio")]
mod waiting;
mod walk;

use std::hash::{BuildHasher, Hash};

use tollgate::{Builder, RateLimiter, Rule};

use super::STORE;
use crate::store::Store;

pub(crate) const IN_TABLE: bool = matches!(STORE, Store::Table);
/// Keys that a limiter without room holds.
pub(crate) const CROWD: usize = if IN_TABLE { 8 } else { 0 };
/// Keys that a limiter with room for one holds.
pub(crate) const WITH_ONE: usize = if IN_TABLE { 8 } else { 1 };

pub(crate) trait InStore<K, R: Rule, S> {
    /// Returns a builder with room for all keys of a test, unless the test says otherwise.
    fn stored(rule: R) -> Builder<K, R, S>;
}

impl<K, R: Rule, S: BuildHasher + Default> InStore<K, R, S> for RateLimiter<K, R, S> {
    fn stored(rule: R) -> Builder<K, R, S> {
        let builder = RateLimiter::builder(rule).hasher(S::default());
        if IN_TABLE { builder.max_keys(1_000).inline().unwrap() } else { builder }
    }
}

pub(crate) trait Room<K, R: Rule, S>: Sized {
    /// Makes room for `keys` keys: exactly in a map, and at least in a table, which is never a map.
    fn room(self, keys: usize) -> Self;

    /// Builds a limiter with room for `places` keys, at most eight in a table. Keys without a token
    /// fill all other places.
    fn with_places(self, places: usize) -> RateLimiter<K, R, S>
    where
        K: Stranger,
        S: BuildHasher + Send + Sync;
}

impl<K, R: Rule, S> Room<K, R, S> for Builder<K, R, S> {
    fn room(self, keys: usize) -> Self {
        if IN_TABLE { self.max_keys(keys.max(1)).inline().unwrap() } else { self.max_keys(keys) }
    }

    fn with_places(self, places: usize) -> RateLimiter<K, R, S>
    where
        K: Stranger,
        S: BuildHasher + Send + Sync,
    {
        let limiter =
            if IN_TABLE { self.max_keys(1).inline().unwrap() } else { self.max_keys(places) }.build();
        for stranger in (places..CROWD).map(|index| K::stranger(index as u64)) {
            let all = limiter.peek(&stranger).remaining();
            let _ = limiter.key(&stranger).n(all.max(1)).acquire_up_to();
        }
        assert_eq!(limiter.len(), CROWD.saturating_sub(places));
        limiter
    }
}

/// A key that no test uses.
pub(crate) trait Stranger: Clone + Hash + Eq + Send + Sync {
    fn stranger(index: u64) -> Self;
}

impl Stranger for u64 {
    fn stranger(index: u64) -> u64 {
        u64::MAX / 2 - index
    }
}

impl Stranger for String {
    fn stranger(index: u64) -> String {
        format!("stranger {index}")
    }
}

impl Stranger for crate::support::Twin {
    fn stranger(index: u64) -> Self {
        crate::support::Twin { hash: (1 << 40) + (index << 20), id: 0 }
    }
}

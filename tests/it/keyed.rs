//! Promises of keys, wherever their buckets are. They run in a map, and in a process of their own
//! in a table: `TOLLGATE_TEST_STORE=table` does so as well.
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
use std::process::Command;
use std::sync::OnceLock;

use tollgate::{Builder, RateLimiter, Rule};

/// Returns whether the buckets of this process are in a table.
pub(crate) fn in_table() -> bool {
    static IN_TABLE: OnceLock<bool> = OnceLock::new();
    *IN_TABLE.get_or_init(|| std::env::var("TOLLGATE_TEST_STORE").is_ok_and(|store| store == "table"))
}

/// Returns the keys that a limiter without room holds.
pub(crate) fn crowd() -> usize {
    if in_table() { 8 } else { 0 }
}

/// Returns the keys that a limiter with room for one holds.
pub(crate) fn with_one() -> usize {
    if in_table() { 8 } else { 1 }
}

#[test]
fn all_of_these_hold_in_a_table() {
    if in_table() {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let ended = Command::new(program).arg("keyed::").env("TOLLGATE_TEST_STORE", "table").output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{text}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(text.contains("test keyed::walk::"), "no test ran: {text}");
}

pub(crate) trait InStore<K, R: Rule, S> {
    /// Returns a builder with room for all keys of a test, unless the test says otherwise.
    fn stored(rule: R) -> Builder<K, R, S>;
}

impl<K, R: Rule, S: BuildHasher + Default> InStore<K, R, S> for RateLimiter<K, R, S> {
    fn stored(rule: R) -> Builder<K, R, S> {
        let builder = RateLimiter::builder(rule).hasher(S::default());
        if in_table() { builder.max_keys(1_000).inline().unwrap() } else { builder }
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
        if in_table() { self.max_keys(keys.max(1)).inline().unwrap() } else { self.max_keys(keys) }
    }

    fn with_places(self, places: usize) -> RateLimiter<K, R, S>
    where
        K: Stranger,
        S: BuildHasher + Send + Sync,
    {
        let limiter =
            if in_table() { self.max_keys(1).inline().unwrap() } else { self.max_keys(places) }.build();
        for stranger in (places..crowd()).map(|index| K::stranger(index as u64)) {
            let all = limiter.peek(&stranger).remaining();
            let _ = limiter.key(&stranger).n(all.max(1)).acquire_up_to();
        }
        assert_eq!(limiter.len(), crowd().saturating_sub(places));
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

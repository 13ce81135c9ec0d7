//! The stores of buckets: a map that grows, or a table of fixed size.

use papaya::LocalGuard;

use crate::bucket::atomic::{Bucket, Word};
use crate::keyed::id::Id;
use crate::keyed::key::Map;
use crate::keyed::ring::Ring;
use crate::keyed::table::{Held, Table};
use crate::word::state::State;

/// Where the buckets are.
#[allow(
    clippy::large_enum_variant,
    reason = "one a limiter, which is on the heap; a box would be one more load in each decision"
)]
pub(crate) enum Store<K> {
    Map(Buckets<K>),
    Table(Table),
}

/// A map of them, and its bound.
pub(crate) struct Buckets<K> {
    pub(crate) map: Map<K>,
    pub(crate) ring: Ring,
}

/// A store, and what it takes to look into it.
pub(crate) enum Pin<'a, K> {
    Map(&'a Buckets<K>, LocalGuard<'a>),
    Table(&'a Table),
}

impl<K> Store<K> {
    #[inline(always)]
    pub(crate) fn pin(&self) -> Pin<'_, K> {
        match self {
            Store::Map(buckets) => Pin::Map(buckets, buckets.map.guard()),
            Store::Table(table) => Pin::Table(table),
        }
    }
}

impl<K: Eq> Store<K> {
    /// Keys that a table has evicted: it counts them by itself.
    pub(crate) fn evicted(&self) -> u64 {
        match self {
            Store::Map(_) => 0,
            Store::Table(table) => table.evicted(),
        }
    }

    /// Keys held.
    pub(crate) fn len(&self) -> usize {
        match self {
            Store::Map(buckets) => buckets.map.len(),
            Store::Table(table) => table.len(),
        }
    }
}

/// A bucket of either store.
#[derive(Clone, Copy)]
pub(crate) enum Found<'a> {
    Boxed(&'a Bucket),
    Inline(Held<'a>),
}

impl Found<'_> {
    /// What the bucket is known by while it lives.
    pub(crate) fn id(self) -> Id {
        match self {
            Found::Boxed(bucket) => Id::of(bucket),
            Found::Inline(held) => held.id(),
        }
    }
}

impl Word for Found<'_> {
    fn state(self) -> State {
        match self {
            Found::Boxed(bucket) => Word::state(bucket),
            Found::Inline(held) => held.state(),
        }
    }

    fn commit(self, state: State, next: State) -> Result<(), State> {
        match self {
            Found::Boxed(bucket) => bucket.commit(state, next),
            Found::Inline(held) => held.commit(state, next),
        }
    }

    fn still_has(self, state: State) -> bool {
        match self {
            Found::Boxed(bucket) => bucket.still_has(state),
            Found::Inline(held) => held.still_has(state),
        }
    }
}

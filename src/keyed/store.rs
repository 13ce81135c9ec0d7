//! The stores of buckets: a map that grows, or a table of fixed size.

use papaya::LocalGuard;

use crate::bucket::atomic::{Bucket, BucketRef};
use crate::keyed::key::Map;
use crate::keyed::ring::ClockRing;
use crate::keyed::table::{SlotRef, Table};
use crate::word::state::State;

/// The store of a limiter.
pub(crate) enum Store<K> {
    Map(MapStore<K>),
    Table(Table),
}

/// A map of buckets, and its bound.
pub(crate) struct MapStore<K> {
    pub(crate) map: Map<K>,
    pub(crate) ring: ClockRing,
}

/// A store, and the guard that a lookup needs.
pub(crate) enum StoreGuard<'a, K> {
    Map(&'a MapStore<K>, LocalGuard<'a>),
    Table(&'a Table),
}

impl<K> Store<K> {
    #[inline(always)]
    pub(crate) fn pin(&self) -> StoreGuard<'_, K> {
        match self {
            Store::Map(buckets) => StoreGuard::Map(buckets, buckets.map.guard()),
            Store::Table(table) => StoreGuard::Table(table),
        }
    }
}

impl<K: Eq> Store<K> {
    /// Returns the number of keys that a table has evicted; a table counts them itself.
    pub(crate) fn evicted(&self) -> u64 {
        match self {
            Store::Map(_) => 0,
            Store::Table(table) => table.evicted(),
        }
    }

    /// Returns the number of keys held.
    pub(crate) fn len(&self) -> usize {
        match self {
            Store::Map(buckets) => buckets.map.len(),
            Store::Table(table) => table.len(),
        }
    }
}

/// A bucket of either store.
#[derive(Clone, Copy)]
pub(crate) enum FoundBucket<'a> {
    Map(&'a Bucket),
    Table(SlotRef<'a>),
}

impl BucketRef for FoundBucket<'_> {
    fn state(self) -> State {
        match self {
            FoundBucket::Map(bucket) => BucketRef::state(bucket),
            FoundBucket::Table(held) => held.state(),
        }
    }

    fn commit(self, state: State, next: State) -> Result<(), State> {
        match self {
            FoundBucket::Map(bucket) => bucket.commit(state, next),
            FoundBucket::Table(held) => held.commit(state, next),
        }
    }

    fn still_has(self, state: State) -> bool {
        match self {
            FoundBucket::Map(bucket) => bucket.still_has(state),
            FoundBucket::Table(held) => held.still_has(state),
        }
    }
}

//! The stores of buckets: a map that grows, or a table of fixed size.

use std::hint::black_box;
use std::sync::OnceLock;

use papaya::{LocalGuard, ResizeMode};

use crate::bucket::atomic::{Bucket, BucketRef};
use crate::keyed::key::{Map, PrehashedHasher};
use crate::keyed::moves::{self, Moves, STEP};
use crate::keyed::table::{SlotRef, Table};
use crate::word::state::{Origin, State};

/// The store of a limiter.
pub(crate) enum Store<K> {
    Map(MapStore<K>),
    Table(Table),
}

/// Keys for which the first table of a map is made, unless more are expected.
const FIRST_KEYS: usize = 12;

/// A map of buckets, made for the first call with a key, and its bound.
///
/// Every thread that needs the map makes it or waits for it. So a map that is not made has no
/// entry, and the protocol of a key needs no more states.
pub(crate) struct MapStore<K> {
    map: OnceLock<Map<K>>,
    pub(crate) moves: Moves,
    max_keys: usize,
}

/// A store, and the guard that a lookup needs.
pub(crate) enum StoreGuard<'a, K> {
    Map(&'a Map<K>, LocalGuard<'a>),
    Table(&'a Table),
}

impl<K> MapStore<K> {
    /// Returns a map for `max_keys` keys. It is made at once if `presize` keys are expected.
    pub(crate) fn new(presize: usize, max_keys: usize) -> Self {
        let map = if presize == 0 { OnceLock::new() } else { Self::make(presize.min(max_keys)).into() };
        MapStore { map, moves: Moves::new(), max_keys }
    }

    fn make(keys: usize) -> Map<K> {
        let map = papaya::HashMap::builder().hasher(PrehashedHasher::default());
        map.capacity(keys).resize_mode(ResizeMode::Incremental(STEP)).build()
    }

    /// Returns the map for a call, which helps with a move that is on.
    #[inline(always)]
    pub(crate) fn map(&self) -> &Map<K>
    where
        K: Eq,
    {
        match self.map.get() {
            Some(map) if !self.moves.are_on() => map,
            _ => self.made_or_moved(),
        }
    }

    #[cold]
    #[inline(never)]
    fn made_or_moved(&self) -> &Map<K>
    where
        K: Eq,
    {
        let map = self.map.get_or_init(|| Self::make(FIRST_KEYS));
        self.moves.help(|moved| moves::step(map, moved, &map.guard()), || moves::end(map, &map.guard()));
        map
    }

    /// Returns the map, if there was a call with a key.
    pub(crate) fn if_made(&self) -> Option<&Map<K>> {
        self.map.get()
    }
}

impl<K> Store<K> {
    #[inline(always)]
    pub(crate) fn pin(&self) -> StoreGuard<'_, K>
    where
        K: Eq,
    {
        match self {
            Store::Map(buckets) => {
                let map = buckets.map();
                StoreGuard::Map(map, map.guard())
            }
            Store::Table(table) => StoreGuard::Table(table),
        }
    }

    /// Returns the number of tickets.
    pub(crate) fn max_keys(&self) -> usize {
        match self {
            Store::Map(buckets) => buckets.max_keys,
            Store::Table(_) => 0,
        }
    }
}

impl<K> StoreGuard<'_, K> {
    /// Brings the slots of keys into the cache at once, by their hashes. A map has no slots.
    #[inline]
    pub(crate) fn prefetch(&self, hashes: &[u64]) {
        if let StoreGuard::Table(table) = self {
            // No load depends on another, so none waits for another.
            black_box(hashes.iter().fold(0, |all, hash| all ^ table.prefetch(*hash)));
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
            Store::Map(buckets) => buckets.if_made().map_or(0, Map::len),
            Store::Table(table) => table.len(),
        }
    }
}

/// A bucket that was found, with its origin: of a map or of no store, or in a slot of a table.
#[derive(Clone, Copy)]
pub(crate) enum FoundBucket<'a> {
    Map(&'a Bucket, Origin),
    Table(SlotRef<'a>, Origin),
}

impl<'a> FoundBucket<'a> {
    /// Returns the bucket in the slot of a key with this hash.
    pub(crate) fn in_table(slot: SlotRef<'a>, hash: u64) -> FoundBucket<'a> {
        FoundBucket::Table(slot, Origin::Inline(hash))
    }
}

impl BucketRef for FoundBucket<'_> {
    #[inline(always)]
    fn state(self) -> State {
        match self {
            FoundBucket::Map(bucket, _) => BucketRef::state(bucket),
            FoundBucket::Table(held, _) => held.state(),
        }
    }

    fn origin(self) -> Origin {
        let (FoundBucket::Map(_, origin) | FoundBucket::Table(_, origin)) = self;
        origin
    }

    #[inline(always)]
    fn commit(self, state: State, next: State) -> Result<(), State> {
        match self {
            FoundBucket::Map(bucket, _) => bucket.commit(state, next),
            FoundBucket::Table(held, _) => held.commit(state, next),
        }
    }

    fn still_has(self, state: State) -> bool {
        match self {
            FoundBucket::Map(bucket, _) => bucket.still_has(state),
            FoundBucket::Table(held, _) => held.still_has(state),
        }
    }
}

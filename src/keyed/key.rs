//! Keys: lookup by a borrowed form, and storage with their hash.

use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher};

use equivalent::Equivalent;
use papaya::HashMap;

use crate::bucket::atomic::Bucket;
use crate::keyed::id::{BUSY, EntryId};

pub(crate) type Map<K> = HashMap<EntryKey<K>, Bucket, PrehashedHasher>;

/// A form in which a key of type `K` is looked up: `K` itself, a borrowed form, or a type of your
/// own.
///
/// A limiter makes an owned key only to store a new key in its map, and for
/// [`plan_for`](crate::Builder::plan_for). A key that is `Clone` is found by a reference to itself.
/// `&str` finds a `String`, an `Arc<str>`, a `Box<str>` and an `Rc<str>`. `&[T]` finds a `Vec<T>`
/// and the same pointers; so do `&Path`, `&OsStr` and `&CStr`. With feature `http`, `&[u8]` finds a
/// `Bytes`.
///
/// A type with the hash of a compound key looks that key up without an allocation:
///
/// ```
/// use std::net::{IpAddr, Ipv4Addr};
/// use tollgate::{Equivalent, Quota, RateLimiter, ToKey};
///
/// type Route = (String, IpAddr);
///
/// #[derive(Hash)]
/// struct RouteRef<'a>(&'a str, IpAddr);
///
/// impl Equivalent<Route> for RouteRef<'_> {
///     fn equivalent(&self, key: &Route) -> bool {
///         (self.0, self.1) == (key.0.as_str(), key.1)
///     }
/// }
///
/// impl ToKey<Route> for RouteRef<'_> {
///     fn to_key(&self) -> Route {
///         (self.0.to_owned(), self.1)
///     }
/// }
///
/// let limiter = RateLimiter::<Route>::new(Quota::per_second(1));
/// let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// assert!(limiter.try_acquire(&RouteRef("/login", peer)).is_ok());
/// assert!(limiter.try_acquire(&("/login".to_owned(), peer)).is_err());
/// ```
///
/// An implementation promises that `to_key` is [`Equivalent`] to `self` and hashes the same.
#[diagnostic::on_unimplemented(
    message = "`{Self}` looks no key of type `{K}` up",
    note = "ask by a reference to the key itself, or implement `ToKey<{K}>` for a type of your own that borrows it"
)]
pub trait ToKey<K>: Hash + Equivalent<K> {
    /// Returns the key to store.
    fn to_key(&self) -> K;
}

impl<K: Clone + Hash + Eq> ToKey<K> for K {
    fn to_key(&self) -> K {
        self.clone()
    }
}

/// A stored key with its hash, so that the map never calls the user's `Hash`.
///
/// A panic in `Hash` while papaya moves entries to a larger table would park the map for ever.
pub(crate) struct EntryKey<K> {
    pub(crate) tag: EntryId,
    pub(crate) key: K,
}

/// Compares keys alone: a key has one entry. papaya has compared seven bits of the hashes before.
impl<K: PartialEq> PartialEq for EntryKey<K> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<K: Eq> Eq for EntryKey<K> {}

/// A lookup by key.
pub(crate) struct KeyQuery<'a, Q: ?Sized> {
    /// The hash as the user's hasher returned it.
    pub(crate) full: u64,
    pub(crate) key: &'a Q,
}

/// A lookup by key in a map.
pub(crate) struct MapQuery<'a, Q: ?Sized> {
    hash: u32,
    key: &'a Q,
}

impl<Q: ?Sized> Clone for KeyQuery<'_, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: ?Sized> Copy for KeyQuery<'_, Q> {}

/// Returns a hash in which each bit depends on all bits of `hash`.
///
/// A user's hasher may leave most bits alike. Both halves of the product are used: most bits of the
/// lower half do not depend on the uppermost bits.
#[inline(always)]
pub(crate) fn mix(hash: u64) -> u64 {
    let product = u128::from(hash) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

/// Returns the part of a hash that a map keeps. It differs from `FREE` and `BUSY`.
#[inline]
pub(crate) fn map_hash(full: u64) -> u32 {
    ((mix(full) >> 32) as u32).max(BUSY + 1)
}

impl<'a, Q: Hash + ?Sized> KeyQuery<'a, Q> {
    #[inline]
    pub(crate) fn new(hasher: &impl BuildHasher, key: &'a Q) -> Self {
        KeyQuery::of(hasher.hash_one(key), key)
    }
}

impl<'a, Q: ?Sized> KeyQuery<'a, Q> {
    /// Returns the query of a key whose hash is known.
    #[inline]
    pub(crate) fn of(full: u64, key: &'a Q) -> Self {
        KeyQuery { full, key }
    }

    /// Returns the part of the hash that a map keeps.
    #[inline]
    pub(crate) fn hash(self) -> u32 {
        map_hash(self.full)
    }

    #[inline]
    pub(crate) fn in_map(self) -> MapQuery<'a, Q> {
        MapQuery { hash: self.hash(), key: self.key }
    }
}

thread_local! {
    static HASHED: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// Returns the number of stored keys whose hashes papaya asked this thread for, and the last of
/// these hashes. It asks when it inserts a key, or moves it.
pub(crate) fn hashes() -> (u32, u32) {
    HASHED.get()
}

impl<K> Hash for EntryKey<K> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        HASHED.set((HASHED.get().0.wrapping_add(1), self.tag.hash));
        state.write_u32(self.tag.hash);
    }
}

impl<Q: ?Sized> Hash for MapQuery<'_, Q> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.hash);
    }
}

impl<K, Q: ?Sized + Equivalent<K>> Equivalent<EntryKey<K>> for MapQuery<'_, Q> {
    #[inline]
    fn equivalent(&self, stored: &EntryKey<K>) -> bool {
        self.key.equivalent(&stored.key)
    }
}

/// The map's hasher: returns the hash that the key carries.
#[derive(Clone, Copy, Default)]
pub(crate) struct PrehashedHasher(u64);

impl BuildHasher for PrehashedHasher {
    type Hasher = PrehashedHasher;

    #[inline]
    fn build_hasher(&self) -> PrehashedHasher {
        PrehashedHasher(0)
    }
}

impl Hasher for PrehashedHasher {
    /// Duplicates the 32-bit hash into both halves: papaya probes by the low bits and compares the
    /// high ones.
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let hash = u32::from_ne_bytes(bytes.try_into().expect("a carried hash is one u32"));
        self.0 = u64::from(hash) << 32 | u64::from(hash);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

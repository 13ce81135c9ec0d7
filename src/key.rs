//! Keys: how they are looked up by what was borrowed of them, and stored with their hash.

use std::hash::{BuildHasher, Hash, Hasher};

use equivalent::Equivalent;

/// What a key of type `K` is looked up by: `K` itself, its borrowed form, or a type of your own.
///
/// Only the first decision on a key makes an owned one of it. `&str` finds a `String`, `&[T]` a `Vec<T>`,
/// and so on by [`ToOwned`]. A compound key is looked up without
/// allocating by a type that hashes like it:
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
/// Whoever implements it promises: `to_key` is [`Equivalent`] to `self` and hashes the same.
pub trait ToKey<K>: Hash + Equivalent<K> {
    /// The key to store.
    fn to_key(&self) -> K;
}

impl<Q: ?Sized + ToOwned + Hash + Eq> ToKey<Q::Owned> for Q {
    fn to_key(&self) -> Q::Owned {
        self.to_owned()
    }
}

/// A key as the map has it: with its hash, so that the map never calls the user's `Hash`.
///
/// A panic in it while papaya moves its entries to a larger table would park the map for ever.
#[derive(PartialEq, Eq)]
pub(crate) struct Stored<K> {
    pub(crate) hash: u64,
    pub(crate) key: K,
}

/// A lookup by key.
#[derive(Clone, Copy)]
pub(crate) struct ByKey<'a, Q: ?Sized> {
    pub(crate) hash: u64,
    pub(crate) key: &'a Q,
}

/// A lookup by hash alone: whichever key of that hash comes first.
pub(crate) struct ByHash(pub(crate) u64);

impl<K> Hash for Stored<K> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<Q: ?Sized> Hash for ByKey<'_, Q> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hash for ByHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

impl<K, Q: ?Sized + Equivalent<K>> Equivalent<Stored<K>> for ByKey<'_, Q> {
    #[inline]
    fn equivalent(&self, stored: &Stored<K>) -> bool {
        self.hash == stored.hash && self.key.equivalent(&stored.key)
    }
}

impl<K> Equivalent<Stored<K>> for ByHash {
    fn equivalent(&self, stored: &Stored<K>) -> bool {
        self.0 == stored.hash
    }
}

/// The map's hasher: hands on the hash that the key carries.
#[derive(Clone, Copy, Default)]
pub(crate) struct Carried(u64);

impl BuildHasher for Carried {
    type Hasher = Carried;

    #[inline]
    fn build_hasher(&self) -> Carried {
        Carried(0)
    }
}

impl Hasher for Carried {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a carried hash is one u64");
    }

    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

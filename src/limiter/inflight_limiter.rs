//! A limit on the requests in flight of each key.
//!
//! A key's word [counts its places in use](crate::word::places), in the stores of a limiter of
//! rates. A request takes a place, and gives it back when it leaves. So a key without requests in
//! flight says the same as a new key, and may be evicted.
//!
//! A key is never removed by hand: there is no `remove`, and no `clear`. So the receipt of a place
//! always finds its word.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use crate::bucket::receipt::Receipt;
use crate::inflight::invalid_limit::InvalidLimit;
use crate::keyed::key::ToKey;
use crate::keyed::keyspace::Stats;
use crate::limiter::inner::Inner;
use crate::limiter::key_flight::{KeyFlight, KeyOverloaded, OwnedKeyFlight};
use crate::limiter::options::CallOptions;
use crate::rule::window_layout::MAX_PLACES;

/// A limit on the requests in flight of each key, over the stores of a
/// [`RateLimiter`](crate::RateLimiter).
///
/// A request takes a place of its key, holds it as a [`KeyFlight`], and leaves when the flight is
/// dropped. A refusal changes no count.
///
/// * **The law.** At each admission a key has at most the limit in flight, the new request
///   included. The count is exact, and no clock is read.
/// * At most [`max_keys`](crate::InflightLimiterBuilder::max_keys) keys are held. A key with a
///   request in flight is never forgotten. A key without one may be forgotten at any time, to make
///   room or by [`evict_idle`](Self::evict_idle). A new key without room is refused
///   ([`KeyOverloaded::is_full`]).
/// * A clone is another handle to the same limiter. No decision on a known key allocates.
///
/// # Examples
///
/// ```
/// use tollgate::InflightLimiter;
///
/// let uploads = InflightLimiter::<String>::new(2);
/// let first = uploads.try_enter("ada")?;
/// let second = uploads.try_enter("ada")?;
/// let refused = uploads.try_enter("ada").unwrap_err();
/// assert_eq!(refused.to_string(), "2 requests of the key are in flight, and the limit is 2");
/// assert!(uploads.try_enter("bob").is_ok());
/// drop(first);
/// assert_eq!(uploads.in_flight("ada"), 1);
/// # drop(second);
/// # Ok::<(), tollgate::KeyOverloaded>(())
/// ```
pub struct InflightLimiter<K, S = RandomState> {
    /// The keys. The words count places.
    pub(super) places: Arc<Inner<K, S>>,
}

impl<K: Hash + Eq, S: BuildHasher> InflightLimiter<K, S> {
    fn admit<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<Receipt, KeyOverloaded> {
        let inner = &*self.places;
        let pin = inner.keyspace.store.pin();
        let entered = inner.call(&pin, key, CallOptions::NOW).enter();
        entered.map_err(|by_key| match by_key {
            // Both are at most 2^20.
            Some((limit, count)) => KeyOverloaded { limit: limit as u32, in_flight: Some(count as u32) },
            None => KeyOverloaded { limit: self.limit(), in_flight: None },
        })
    }

    /// Returns the number of a key's requests in flight. A new key has none, and gets no entry.
    #[must_use]
    pub fn in_flight<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> u32 {
        let inner = &*self.places;
        // At most 2^20.
        inner.call(&inner.keyspace.store.pin(), key, CallOptions::NOW).in_use() as u32
    }

    /// Forgets every key that has no request in flight, and returns their number.
    ///
    /// The call looks at every entry. The bound on keys holds without it: it gives the memory of
    /// idle keys back earlier.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::InflightLimiter;
    ///
    /// let uploads = InflightLimiter::<u64>::new(8);
    /// let flight = uploads.try_enter(&1)?;
    /// assert_eq!(uploads.evict_idle(), 0);
    /// drop(flight);
    /// assert_eq!((uploads.evict_idle(), uploads.len()), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn evict_idle(&self) -> usize {
        self.places.keyspace.evict_idle()
    }
}

impl<K: Hash + Eq + Send + Sync, S: BuildHasher + Send + Sync> InflightLimiter<K, S> {
    /// Takes a place of a key.
    ///
    /// # Errors
    ///
    /// [`KeyOverloaded`] if the key's limit is in flight, or if the key is new and has no room.
    pub fn try_enter<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<KeyFlight<'_>, KeyOverloaded> {
        let receipt = self.admit(key)?;
        Ok(KeyFlight { ledger: &self.places.keyspace, receipt })
    }

    /// Takes a place of a key that a task can own.
    ///
    /// # Errors
    ///
    /// As [`try_enter`](Self::try_enter).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::InflightLimiter;
    ///
    /// let uploads = InflightLimiter::<u64>::new(1);
    /// let flight = uploads.try_enter_owned(&1)?;
    /// std::thread::spawn(move || drop(flight)).join().unwrap();
    /// assert_eq!(uploads.in_flight(&1), 0);
    /// # Ok::<(), tollgate::KeyOverloaded>(())
    /// ```
    pub fn try_enter_owned<Q>(&self, key: &Q) -> Result<OwnedKeyFlight<K, S>, KeyOverloaded>
    where
        Q: ToKey<K> + ?Sized,
    {
        let receipt = self.admit(key)?;
        Ok(OwnedKeyFlight { places: self.places.clone(), receipt })
    }
}

impl<K, S> InflightLimiter<K, S> {
    /// Returns the limit of each key.
    #[must_use]
    pub fn limit(&self) -> u32 {
        // At most 2^20.
        self.places.keyspace.engine.source.limit() as u32
    }

    /// Sets the limit of all keys, from 1 to 2^20, in constant time.
    ///
    /// Requests in flight stay, also where they are more than the limit. A request that read the
    /// limit before the change is decided under the old one.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if the limit is 0 or above 2^20.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::InflightLimiter;
    ///
    /// let uploads = InflightLimiter::<u64>::new(1);
    /// let first = uploads.try_enter(&1)?;
    /// uploads.set_limit(2)?;
    /// let second = uploads.try_enter(&1)?;
    /// uploads.set_limit(1)?;
    /// drop(second);
    /// assert!(uploads.try_enter(&1).is_err());
    /// # drop(first);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_limit(&self, limit: u32) -> Result<(), InvalidLimit> {
        check(limit)?;
        let engine = &self.places.keyspace.engine;
        engine.source.put_limit(limit.into(), &engine.clock);
        Ok(())
    }
}

/// Checks the bounds of a limit.
pub(super) fn check(limit: u32) -> Result<(), InvalidLimit> {
    InvalidLimit::check("a limit", limit, (1, MAX_PLACES.into()))
}

impl<K: Eq, S> InflightLimiter<K, S> {
    /// Returns the number of keys held: those with requests in flight, and those not yet forgotten.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.keyspace.store.len()
    }

    /// Returns whether no key is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the numbers of keys held, and of events so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.places.stats()
    }
}

impl<K, S> Clone for InflightLimiter<K, S> {
    fn clone(&self) -> Self {
        InflightLimiter { places: self.places.clone() }
    }
}

/// Prints no key.
impl<K: Eq, S> fmt::Debug for InflightLimiter<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InflightLimiter").field("limit", &self.limit()).finish_non_exhaustive()
    }
}

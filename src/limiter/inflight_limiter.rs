//! A limit on the requests in flight of each key.
//!
//! A place is a number of tokens of the key's bucket, which fills in 146 years. A request takes the
//! tokens, and gives them back when it leaves. So a key without requests in flight has a full
//! bucket, and is evicted.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::bucket::receipt::Receipt;
use crate::inflight::invalid_limit::InvalidLimit;
use crate::keyed::key::ToKey;
use crate::keyed::keyspace::Stats;
use crate::limiter::key_call::CallOptions;
use crate::limiter::key_flight::{KeyFlight, KeyOverloaded, OwnedKeyFlight};
use crate::limiter::rate_limiter::RateLimiter;
use crate::quota::error::InvalidQuota;
use crate::quota::rate::Quota;
use crate::word::decision::{Denied, Reason};
use crate::word::verb::{Keep, Take};

/// The most requests in flight of a key that a limiter can be built for.
pub(super) const MOST: u32 = 1 << 20;
/// Nanoseconds in which an empty bucket fills: 146 years.
const FILL: u64 = 1 << 62;

/// A limit on the requests in flight of each key, over the stores of a
/// [`RateLimiter`](crate::RateLimiter).
///
/// A request takes a place of its key, holds it as a [`KeyFlight`], and leaves when the flight is
/// dropped. A refusal changes no count.
///
/// * **The law.** At each admission a key has at most the limit in flight, the new request
///   included.
/// * At most [`max_keys`](crate::InflightLimiterBuilder::max_keys) keys are held. A key without a
///   request in flight is forgotten some seconds later, to make room or by
///   [`evict_idle`](Self::evict_idle). A new key without room is refused
///   ([`KeyOverloaded::is_full`]).
/// * The count is a token bucket that fills in 146 years. So a key that always has a request in
///   flight gets one place more in each 146 years / limit: 53 days for a limit of 1,000. The extra
///   places are gone once the key has no request in flight.
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
    pub(super) places: RateLimiter<K, S>,
    pub(super) place: PlaceTokens,
    /// The limit in force. Relaxed: it orders no other memory.
    pub(super) limit: Arc<AtomicU32>,
}

/// The tokens of a place, in a bucket of `most` places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlaceTokens {
    pub(super) tokens: u64,
    pub(super) most: u32,
}

impl PlaceTokens {
    /// Returns the tokens of a place in a bucket of `most` places, from 1 to [`MOST`].
    ///
    /// The numbers are chosen so that a tick is one to two seconds for any limit: then a key
    /// without requests is forgotten within seconds. A bucket of 2^15 to 2^16 tokens has such
    /// ticks.
    pub(super) fn of(most: u32) -> PlaceTokens {
        let shift = u64::from(most).leading_zeros().saturating_sub(48);
        PlaceTokens { tokens: 1 << shift, most }
    }

    fn burst(self) -> u64 {
        u64::from(self.most) * self.tokens
    }

    pub(super) fn quota(self) -> Result<Quota, InvalidQuota> {
        Quota::try_per(1, Duration::from_nanos(FILL / self.burst()), self.burst())
    }

    /// Returns the taken places of a bucket with `remaining` tokens.
    fn taken(self, remaining: u64) -> u32 {
        // At most `most`.
        (self.burst() - remaining).div_ceil(self.tokens) as u32
    }

    /// Returns the take of one place under a limit, which may be below `most`.
    fn take(self, limit: u32) -> Take {
        let kept = u64::from(self.most - limit.min(self.most)) * self.tokens;
        match kept {
            0 => Take::Exactly(self.tokens),
            kept => Take::Above { n: self.tokens, keep: Keep::Tokens(kept) },
        }
    }

    fn overloaded(self, limit: u32, denied: Denied) -> KeyOverloaded {
        let is_full = denied.reason() == Reason::Full;
        KeyOverloaded { limit, in_flight: (!is_full).then(|| self.taken(denied.remaining())) }
    }
}

impl<K: Hash + Eq, S: BuildHasher> InflightLimiter<K, S> {
    fn admit<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> Result<Receipt, KeyOverloaded> {
        let (limit, inner) = (self.limit(), &self.places.inner);
        let pin = inner.keyspace.store.pin();
        let taken = inner.call(&pin, key, CallOptions::NOW).receive_by_entry(self.place.take(limit));
        match taken {
            Ok((_, receipt)) => Ok(receipt),
            Err(denied) => Err(self.place.overloaded(limit, denied)),
        }
    }

    /// Returns the number of a key's requests in flight. A new key has none, and gets no entry.
    #[must_use]
    pub fn in_flight<Q: ToKey<K> + ?Sized>(&self, key: &Q) -> u32 {
        self.place.taken(self.places.peek(key).remaining())
    }

    /// Forgets every key that has had no request in flight for some seconds, and returns their
    /// number.
    ///
    /// The time is 2 to 7 seconds: two seconds in whole ticks of one to two seconds, and one tick
    /// more. The call looks at every entry. The bound on keys holds without it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, InflightLimiter};
    ///
    /// let (clock, mock) = Clock::mock();
    /// let uploads = InflightLimiter::<u64>::builder(8).clock(clock).build()?;
    /// let flight = uploads.try_enter(&1)?;
    /// mock.advance(Duration::from_secs(3_600));
    /// assert_eq!(uploads.evict_idle(), 0);
    /// drop(flight);
    /// mock.advance(Duration::from_secs(7));
    /// assert_eq!((uploads.evict_idle(), uploads.len()), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn evict_idle(&self) -> usize {
        self.places.evict_idle()
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
        Ok(KeyFlight { ledger: &self.places.inner.keyspace, receipt, tokens: self.place.tokens })
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
        Ok(OwnedKeyFlight { places: self.places.clone(), receipt, tokens: self.place.tokens })
    }
}

impl<K, S> InflightLimiter<K, S> {
    /// Returns the limit of each key.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit of all keys, at most the
    /// [largest](crate::InflightLimiterBuilder::max_limit) that the limiter was built for.
    ///
    /// Requests in flight stay. A request that read the limit before the change is decided under
    /// the old one.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if the limit is 0, or above the largest.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::InflightLimiter;
    ///
    /// let uploads = InflightLimiter::<u64>::builder(1).max_limit(8).build()?;
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
        InvalidLimit::check("a limit", limit, (1, self.place.most.into()))?;
        self.limit.store(limit, Ordering::Relaxed);
        Ok(())
    }
}

impl<K: Eq, S> InflightLimiter<K, S> {
    /// Returns the number of keys held: those with requests in flight, and those not yet forgotten.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether no key is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the numbers of keys held, and of events so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.places.stats()
    }
}

impl<K, S> Clone for InflightLimiter<K, S> {
    fn clone(&self) -> Self {
        InflightLimiter { places: self.places.clone(), place: self.place, limit: Arc::clone(&self.limit) }
    }
}

/// Prints no key.
impl<K: Eq, S> fmt::Debug for InflightLimiter<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InflightLimiter").field("limit", &self.limit()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_ticks_of_a_second_or_two() {
        let powers = (0..=20).flat_map(|bit| [-1, 0, 1].map(|by| (1_i64 << bit) + by));
        for most in powers.filter(|most| (1..=i64::from(MOST)).contains(most)) {
            let place = PlaceTokens::of(most as u32);
            let quota = place.quota().expect("it can be held");
            let widths = quota.layout().widths;
            let tick = u64::try_from(quota.period().as_nanos()).unwrap() >> widths.fraction;
            assert_eq!((widths.scale, tick >> 30 >= 1, tick >> 32), (0, true, 0), "{most}: {tick} ns");
        }
    }
}

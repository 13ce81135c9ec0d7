//! The builder of a limit on the requests in flight of each key.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crate::inflight::invalid_limit::InvalidLimit;
use crate::keyed::overflow::WhenFull;
use crate::limiter::builder::Builder;
use crate::limiter::inflight_limiter::{InflightLimiter, MOST, PlaceTokens};
use crate::limiter::rate_limiter::RateLimiter;
use crate::quota::rate::Quota;
use crate::time::clock::Clock;

impl<K> InflightLimiter<K> {
    /// Returns a limiter of at most 1,048,576 keys, each with at most `limit` requests in flight.
    ///
    /// # Panics
    ///
    /// Panics if the limit is 0 or above 2^20. [`builder`](Self::builder) is for numbers that come
    /// in at run time.
    #[must_use]
    pub fn new(limit: u32) -> InflightLimiter<K> {
        match InflightLimiter::builder(limit).build() {
            Ok(limiter) => limiter,
            Err(invalid) => panic!("{invalid}"),
        }
    }
}

impl<K, S: BuildHasher + Default> InflightLimiter<K, S> {
    /// Returns a builder of a limiter with at most `limit` requests in flight of each key.
    pub fn builder(limit: u32) -> InflightLimiterBuilder<K, S> {
        // A placeholder: `build` sets the quota of the places.
        InflightLimiterBuilder { limit, max_limit: None, places: RateLimiter::builder(Quota::per_second(1)) }
    }
}

/// A builder of an [`InflightLimiter`].
///
/// # Examples
///
/// ```
/// use std::net::IpAddr;
/// use tollgate::InflightLimiter;
///
/// let clients = InflightLimiter::<IpAddr>::builder(100).inline(50_000).build()?;
/// let peer: IpAddr = "192.0.2.7".parse()?;
/// assert!(clients.try_enter(&peer).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder is no limit: `.build()` makes one"]
pub struct InflightLimiterBuilder<K, S> {
    limit: u32,
    max_limit: Option<u32>,
    places: Builder<K, S>,
}

impl<K, S> InflightLimiterBuilder<K, S> {
    /// Sets the largest limit that [`set_limit`](InflightLimiter::set_limit) may set, up to 2^20:
    /// by default the limit.
    pub fn max_limit(self, max_limit: u32) -> Self {
        InflightLimiterBuilder { max_limit: Some(max_limit), ..self }
    }

    /// Sets the clock; by default the [processor's counter](Clock::new). It decides when a key is
    /// forgotten.
    pub fn clock(self, clock: Clock) -> Self {
        InflightLimiterBuilder { places: self.places.clock(clock), ..self }
    }

    /// Sets the hasher of keys; by default `S::default()`.
    pub fn hasher(self, hasher: S) -> Self {
        InflightLimiterBuilder { places: self.places.hasher(hasher), ..self }
    }

    /// Sets the largest number of keys; by default 1,048,576. See
    /// [`Builder::max_keys`](crate::Builder::max_keys).
    pub fn max_keys(self, max_keys: usize) -> Self {
        InflightLimiterBuilder { places: self.places.max_keys(max_keys), ..self }
    }

    /// Keeps the keys in a fixed table; see [`Builder::inline`](crate::Builder::inline).
    pub fn inline(self, keys: usize) -> Self {
        InflightLimiterBuilder { places: self.places.inline(keys), ..self }
    }

    /// Returns the limiter.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if a limit is 0 or above 2^20, or if the limit is above the largest.
    pub fn build(self) -> Result<InflightLimiter<K, S>, InvalidLimit> {
        let InflightLimiterBuilder { limit, max_limit, places } = self;
        InvalidLimit::check("a limit", limit, (1, MOST.into()))?;
        let most = max_limit.unwrap_or(limit);
        InvalidLimit::check("a largest limit", most, (limit.into(), MOST.into()))?;
        let place = PlaceTokens::of(most);
        let quota = place.quota().expect("a limit up to 2^20 has a quota");
        // A refund to a bucket that keys share would be lost.
        let places = places.with_quota(quota).when_full(WhenFull::Deny).build();
        Ok(InflightLimiter { places, place, limit: Arc::new(AtomicU32::new(limit)) })
    }
}

impl<K, S> fmt::Debug for InflightLimiterBuilder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InflightLimiterBuilder").field("limit", &self.limit).finish_non_exhaustive()
    }
}

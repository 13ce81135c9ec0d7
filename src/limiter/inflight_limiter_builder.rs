//! The builder of a limit on the requests in flight of each key.

use std::fmt;
use std::hash::RandomState;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::inflight::invalid_limit::InvalidLimit;
use crate::keyed::overflow::WhenFull;
use crate::limiter::hook::DecisionHook;
use crate::limiter::inflight_limiter::{InflightLimiter, check};
use crate::limiter::inner::Inner;
use crate::limiter::rule::engine_of;
use crate::limiter::settings::KeySettings;

use crate::rule::window_layout::WindowLayout;
use crate::time::clock::Clock;

impl<K> InflightLimiter<K> {
    /// Returns a limiter of at most 1,048,576 keys, each with at most `limit` requests in flight.
    ///
    /// # Panics
    ///
    /// Panics if the limit is 0 or above 2^20. [`builder`](Self::builder) is for numbers that come
    /// in at run time.
    #[must_use]
    #[track_caller]
    pub fn new(limit: u32) -> InflightLimiter<K> {
        match InflightLimiter::builder(limit).build() {
            Ok(limiter) => limiter,
            Err(invalid) => panic!("{invalid}"),
        }
    }

    /// Returns a builder of a limiter with at most `limit` requests in flight of each key.
    ///
    /// The keys have the default hasher. [`hasher`](InflightLimiterBuilder::hasher) sets another
    /// one.
    pub fn builder(limit: u32) -> InflightLimiterBuilder<K> {
        InflightLimiterBuilder { limit, keys: KeySettings::default(), key: PhantomData }
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
/// let clients = InflightLimiter::<IpAddr>::builder(100).inline(50_000)?.build()?;
/// let peer: IpAddr = "192.0.2.7".parse()?;
/// assert!(clients.try_enter(&peer).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder is no limit: `.build()` makes one"]
pub struct InflightLimiterBuilder<K, S = RandomState> {
    limit: u32,
    keys: KeySettings<S>,
    key: PhantomData<fn() -> K>,
}

impl<K, S> InflightLimiterBuilder<K, S> {
    /// Sets the hasher of keys; by default [`RandomState`].
    pub fn hasher<H>(self, hasher: H) -> InflightLimiterBuilder<K, H> {
        let InflightLimiterBuilder { limit, keys, key } = self;
        InflightLimiterBuilder { limit, keys: keys.hasher(hasher), key }
    }

    /// Sets the largest number of keys; by default 1,048,576. See
    /// [`Builder::max_keys`](crate::Builder::max_keys).
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { keys: self.keys.max_keys(max_keys), ..self }
    }

    /// Keeps the keys in a fixed table; see [`Builder::inline`](crate::Builder::inline).
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] as there.
    pub fn inline(self, keys: usize) -> Result<Self, crate::InvalidRule> {
        Ok(Self { keys: self.keys.inline(keys)?, ..self })
    }

    /// Returns the limiter.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] if the limit is 0 or above 2^20.
    pub fn build(self) -> Result<InflightLimiter<K, S>, InvalidLimit> {
        check(self.limit)?;
        // No decision depends on the time: the clock stands.
        Ok(self.on(Clock::from_fn(|| Duration::ZERO)))
    }

    /// Returns the limiter, of a limit within its bounds.
    pub(crate) fn on(self, clock: Clock) -> InflightLimiter<K, S> {
        let engine = engine_of(WindowLayout::places(self.limit), clock, None);
        // A place of a bucket that keys share would belong to another key.
        let keys = KeySettings { when_full: WhenFull::Deny, ..self.keys };
        let (keyspace, hasher) = keys.keyspace(engine);
        InflightLimiter { places: Arc::new(Inner::new(keyspace, hasher, DecisionHook::NONE, None)) }
    }
}

impl<K, S> fmt::Debug for InflightLimiterBuilder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InflightLimiterBuilder").field("limit", &self.limit).finish_non_exhaustive()
    }
}

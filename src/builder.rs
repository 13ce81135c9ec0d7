//! What a limiter is set up with.

use std::fmt;
use std::marker::PhantomData;

use crate::clock::Clock;
use crate::limiter::RateLimiter;
use crate::quota::Quota;
use crate::shared::Shared;

/// Keys that a limiter holds unless told otherwise.
const DEFAULT_MAX_KEYS: usize = 1 << 20;
/// More are not held: a ticket is known by 32 bits.
const MOST_KEYS: usize = 1 << 32;

/// What becomes of a new key when the limiter holds its maximum and no bucket can be evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// It shares one of 1,024 buckets with other such keys, chosen by hash, under the same quota. The
    /// law holds for each key; keys that share a bucket may refuse each other. A key that enters the map
    /// later brings the level of that bucket with it.
    #[default]
    Share,
    /// It is denied, with [`Reason::Full`](crate::Reason::Full).
    Deny,
    /// It is granted and not counted against anything.
    Allow,
}

/// Sets up a [`RateLimiter`].
///
/// # Examples
///
/// ```
/// use tollgate::{Clock, Quota, RateLimiter, WhenFull};
///
/// let (clock, mock) = Clock::mock();
/// let limiter = RateLimiter::<u64>::builder(Quota::per_second(10))
///     .clock(clock)
///     .max_keys(100_000)
///     .presize(100_000)
///     .when_full(WhenFull::Deny)
///     .build();
/// assert!(limiter.try_acquire(&7).is_ok());
/// ```
#[must_use]
pub struct Builder<K, S> {
    pub(crate) quota: Quota,
    pub(crate) clock: Clock,
    pub(crate) hasher: S,
    pub(crate) max_keys: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) presize: usize,
    key: PhantomData<fn() -> K>,
}

impl<K, S: Default> Builder<K, S> {
    pub(crate) fn new(quota: Quota) -> Self {
        Builder {
            quota,
            clock: Clock::new(),
            hasher: S::default(),
            max_keys: DEFAULT_MAX_KEYS,
            when_full: WhenFull::default(),
            presize: 0,
            key: PhantomData,
        }
    }
}

impl<K, S> Builder<K, S> {
    /// The clock to decide on; by default the [processor's counter](Clock::new).
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The hasher of keys; by default the type's default. A key is hashed once a decision.
    pub fn hasher(mut self, hasher: S) -> Self {
        self.hasher = hasher;
        self
    }

    /// The most keys to hold; by default 1,048,576. More than 2^32 count as 2^32. With 0 no key has a bucket
    /// of its own, and [`when_full`](Builder::when_full) decides on all.
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys.min(MOST_KEYS);
        self
    }

    /// What becomes of new keys when there is no room; by default they [share](WhenFull::Share).
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Allocates the map for this many keys ahead, at most for [`max_keys`](Builder::max_keys). By
    /// default it grows, in steps that other decisions help with.
    pub fn presize(mut self, keys: usize) -> Self {
        self.presize = keys;
        self
    }

    /// The limiter.
    #[must_use]
    pub fn build(self) -> RateLimiter<K, S> {
        RateLimiter::from_shared(Shared::new(self))
    }
}

impl<K, S> fmt::Debug for Builder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("quota", &format_args!("{}", self.quota))
            .field("clock", &self.clock)
            .field("max_keys", &self.max_keys)
            .field("when_full", &self.when_full)
            .field("presize", &self.presize)
            .finish_non_exhaustive()
    }
}

//! Builders of a window and of a limiter of windows.

use std::hash::RandomState;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::inflight::invalid_limit::InvalidLimit;
use crate::keyed::overflow::WhenFull;
use crate::limiter::inner::Inner;
use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::settings::KeySettings;
use crate::limiter::window_counter::WindowCounter;
use crate::limiter::window_limiter::WindowLimiter;
use crate::limiter::window_settings::WindowSettings;
use crate::quota::window::Window;
use crate::quota::window_error::InvalidWindow;
use crate::time::clock::Clock;
use crate::time::jitter::Jitter;
use crate::word::decision::{Denied, Granted};

/// The setters that both builders have.
macro_rules! window_setters {
    () => {
        /// Sets the clock of all decisions; by default the [processor's counter](Clock::new).
        ///
        /// A window with edges by the calendar reads the [wall clock](Clock#the-wall-clock) beside
        /// it.
        pub fn clock(mut self, clock: Clock) -> Self {
            self.settings.clock = clock;
            self
        }

        /// Makes room for a later limit: `set_limit` and caps may go up to `limit`.
        ///
        /// A sliding window may get fewer sub-windows by it.
        ///
        /// # Errors
        ///
        /// [`InvalidWindow`] if no word holds both limits.
        ///
        /// # Examples
        ///
        /// ```
        /// use tollgate::{Window, WindowCounter};
        ///
        /// let counter = WindowCounter::builder(Window::per_hour(10)).headroom(1_000)?.build();
        /// counter.set_limit(1_000)?;
        /// # Ok::<(), tollgate::InvalidWindow>(())
        /// ```
        pub fn headroom(mut self, limit: u64) -> Result<Self, InvalidWindow> {
            self.settings = self.settings.headroom(limit)?;
            Ok(self)
        }

        /// Sets shadow mode, in which no request is refused. See [`BucketBuilder::shadow`].
        ///
        /// [`BucketBuilder::shadow`]: crate::BucketBuilder::shadow
        pub fn shadow(mut self, shadow: bool) -> Self {
            self.settings.shadow = shadow;
            self
        }

        /// Sets a function that sees every decision. See [`BucketBuilder::on_decision`].
        ///
        /// With an empty function a decision on a known key takes 2.4 times the instructions of one
        /// without.
        ///
        /// [`BucketBuilder::on_decision`]: crate::BucketBuilder::on_decision
        pub fn on_decision(
            mut self,
            hook: impl Fn(&Result<Granted, Denied>) + Send + Sync + 'static,
        ) -> Self {
            self.settings.hook = Some(Arc::new(hook));
            self
        }
    };
}

impl WindowCounter {
    /// Returns a builder of a window.
    pub fn builder(window: Window) -> WindowCounterBuilder {
        WindowCounterBuilder { settings: WindowSettings::new(window) }
    }
}

impl<K> WindowLimiter<K> {
    /// Returns a limiter of at most 1,048,576 keys, whose clock is the processor's counter.
    #[must_use]
    pub fn new(window: Window) -> WindowLimiter<K> {
        WindowLimiter::builder(window).build()
    }

    /// Returns a builder of a limiter with this window for each key.
    ///
    /// The keys have the default hasher. [`hasher`](WindowLimiterBuilder::hasher) sets another one.
    pub fn builder(window: Window) -> WindowLimiterBuilder<K> {
        let (settings, keys) = (WindowSettings::new(window), KeySettings::default());
        WindowLimiterBuilder { settings, keys, key: PhantomData }
    }
}

/// A builder of a [`WindowCounter`], from [`WindowCounter::builder`].
#[derive(Debug)]
#[must_use = "a builder is no window: `.build()` makes one"]
pub struct WindowCounterBuilder {
    settings: WindowSettings,
}

impl WindowCounterBuilder {
    window_setters!();

    /// Returns the window.
    #[must_use]
    pub fn build(self) -> WindowCounter {
        let (window, engine, hook) = self.settings.finish();
        WindowCounter::of(window, engine, hook)
    }
}

/// A builder of a [`WindowLimiter`], from [`WindowLimiter::builder`].
///
/// # Examples
///
/// ```
/// use std::net::IpAddr;
/// use tollgate::{WhenFull, Window, WindowLimiter};
///
/// let limiter = WindowLimiter::<IpAddr>::builder(Window::per_minute(100).sliding())
///     .inline(100_000)?
///     .when_full(WhenFull::Deny)
///     .build();
/// let peer: IpAddr = "192.0.2.7".parse()?;
/// assert_eq!(limiter.try_acquire(&peer).map(|granted| granted.remaining()), Ok(99));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder is no limiter: `.build()` makes one"]
pub struct WindowLimiterBuilder<K, S = RandomState> {
    settings: WindowSettings,
    keys: KeySettings<S>,
    key: PhantomData<fn() -> K>,
}

impl<K, S> WindowLimiterBuilder<K, S> {
    window_setters!();

    /// Sets the hasher of keys; by default [`RandomState`]. A decision hashes its key once.
    pub fn hasher<H>(self, hasher: H) -> WindowLimiterBuilder<K, H> {
        let WindowLimiterBuilder { settings, keys, key } = self;
        WindowLimiterBuilder { settings, keys: keys.hasher(hasher), key }
    }

    /// Sets the largest number of keys with a window of their own; by default 1,048,576. See
    /// [`Builder::max_keys`](crate::Builder::max_keys).
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { keys: self.keys.max_keys(max_keys), ..self }
    }

    /// Keeps the windows in a fixed table for `keys` keys, instead of a map that grows. See
    /// [`Builder::inline`](crate::Builder::inline).
    ///
    /// A [removed](WindowLimiter::remove) key keeps its slot, unused, until its window is over.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] as there.
    pub fn inline(self, keys: usize) -> Result<Self, InvalidLimit> {
        Ok(Self { keys: self.keys.inline(keys)?, ..self })
    }

    /// Sets the policy for new keys that find no room; by default they [share](WhenFull::Share).
    pub fn when_full(self, when_full: WhenFull) -> Self {
        Self { keys: KeySettings { when_full, ..self.keys }, ..self }
    }

    /// Allocates the map in advance for `keys` keys. See
    /// [`Builder::presize`](crate::Builder::presize).
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] as there.
    pub fn presize(self, keys: usize) -> Result<Self, InvalidLimit> {
        Ok(Self { keys: self.keys.presize(keys)?, ..self })
    }

    /// Returns the limiter.
    #[must_use]
    pub fn build(self) -> WindowLimiter<K, S> {
        let (window, engine, hook) = self.settings.finish();
        let (keyspace, hasher) = self.keys.keyspace(engine);
        let inner = Arc::new(Inner::new(keyspace, hasher, hook, Jitter::NONE, None));
        WindowLimiter { limiter: RateLimiter { inner }, window }
    }
}

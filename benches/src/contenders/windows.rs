//! tollgate's windows, and the log of stamps that an exact sliding window needs.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tollgate::{RateLimiter, Window, WindowCounter};

use super::bucket::bucket;
use super::key::Key;
use crate::{Limiter, Setup};

/// Returns a window of the quota's burst and period.
fn window(setup: Setup) -> Window {
    Window::per(setup.quota.capacity(), setup.quota.period())
}

/// Returns a sliding window with the most sub-windows that fit.
fn sliding(setup: Setup) -> Window {
    window(setup).granularity(Duration::MAX).expect("the word has room for two counts")
}

bucket! {
    /// A window from the first use.
    FirstUse(WindowCounter), |setup| WindowCounter::new(window(setup)), |window| window.try_acquire().is_ok()
}

bucket! {
    /// A window by the calendar.
    Utc(WindowCounter), |setup| WindowCounter::new(window(setup).utc()), |window| window.try_acquire().is_ok()
}

bucket! {
    /// A sliding window.
    Sliding(WindowCounter), |setup| WindowCounter::new(sliding(setup)), |window| window.try_acquire().is_ok()
}

bucket! {
    /// Two windows, of which the earlier one fades.
    Weighted(WindowCounter),
    |setup| WindowCounter::new(window(setup).weighted()), |window| window.try_acquire().is_ok()
}

/// A sliding window for each key, in the map or in the table.
pub(crate) struct KeyedWindows<K, S, const INLINE: bool>(RateLimiter<K, Window, S>);

impl<K: Key, S: BuildHasher + Default + Send + Sync, const INLINE: bool> Limiter<K>
    for KeyedWindows<K, S, INLINE>
{
    fn new(setup: Setup) -> Self {
        let builder = RateLimiter::builder(sliding(setup)).hasher(S::default());
        KeyedWindows(match INLINE {
            true => builder.max_keys(setup.keys).inline().unwrap().build(),
            false => builder.presize(setup.keys).unwrap().max_keys(setup.keys).build(),
        })
    }

    #[inline(always)]
    fn try_acquire(&self, key: &K) -> bool {
        self.0.try_acquire(key).is_ok()
    }

    fn evict_idle(&self) -> bool {
        self.0.evict_idle();
        true
    }

    fn keys_held(&self) -> usize {
        self.0.len()
    }

    fn is_bounded(&self) -> bool {
        true
    }
}

/// The stamps of all grants of a period.
pub(crate) struct Log {
    stamps: VecDeque<Instant>,
    limit: usize,
    period: Duration,
}

bucket! {
    /// The log behind `std`'s mutex, on `std`'s clock.
    MutexLog(Mutex<Log>),
    |setup| {
        let limit = usize::try_from(setup.quota.capacity()).expect("a limit that fits memory");
        Mutex::new(Log { stamps: VecDeque::new(), limit, period: setup.quota.period() })
    },
    |log| {
        let now = Instant::now();
        log.lock().expect("no holder of the lock panics").take(now)
    }
}

impl Log {
    fn take(&mut self, now: Instant) -> bool {
        while self.stamps.front().is_some_and(|stamp| now.saturating_duration_since(*stamp) >= self.period) {
            self.stamps.pop_front();
        }
        let granted = self.stamps.len() < self.limit;
        if granted {
            self.stamps.push_back(now);
        }
        granted
    }
}

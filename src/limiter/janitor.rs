//! A thread that gives the memory of idle keys back.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use crate::limiter::rate_limiter::RateLimiter;
use crate::limiter::rule::Rule;
use crate::time::periodic::PeriodicThread;

impl<K, R, S> RateLimiter<K, R, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    R: Rule,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Starts a thread that calls [`evict_idle`](RateLimiter::evict_idle) every `interval`.
    ///
    /// The thread stops when the janitor or the last handle to the limiter is dropped. It makes
    /// idle keys give their memory back earlier. An interval of at least the quota's fill time
    /// makes the most of each round; an interval below 1 ms counts as 1 ms.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<u64>::new(Quota::per_second(5));
    /// let janitor = limiter.janitor(Duration::from_secs(10));
    /// assert!(janitor.is_running());
    /// drop(janitor);
    /// ```
    #[must_use = "the thread stops when the janitor is dropped"]
    pub fn janitor(&self, interval: Duration) -> Janitor {
        let inner = Arc::downgrade(&self.inner);
        let round = move || {
            inner.upgrade().is_some_and(|inner| {
                inner.keyspace.evict_idle();
                true
            })
        };
        let interval = interval.max(Duration::from_millis(1));
        Janitor(PeriodicThread::every("tollgate-janitor", interval, round).ok())
    }
}

/// A thread that evicts idle keys; see [`RateLimiter::janitor`].
///
/// A drop stops the thread, and waits for the end of a round under way.
#[derive(Debug)]
pub struct Janitor(Option<PeriodicThread>);

impl Janitor {
    /// Returns whether the thread runs: it could be started, and the limiter is still there.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.0.as_ref().is_some_and(PeriodicThread::is_running)
    }
}

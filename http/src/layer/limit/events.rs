//! Refusals as events of `tracing`.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use super::ban::Ban;
use super::limit_by::LimitBy;
use crate::response::policy::Policy;
use tollgate::{Denied, Quota, TokenBucket};

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LimitBy<K> {
    /// Emits an event for each request that this limit refuses, with a digest of its key; at most
    /// as many events as `quota` grants, on the limiter's clock.
    ///
    /// The event has level `INFO`, target `tollgate`, and these fields:
    ///
    /// | field | value |
    /// |---|---|
    /// | `policy` | the name of the limit |
    /// | `key` | 16 hexadecimal digits, the same for a key in one process; absent without a key |
    /// | `retry_after_ms` | the wait in milliseconds, rounded up; absent if no wait helps |
    /// | `banned` | whether the key is banned |
    /// | `suppressed` | the refusals without an event since the last one |
    ///
    /// A refusal that is not enforced, in shadow mode, has an event too.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_http::ClientIp;
    /// use tollgate_http::RateLimitLayer;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let layer = RateLimitLayer::builder(RateLimiter::new(Quota::per_second(10)))
    ///     .key(ClientIp::peer())
    ///     .log_refusals(Quota::per_second(5))
    ///     .build();
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn log_refusals(self, quota: Quota) -> Self {
        // The hasher is seeded at random, so that no table of keys finds them by their digests.
        let seed = RandomState::new();
        self.log_refusals_by(quota, move |key| format!("{:016x}", seed.hash_one(key)))
    }

    /// Emits an event for each request that this limit refuses, with a text of its key.
    ///
    /// A key may be a secret or an address that a log must not have. See
    /// [`log_refusals`](LimitBy::log_refusals).
    #[must_use]
    pub fn log_refusals_by(self, quota: Quota, text: impl Fn(&K) -> String + Send + Sync + 'static) -> Self {
        let events = TokenBucket::builder(quota).clock(self.limiter.clock()).build();
        let suppressed = AtomicU64::new(0);
        let see = move |key: Option<&K>, policy: &Policy, denied: &Denied, ban: Ban| {
            if !tracing::enabled!(target: "tollgate", tracing::Level::INFO) {
                return;
            }
            if events.try_acquire().is_err() {
                suppressed.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let wait = denied.retry_after().map(|wait| wait.as_nanos().div_ceil(1_000_000) as u64);
            tracing::info!(
                target: "tollgate",
                policy = policy.name(),
                key = key.map(&text),
                retry_after_ms = wait,
                banned = ban != Ban::None,
                suppressed = suppressed.swap(0, Ordering::Relaxed),
                "refused"
            );
        };
        self.with_see_refusal(Box::new(see))
    }
}

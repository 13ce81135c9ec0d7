//! Refusals as events of `tracing`, and decisions as fields of a span.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use super::ban::Ban;
use super::builder::LayerBuilder;
use super::limit_by::LimitBy;
use crate::request::key::Head;
use crate::response::policy::Policy;
use tollgate::Denied;
use tollgate::Quota;
use tollgate::TokenBucket;

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

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LayerBuilder<K> {
    /// Emits an event for each request that the first limit refuses; see [`LimitBy::log_refusals`],
    /// and [`LimitBy::log_refusals_by`] for another text of the key.
    pub fn log_refusals(self, quota: Quota) -> Self {
        self.with_first(|first| first.log_refusals(quota))
    }

    /// Records each decision in the current span, in those of these fields that the span declares.
    ///
    /// | field | value |
    /// |---|---|
    /// | `ratelimit.policy` | the name of the limit that decided |
    /// | `ratelimit.outcome` | `granted`, `delayed`, `refused` or `banned` |
    /// | `ratelimit.remaining` | the tokens left |
    /// | `ratelimit.wait_ms` | the wait of a delayed or refused request in milliseconds, at least |
    ///
    /// A span declares a field as `tracing::field::Empty`. The layer goes inside of the one that
    /// makes the span, such as tower-http's `TraceLayer`.
    pub fn record_in_span(self) -> Self {
        self.with_hook(|_: Head<'_>, decision, policy, ban| {
            let span = tracing::Span::current();
            if span.is_disabled() {
                return;
            }
            let (outcome, remaining, wait) = match decision.result() {
                Ok(granted) if decision.delay().is_zero() => ("granted", granted.remaining(), None),
                Ok(granted) => ("delayed", granted.remaining(), Some(decision.delay())),
                Err(denied) if ban == Ban::None => ("refused", denied.remaining(), denied.retry_after()),
                Err(denied) => ("banned", denied.remaining(), denied.retry_after()),
            };
            span.record("ratelimit.policy", policy.name());
            span.record("ratelimit.outcome", outcome);
            span.record("ratelimit.remaining", remaining);
            if let Some(wait) = wait {
                span.record("ratelimit.wait_ms", wait.as_nanos().div_ceil(1_000_000) as u64);
            }
        })
    }
}

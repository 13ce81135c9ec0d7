//! Refusals as events of `tracing`, and decisions as fields of a span.

use std::hash::Hash;

use super::builder::LayerBuilder;
use crate::layer::limit::ban::Ban;
use crate::request::key::Head;
use tollgate::Quota;

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LayerBuilder<K> {
    /// Emits an event for each request that the first limit refuses; see
    /// [`LimitBy::log_refusals`](crate::LimitBy::log_refusals), and
    /// [`LimitBy::log_refusals_by`](crate::LimitBy::log_refusals_by) for another text of the key.
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

//! A layer's statistics through the `metrics` facade.

use std::hash::Hash;

use super::builder::LayerBuilder;
use super::stats::{LayerStats, series};
use crate::layer::limit::ban::Ban;
use crate::request::key::Head;

impl LayerStats {
    /// Publishes the counts through the [`metrics`] facade, as named in
    /// [`prometheus`](crate::prometheus).
    ///
    /// A timer may call this every few seconds. Limits of one name in one layer are added up. Of
    /// layers with limits of one name, the facade keeps one layer's count, not the sum: give the
    /// limits names by [`LimitBy::name`](crate::LimitBy::name).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_http::RateLimitLayer;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<String>::new(Quota::per_second(1));
    /// let layer = RateLimitLayer::builder(limiter).shared().build();
    /// // To whatever recorder is installed.
    /// layer.stats().publish();
    /// ```
    pub fn publish(&self) {
        for ((_, policy, (name, _, result)), count) in series(std::slice::from_ref(self)) {
            let mut labels = vec![metrics::Label::new("policy", policy.to_owned())];
            labels.extend(result.map(|result| metrics::Label::from_static_parts("result", result)));
            if name.ends_with("_total") {
                metrics::counter!(name, labels).absolute(count);
            } else {
                metrics::gauge!(name, labels).set(count as f64);
            }
        }
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LayerBuilder<K> {
    /// Records the waits of requests in the histogram `tollgate_wait_seconds` of the [`metrics`]
    /// facade.
    ///
    /// The labels are `policy`, the name of the limit that decided, and `result`: `delayed` for the
    /// wait of a request that waits by a [`DelayLayer`](crate::DelayLayer), `refused` and
    /// `banned` for the wait that a refused client is told. A refusal that no wait helps, and a
    /// granted request that does not wait, are not recorded.
    pub fn measure_waits(self) -> Self {
        self.with_hook(|_: Head<'_>, decision, policy, ban| {
            let (result, wait) = match decision.result() {
                Ok(_) if decision.delay().is_zero() => return,
                Ok(_) => ("delayed", Some(decision.delay())),
                Err(denied) if ban == Ban::None => ("refused", denied.retry_after()),
                Err(denied) => ("banned", denied.retry_after()),
            };
            if let Some(wait) = wait {
                let labels = [
                    metrics::Label::new("policy", policy.name().to_owned()),
                    metrics::Label::from_static_parts("result", result),
                ];
                metrics::histogram!("tollgate_wait_seconds", labels.to_vec()).record(wait.as_secs_f64());
            }
        })
    }
}

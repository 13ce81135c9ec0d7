//! A layer's statistics through the `metrics` facade.

use super::counters::{DECISIONS, LayerStats};

impl LayerStats {
    /// Publishes them through the [`metrics`] facade, under the names that [`prometheus`](super::prometheus) has. To be called now
    /// and then, as by a timer.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::tower::RateLimitLayer;
    /// use tollgate::{Quota, RateLimiter};
    ///
    /// let limiter = RateLimiter::<String>::new(Quota::per_second(1));
    /// let layer = RateLimitLayer::builder(limiter).shared().build();
    /// // To whatever recorder is installed.
    /// layer.stats().publish();
    /// ```
    pub fn publish(&self) {
        for (result, count) in self.results() {
            metrics::counter!(DECISIONS, "policy" => self.policy.clone(), "result" => result).absolute(count);
        }
        for (name, _, count) in self.others() {
            if name.ends_with("_total") {
                metrics::counter!(name, "policy" => self.policy.clone()).absolute(count);
            } else {
                metrics::gauge!(name, "policy" => self.policy.clone()).set(count as f64);
            }
        }
    }
}

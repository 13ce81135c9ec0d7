//! A layer's statistics through the `metrics` facade.

use super::stats::{LayerStats, series};

impl LayerStats {
    /// Publishes the counts through the [`metrics`] facade, as named in
    /// [`prometheus`](super::prometheus).
    ///
    /// A timer may call this every few seconds. Limits of one name in one layer are added up. Of
    /// layers with limits of one name, the facade keeps one layer's count, not the sum: give the
    /// limits names by [`LimitBy::name`](super::LimitBy::name).
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

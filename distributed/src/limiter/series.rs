//! The counts of a limiter as time series.

use super::stats::DistributedStats;

/// The name of a series, its label with a value, and the count.
type Series = (&'static str, Option<(&'static str, &'static str)>, u64);

impl DistributedStats {
    /// Returns the counts as time series: the name, perhaps a label with its value, and the count.
    ///
    /// A name that ends in `_total` is that of a counter, and any other that of a gauge.
    /// [`latencies`](DistributedStats::latencies) are not among the series.
    #[must_use]
    pub fn series(&self) -> Vec<Series> {
        let by = |name, label, values: &[(&'static str, u64)]| -> Vec<Series> {
            values.iter().map(|&(value, count)| (name, Some((label, value)), count)).collect()
        };
        let decisions = [
            ("local", self.by_local),
            ("lease", self.by_lease),
            ("shadow", self.by_shadow),
            ("store", self.by_store),
            ("fallback", self.by_fallback),
            ("policy", self.by_policy),
        ];
        let calls = [
            ("answered", self.calls_answered),
            ("late", self.calls_late),
            ("refused", self.calls_refused),
            ("unknown", self.calls_unknown),
            ("permanent", self.calls_permanent),
        ];
        let tokens = [
            ("granted", self.tokens_granted),
            ("used", self.tokens_used),
            ("returned", self.tokens_returned),
            ("lost", self.tokens_lost),
        ];
        let alone = [
            ("tollgate_shared_denied_total", None, self.denied),
            ("tollgate_shared_overdue_total", None, self.overdue),
            ("tollgate_shared_without_room_total", None, self.without_room),
            ("tollgate_store_keys_total", None, self.ops),
            ("tollgate_store_outages_total", None, self.breaker_opened),
            ("tollgate_store_down", None, u64::from(self.breaker_open)),
            ("tollgate_shared_keys", None, self.keys as u64),
        ];
        let mut series = by("tollgate_shared_decisions_total", "source", &decisions);
        series.extend(by("tollgate_store_calls_total", "outcome", &calls));
        series.extend(by("tollgate_lease_tokens_total", "end", &tokens));
        series.extend(alone);
        series
    }

    /// Publishes the series through the [`metrics`] facade, with the label `limiter`.
    ///
    /// Call this every few seconds. The limiter itself records the latency of each call, in the
    /// histogram `tollgate_store_call_seconds`.
    #[cfg(feature = "metrics")]
    pub fn publish(&self, limiter: &str) {
        for (name, label, count) in self.series() {
            let mut labels = vec![metrics::Label::new("limiter", limiter.to_owned())];
            labels.extend(label.map(|(label, value)| metrics::Label::from_static_parts(label, value)));
            if name.ends_with("_total") {
                metrics::counter!(name, labels).absolute(count);
            } else {
                metrics::gauge!(name, labels).set(count as f64);
            }
        }
    }
}

//! The statistics of a layer of requests in flight through the `metrics` facade.

use super::stats::{InflightLayerStats, inflight_series};

impl InflightLayerStats {
    /// Publishes the counts through the [`metrics`] facade, as named in
    /// [`prometheus_inflight`](crate::prometheus_inflight), but for the histogram.
    ///
    /// Call this every few seconds.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_adaptive::Inflight;
    /// use tollgate_adaptive::InflightLayer;
    ///
    /// let layer = InflightLayer::new(Inflight::fixed(64));
    /// // To the installed recorder, if there is one.
    /// layer.stats().publish();
    /// ```
    pub fn publish(&self) {
        for series in inflight_series(self) {
            let mut labels = vec![metrics::Label::new("name", self.name.clone())];
            labels.extend(series.label.map(|(label, of)| metrics::Label::from_static_parts(label, of)));
            match series.metric {
                (name, _, "counter") => metrics::counter!(name, labels).absolute(series.value as u64),
                (name, _, "gauge") => metrics::gauge!(name, labels).set(series.value),
                _ => {}
            }
        }
    }
}

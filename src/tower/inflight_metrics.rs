//! The statistics of a layer of requests in flight through the `metrics` facade.

use super::inflight_layer::InflightLayerBuilder;
use super::inflight_stats::{InflightLayerStats, inflight_series};

impl InflightLayerStats {
    /// Publishes the counts through the [`metrics`] facade, as named in
    /// [`prometheus_inflight`](super::prometheus_inflight), but for the histogram.
    ///
    /// Call this every few seconds. [`measure_answers`](InflightLayerBuilder::measure_answers)
    /// records the histogram.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Inflight;
    /// use tollgate::tower::InflightLayer;
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

impl InflightLayerBuilder {
    /// Records the latencies of answers in the histogram `tollgate_answer_seconds` of the
    /// [`metrics`] facade.
    ///
    /// Its label `name` is the name of the layer. A fixed limit reads no clock, and records
    /// nothing.
    pub fn measure_answers(self) -> Self {
        self.on_answer(|name, latency| {
            let label = metrics::Label::new("name", name.to_owned());
            metrics::histogram!("tollgate_answer_seconds", vec![label]).record(latency.as_secs_f64());
        })
    }
}

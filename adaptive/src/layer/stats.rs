//! Counts of a layer of requests in flight, and their time series.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::count::priority::Priority;
use crate::gate::inflight::Inflight;
use crate::gate::stats::InflightStats;
use crate::signals::outcome::Outcome;

const PRIORITIES: usize = Priority::ALL.len();
const OUTCOMES: usize = Outcome::ALL.len();

/// Adds one. Relaxed: counts are for people and dashboards, and no count implies another.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Escapes the value of a label.
fn label_text(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Counts of a layer. The most frequent have cache lines of their own.
#[derive(Default)]
pub(crate) struct InflightCounters {
    pub(super) admitted: [CachePadded<AtomicU64>; PRIORITIES],
    pub(super) refused: [CachePadded<AtomicU64>; PRIORITIES],
    pub(super) outcomes: [CachePadded<AtomicU64>; OUTCOMES],
    pub(super) given_up: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) times: CachePadded<AnswerTimes>,
}

/// The upper bounds of the latencies in a bucket, with their text in seconds.
const BOUNDS: [(u64, &str); 13] = [
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
];
const BUCKETS: usize = BOUNDS.len() + 1;

/// Latencies of answers, by bucket, and their sum.
#[derive(Default)]
pub(crate) struct AnswerTimes {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl AnswerTimes {
    pub(super) fn note(&self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        count(&self.buckets[BOUNDS.partition_point(|(bound, _)| *bound < nanos)]);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// Counts of an [`InflightLayer`](crate::InflightLayer) since it was made, from its
/// [`stats`](crate::InflightLayer::stats).
///
/// A request is refused, skipped or admitted. An admitted one is `answered`, `overloaded`, `failed`
/// or `given_up`, once it has a response or is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InflightLayerStats {
    /// Name of the layer.
    pub name: String,
    /// The limit, its use and its changes.
    pub inflight: InflightStats,
    /// Requests that were admitted.
    pub admitted: u64,
    /// Requests that found no place.
    pub refused: u64,
    /// Requests that the limit does not apply to.
    pub skipped: u64,
    /// Admitted requests whose response is an answer.
    pub answered: u64,
    /// Admitted requests that failed by a lack of capacity.
    pub overloaded: u64,
    /// Admitted requests that failed for another reason.
    pub failed: u64,
    /// Admitted requests that were dropped before the head of their response, also by a panic.
    pub given_up: u64,
    /// Requests of each priority, the lowest first.
    pub priorities: [PriorityStats; PRIORITIES],
    /// Answers by their latency: up to 1, 2.5, 5, 10, 25, 50, 100, 250 and 500 ms, 1, 2.5, 5 and 10
    /// s, and longer. All are 0 if the limit is fixed.
    pub latencies: [u64; BUCKETS],
    /// Sum of the latencies of answers, below 584 years.
    pub latency_sum: Duration,
}

/// Requests of a priority, from [`InflightLayerStats::priorities`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PriorityStats {
    /// The priority.
    pub priority: Priority,
    /// Requests that were admitted.
    pub admitted: u64,
    /// Requests that found no place.
    pub refused: u64,
}

impl InflightCounters {
    pub(super) fn stats(&self, name: &str, inflight: &Inflight) -> InflightLayerStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let priorities = Priority::ALL.map(|priority| PriorityStats {
            priority,
            admitted: of(&self.admitted[priority as usize]),
            refused: of(&self.refused[priority as usize]),
        });
        let [answered, overloaded, failed] = Outcome::ALL.map(|outcome| of(&self.outcomes[outcome as usize]));
        InflightLayerStats {
            name: name.to_owned(),
            inflight: inflight.stats(),
            admitted: priorities.iter().map(|by| by.admitted).sum(),
            refused: priorities.iter().map(|by| by.refused).sum(),
            skipped: of(&self.skipped),
            answered,
            overloaded,
            failed,
            given_up: of(&self.given_up),
            priorities,
            latencies: std::array::from_fn(|bucket| of(&self.times.buckets[bucket])),
            latency_sum: Duration::from_nanos(of(&self.times.nanos)),
        }
    }
}

/// A metric: its name, its help and its kind.
type InflightMetric = (&'static str, &'static str, &'static str);

const IN_FLIGHT: InflightMetric = ("tollgate_inflight", "Requests in flight.", "gauge");
const LIMIT: InflightMetric = ("tollgate_inflight_limit", "Limit on the requests in flight.", "gauge");
const TARGET: InflightMetric =
    ("tollgate_inflight_target_seconds", "Latency that most answers are within.", "gauge");
const ADMITTED: InflightMetric =
    ("tollgate_inflight_admitted_total", "Requests that took a place.", "counter");
const REFUSED: InflightMetric =
    ("tollgate_inflight_refused_total", "Requests that found no place.", "counter");
const SKIPPED: InflightMetric =
    ("tollgate_inflight_skipped_total", "Requests that the limit does not apply to.", "counter");
const OUTCOME: InflightMetric =
    ("tollgate_inflight_outcomes_total", "Admitted requests by their outcome.", "counter");
const CHANGES: InflightMetric =
    ("tollgate_inflight_changes_total", "Changes of the limit, by their reason.", "counter");
const ANSWERS: InflightMetric = ("tollgate_answer_seconds", "Latency of the head of an answer.", "histogram");

/// A value of a metric, with a suffix of its name and a label.
pub(super) struct InflightSeries {
    pub(super) metric: InflightMetric,
    pub(super) suffix: &'static str,
    pub(super) label: Option<(&'static str, &'static str)>,
    pub(super) value: f64,
}

/// Returns the series of a layer, those of a metric together, in one order for all layers.
///
/// A layer of a fixed limit has no target, and no series of its target, its changes and its
/// latencies.
pub(super) fn inflight_series(stats: &InflightLayerStats) -> Vec<InflightSeries> {
    let InflightLayerStats { inflight, .. } = stats;
    let mut all = Vec::with_capacity(64);
    let mut add = |metric, suffix, label, value| {
        all.push(InflightSeries { metric, suffix, label, value });
    };
    // Counts below 2^53 are exact.
    let number = |count: u64| count as f64;
    add(IN_FLIGHT, "", None, inflight.in_flight.into());
    add(LIMIT, "", None, inflight.limit.into());
    if let Some(target) = inflight.target {
        add(TARGET, "", None, target.as_secs_f64());
    }
    for by in &stats.priorities {
        add(ADMITTED, "", Some(("priority", by.priority.name())), number(by.admitted));
    }
    for by in &stats.priorities {
        add(REFUSED, "", Some(("priority", by.priority.name())), number(by.refused));
    }
    add(SKIPPED, "", None, number(stats.skipped));
    let outcomes = [stats.answered, stats.overloaded, stats.failed];
    for (outcome, count) in Outcome::ALL.into_iter().zip(outcomes) {
        add(OUTCOME, "", Some(("outcome", outcome.name())), number(count));
    }
    add(OUTCOME, "", Some(("outcome", "given_up")), number(stats.given_up));
    if inflight.target.is_none() {
        return all;
    }
    let InflightStats { rose, fell, in_vain, stalled, .. } = *inflight;
    for (why, count) in [("rose", rose), ("fell", fell), ("in_vain", in_vain), ("stalled", stalled)] {
        add(CHANGES, "", Some(("why", why)), number(count));
    }
    let mut below = 0;
    let bounds = BOUNDS.iter().map(|(_, bound)| *bound).chain(["+Inf"]);
    for (bound, count) in bounds.zip(stats.latencies) {
        below += count;
        add(ANSWERS, "_bucket", Some(("le", bound)), number(below));
    }
    add(ANSWERS, "_sum", None, stats.latency_sum.as_secs_f64());
    add(ANSWERS, "_count", None, number(below));
    all
}

/// Formats the statistics of some layers of requests in flight for Prometheus
/// (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
///
/// The labels are `name`, the name of a layer, and `priority`, `outcome`, `why` or `le`: never a
/// key, a path or an address. There are at most 36 series for each name. A layer of a fixed limit
/// has no `tollgate_inflight_target_seconds`, no `tollgate_inflight_changes_total` and no
/// `tollgate_answer_seconds`.
///
/// Only the first of several layers with the same name is shown: give each a
/// [name](crate::InflightLayerBuilder::name) of its own.
///
/// # Examples
///
/// ```
/// use tollgate_adaptive::Inflight;
/// use tollgate_adaptive::{InflightLayer, prometheus_inflight};
///
/// let layer = InflightLayer::new(Inflight::fixed(64));
/// let text = prometheus_inflight(&[layer.stats()]);
/// assert!(text.contains("tollgate_inflight_limit{name=\"default\"} 64\n"));
/// assert!(text.contains("tollgate_inflight_refused_total{name=\"default\",priority=\"critical\"} 0\n"));
/// ```
#[must_use]
pub fn prometheus_inflight(stats: &[InflightLayerStats]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_inflight(&mut text, stats);
    text
}

fn write_inflight(text: &mut String, stats: &[InflightLayerStats]) -> std::fmt::Result {
    // The series of a metric stand together, and then those of a name.
    let mut sorted = BTreeMap::<&str, BTreeMap<&str, Vec<InflightSeries>>>::new();
    for layer in stats {
        let mut own = BTreeMap::<_, Vec<_>>::new();
        for series in inflight_series(layer) {
            own.entry(series.metric.0).or_default().push(series);
        }
        for (metric, series) in own {
            sorted.entry(metric).or_default().entry(&layer.name).or_insert(series);
        }
    }
    for names in sorted.values() {
        let mut is_first = true;
        for (name, series) in names {
            let name = label_text(name);
            for InflightSeries { metric: (metric, help, kind), suffix, label, value } in series {
                if std::mem::take(&mut is_first) {
                    writeln!(text, "# HELP {metric} {help}\n# TYPE {metric} {kind}")?;
                }
                let label = label.map(|(label, of)| format!(",{label}=\"{of}\"")).unwrap_or_default();
                writeln!(text, "{metric}{suffix}{{name=\"{name}\"{label}}} {value}")?;
            }
        }
    }
    Ok(())
}

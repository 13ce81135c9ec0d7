//! Counts of a layer and its limits, as few time series.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layer::decide::line::lock;
use crate::layer::decide::state::{LayerCounters, LayerState};
use crate::layer::limit::counts::LimitStats;

/// Counts of a layer since it was made, from
/// [`RateLimitLayer::stats`](crate::RateLimitLayer::stats).
///
/// The limit that decided counts the request: the one that refused it, or else the one with the
/// fewest tokens left. A limit in shadow mode counts the requests that it would have refused, and
/// no other limit counts these. The layer counts a skipped or exempt request. So the sum of
/// `granted`, `refused`, `banned`, `shadow_refused`, `skipped`, `exempt` and `rejected` is the
/// number of requests.
///
/// All counts but `skipped`, `exempt`, `delayed` and `waiting` are sums over the limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerStats {
    /// Name of the first limit, which stands for the layer.
    pub policy: String,
    /// Requests that were granted.
    pub granted: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests over a limit that were passed on, by shadow mode or for an unenforced key.
    pub shadow_refused: u64,
    /// Requests to which no limit applied, or that an outer layer had counted by the same limiter.
    pub skipped: u64,
    /// Requests on the [allow list](crate::LayerBuilder::exempt).
    pub exempt: u64,
    /// Requests that were granted after a wait, counted when the wait began.
    pub delayed: u64,
    /// Requests that wait for their turn now.
    pub waiting: usize,
    /// Requests that were refused since their key is banned.
    pub banned: u64,
    /// Bans that were begun.
    pub bans: u64,
    /// Keys whose refusals are counted, keys that are banned, and keys without room whose requests
    /// are.
    pub ban_keys: usize,
    /// Refusals that were not counted for a ban, or began none, for want of room.
    pub unbanned_full: u64,
    /// Requests that were rejected for want of a key.
    pub rejected: u64,
    /// Requests without a key, at each limit that found none.
    pub keyless: u64,
    /// Requests whose tokens were given back on their response.
    pub refunded: u64,
    /// Requests that cost their estimate, since the body or the trailer that tells the
    /// [cost](crate::Cost) had none. If it grows, the limit counts no actual costs.
    pub estimated: u64,
    /// Keys that the limiters hold.
    pub keys: usize,
    /// Keys that the limiters have forgotten.
    pub evicted: u64,
    /// Decisions of the limiters on keys without room.
    pub without_room: u64,
    /// Counts of each limit, the first limit first.
    pub limits: Vec<LimitStats>,
}

impl LayerStats {
    /// Returns the counts so far, of the layer and of each limit.
    pub(super) fn of(state: &LayerState) -> LayerStats {
        let LayerCounters { skipped, exempt, delayed, waiting } = &*state.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sums = LayerStats {
            skipped: of(skipped),
            exempt: of(exempt),
            delayed: of(delayed),
            waiting: lock(waiting).all,
            ..LayerStats::default()
        };
        sums.with_limits(state.limits.iter().map(|limit| limit.stats()).collect())
    }

    /// Adds the sums over some limits, under the name of the first.
    fn with_limits(self, limits: Vec<LimitStats>) -> LayerStats {
        let mut sums = self;
        sums.policy = limits.first().map_or_else(String::new, |first| first.policy.clone());
        for limit in &limits {
            sums.granted += limit.granted;
            sums.refused += limit.refused;
            sums.shadow_refused += limit.shadow_refused;
            sums.rejected += limit.rejected;
            sums.keyless += limit.keyless;
            sums.refunded += limit.refunded;
            sums.estimated += limit.estimated;
            sums.banned += limit.banned;
            sums.bans += limit.bans;
            sums.ban_keys += limit.ban_keys;
            sums.unbanned_full += limit.unbanned_full;
            sums.keys += limit.keys;
            sums.evicted += limit.evicted;
            sums.without_room += limit.without_room;
        }
        LayerStats { limits, ..sums }
    }
}

/// A metric: its name, its help, and its value of the label `result` if it has this label.
type Metric = (&'static str, &'static str, Option<&'static str>);

const fn decisions(result: &'static str) -> Metric {
    ("tollgate_decisions_total", "Requests by their outcome.", Some(result))
}

/// A metric and its count of a limit.
type Column = (Metric, fn(&LimitStats) -> u64);

/// The metrics of a limit. Those of one name stand together.
const COLUMNS: [Column; 14] = [
    (decisions("granted"), |limit| limit.granted),
    (decisions("refused"), |limit| limit.refused),
    (decisions("banned"), |limit| limit.banned),
    (decisions("shadow_refused"), |limit| limit.shadow_refused),
    (decisions("rejected"), |limit| limit.rejected),
    (("tollgate_keyless_total", "Requests without a key.", None), |limit| limit.keyless),
    (("tollgate_refunded_total", "Requests whose tokens were given back.", None), |limit| limit.refunded),
    (("tollgate_estimated_total", "Answers that told no cost.", None), |limit| limit.estimated),
    (("tollgate_evicted_total", "Keys that were forgotten.", None), |limit| limit.evicted),
    (("tollgate_without_room_total", "Decisions on keys without room.", None), |limit| limit.without_room),
    (("tollgate_keys", "Keys that are held.", None), |limit| limit.keys as u64),
    (("tollgate_bans_total", "Bans that were begun.", None), |limit| limit.bans),
    (("tollgate_unbanned_full_total", "Refusals without room for a ban.", None), |limit| limit.unbanned_full),
    (("tollgate_ban_keys", "Keys that are banned or were refused.", None), |limit| limit.ban_keys as u64),
];

/// A metric and its count of a layer.
type LayerColumn = (Metric, fn(&LayerStats) -> u64);

const LAYER_COLUMNS: [LayerColumn; 4] = [
    (decisions("skipped"), |layer| layer.skipped),
    (decisions("exempt"), |layer| layer.exempt),
    (("tollgate_delayed_total", "Requests that waited for their turn.", None), |layer| layer.delayed),
    (("tollgate_waiting", "Requests that wait for their turn.", None), |layer| layer.waiting as u64),
];

/// Returns the series of some layers. Those of a metric stand together, with different labels.
pub(crate) fn series(stats: &[LayerStats]) -> BTreeMap<(usize, &str, Metric), u64> {
    let mut series = BTreeMap::new();
    let mut add = |column, policy, metric: Metric, count| {
        // The label tells results apart.
        let place = if metric.2.is_some() { 0 } else { column };
        *series.entry((place, policy, metric)).or_insert(0) += count;
    };
    for layer in stats {
        for (column, (metric, count)) in LAYER_COLUMNS.iter().enumerate() {
            add(COLUMNS.len() + column, layer.policy.as_str(), *metric, count(layer));
        }
        for limit in &layer.limits {
            for (column, (metric, count)) in COLUMNS.iter().enumerate() {
                add(column, limit.policy.as_str(), *metric, count(limit));
            }
        }
    }
    series
}

/// Formats the statistics of some layers for Prometheus
/// (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
///
/// The labels are `policy`, the name of a limit, and `result`: never a key, a path or an address.
/// There are 14 series for each name and four for each layer, for any number of keys. Limits of
/// one name are one series, with their sum.
///
/// A request is in one series of `tollgate_decisions_total`, that of the limit that decided
/// ([`LayerStats`] has the rule). A skipped or exempt one is under the name of its layer's first
/// limit. So a sum over `policy` counts each request once.
///
/// # Examples
///
/// ```
/// use tollgate_http::{RateLimitLayer, prometheus};
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter: RateLimiter<String> = RateLimiter::new(Quota::per_second(1));
/// let layer = RateLimitLayer::builder(limiter).shared().build();
/// let text = prometheus(&[layer.stats()]);
/// assert!(text.contains("tollgate_decisions_total{policy=\"default\",result=\"granted\"} 0\n"));
/// ```
#[must_use]
pub fn prometheus(stats: &[LayerStats]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_to(&mut text, stats);
    text
}

/// Escapes the value of a label.
pub(super) fn label_text(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn write_to(text: &mut String, stats: &[LayerStats]) -> std::fmt::Result {
    let mut before = "";
    for ((_, policy, (name, help, result)), count) in series(stats) {
        if name != before {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
            before = name;
        }
        let policy = label_text(policy);
        let result = result.map(|result| format!(",result=\"{result}\"")).unwrap_or_default();
        writeln!(text, "{name}{{policy=\"{policy}\"{result}}} {count}")?;
    }
    Ok(())
}

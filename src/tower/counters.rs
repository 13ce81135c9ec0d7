//! What a layer has counted, and how it is told to those who watch: a few series, whatever clients do.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// Each on a line of its own: requests that differ do not wait for one another's.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) granted: CachePadded<AtomicU64>,
    pub(crate) refused: CachePadded<AtomicU64>,
    pub(crate) shadow_refused: CachePadded<AtomicU64>,
    pub(crate) skipped: CachePadded<AtomicU64>,
    pub(crate) rejected: CachePadded<AtomicU64>,
    pub(crate) keyless: CachePadded<AtomicU64>,
    pub(crate) refunded: CachePadded<AtomicU64>,
}

/// Counts for people and dashboards: nothing is concluded from one about another.
///
/// Returns the count with this one.
pub(crate) fn count(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed) + 1
}

/// What a layer has decided, from [`RateLimitLayer::stats`](super::RateLimitLayer::stats). Counts are since the layer was
/// made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerStats {
    /// The name of the policy.
    pub policy: String,
    /// Requests that were granted.
    pub granted: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that would have been refused, but for shadow mode or a share that is enforced.
    pub shadow_refused: u64,
    /// Requests that were not to be limited, or that another layer had counted by the same limiter.
    pub skipped: u64,
    /// Requests that were rejected as they had no key.
    pub rejected: u64,
    /// Requests that had no key for the first limit, whatever became of them.
    pub keyless: u64,
    /// Requests whose tokens were given back, by their response.
    pub refunded: u64,
    /// Keys that the first limit holds.
    pub keys: usize,
    /// Keys that it has forgotten.
    pub evicted: u64,
    /// Decisions of it on keys that it had no room for.
    pub without_room: u64,
}

impl LayerStats {
    pub(crate) fn of(counters: &Counters) -> LayerStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LayerStats {
            granted: of(&counters.granted),
            refused: of(&counters.refused),
            shadow_refused: of(&counters.shadow_refused),
            skipped: of(&counters.skipped),
            rejected: of(&counters.rejected),
            keyless: of(&counters.keyless),
            refunded: of(&counters.refunded),
            ..LayerStats::default()
        }
    }

    /// What became of requests: each in one of these.
    pub(crate) fn results(&self) -> [(&'static str, u64); 5] {
        [
            ("granted", self.granted),
            ("refused", self.refused),
            ("shadow_refused", self.shadow_refused),
            ("skipped", self.skipped),
            ("rejected", self.rejected),
        ]
    }

    pub(crate) fn others(&self) -> [(&'static str, &'static str, u64); 5] {
        [
            ("tollgate_keyless_total", "Requests without a key.", self.keyless),
            ("tollgate_refunded_total", "Requests whose tokens were given back.", self.refunded),
            ("tollgate_evicted_total", "Keys that were forgotten.", self.evicted),
            ("tollgate_without_room_total", "Decisions on keys without room.", self.without_room),
            ("tollgate_keys", "Keys that are held.", self.keys as u64),
        ]
    }
}

pub(crate) const DECISIONS: &str = "tollgate_decisions_total";

/// The statistics of some layers as Prometheus reads them
/// (<https://prometheus.io/docs/instrumenting/exposition_formats/>). The labels are `policy` and `result`: never a key, a path or an
/// address, so there are ten series for each layer, whatever clients do.
///
/// # Examples
///
/// ```
/// use tollgate::tower::{RateLimitLayer, prometheus};
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

fn write_to(text: &mut String, stats: &[LayerStats]) -> std::fmt::Result {
    let quoted = |name: &str| name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    writeln!(text, "# HELP {DECISIONS} What became of requests.\n# TYPE {DECISIONS} counter")?;
    for layer in stats {
        let policy = quoted(&layer.policy);
        for (result, count) in layer.results() {
            writeln!(text, "{DECISIONS}{{policy=\"{policy}\",result=\"{result}\"}} {count}")?;
        }
    }
    for (index, (name, help, _)) in LayerStats::default().others().into_iter().enumerate() {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
        for layer in stats {
            let (policy, (.., count)) = (quoted(&layer.policy), layer.others()[index]);
            writeln!(text, "{name}{{policy=\"{policy}\"}} {count}")?;
        }
    }
    Ok(())
}

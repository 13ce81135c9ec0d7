//! The decisions of shared limits by their source, and the state of their store.

use std::fmt::Write;

use serde_json::{Value, json};
use tollgate_distributed::DistributedStats;

use crate::forward::target::escaped;
use crate::limits::in_force::InForce;
use crate::limits::store::Fleet;

/// Returns the counts of all shared limits together, and whether the store of any is down.
pub(crate) fn sum(in_force: &InForce) -> DistributedStats {
    let mut sum = DistributedStats::default();
    for stats in in_force.limits().filter_map(|limit| Some(limit.limiter.shared()?.stats())) {
        sum.by_lease += stats.by_lease;
        sum.by_shadow += stats.by_shadow;
        sum.by_store += stats.by_store;
        sum.by_fallback += stats.by_fallback;
        sum.by_policy += stats.by_policy;
        sum.breaker_open |= stats.breaker_open;
        sum.breaker_opened += stats.breaker_opened;
    }
    sum
}

/// Returns the store's part of an event of the live page.
pub(crate) fn shown(fleet: &Fleet, now: &DistributedStats, before: &DistributedStats) -> Value {
    let by = [
        ("lease", now.by_lease, before.by_lease),
        ("shadow", now.by_shadow, before.by_shadow),
        ("store", now.by_store, before.by_store),
        ("fallback", now.by_fallback, before.by_fallback),
        ("policy", now.by_policy, before.by_policy),
    ];
    json!({
        "url": fleet.settings.url.to_string(),
        "down": now.breaker_open,
        "outages": now.breaker_opened,
        "sources": by.map(|(name, now, before)| json!({ "name": name, "decisions": now.saturating_sub(before) })),
    })
}

/// Appends the counts of shared limits in the text format of Prometheus.
pub(crate) fn prometheus(in_force: &InForce, text: &mut String) {
    let limits = in_force
        .limits()
        .filter_map(|limit| Some((escaped(&limit.name), limit.limiter.shared()?.stats().series())));
    let limits: Vec<_> = limits.collect();
    let Some((_, first)) = limits.first() else { return };
    let mut before = "";
    for (index, &(name, label, _)) in first.iter().enumerate() {
        if name != before {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", help(name));
            before = name;
        }
        let label = label.map(|(label, value)| format!(",{label}=\"{value}\"")).unwrap_or_default();
        for (policy, series) in &limits {
            if let Some((_, _, count)) = series.get(index) {
                let _ = writeln!(text, "{name}{{policy=\"{policy}\"{label}}} {count}");
            }
        }
    }
}

fn help(name: &str) -> &'static str {
    match name {
        "tollgate_shared_decisions_total" => "Decisions of a shared limit by their source.",
        "tollgate_shared_denied_total" => "Refusals of a shared limit.",
        "tollgate_shared_without_room_total" => "Decisions on keys without room for a lease.",
        "tollgate_shared_overdue_total" => "Requests beyond the deadline while the store answers.",
        "tollgate_shared_keys" => "Keys of which this process holds tokens.",
        "tollgate_store_calls_total" => "Calls of the store by their end.",
        "tollgate_store_keys_total" => "Keys in all calls of the store.",
        "tollgate_store_outages_total" => "Outages of the store.",
        "tollgate_store_down" => "Whether the store does not answer.",
        "tollgate_lease_tokens_total" => "Tokens of leases by their end.",
        _ => "A count of a shared limit.",
    }
}

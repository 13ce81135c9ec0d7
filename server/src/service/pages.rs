//! The texts of the debug pages.

use std::fmt::Write;

use super::state::Service;
use crate::rules::tree::{Amount, RuleLimit};

/// Returns all counters in the text format of Prometheus.
pub(super) fn metrics(service: &Service) -> String {
    let mut text = service.counts.prometheus(service.in_force().settings.in_milliseconds);
    let name = "tollgate_serve_connections_closed_total";
    let _ = writeln!(text, "# TYPE {name} counter");
    for (reason, count) in service.closed_by_name() {
        let _ = writeln!(text, "{name}{{reason=\"{reason}\"}} {count}");
    }
    let (name, version) = ("tollgate_build_info", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "# TYPE {name} gauge\n{name}{{version=\"{version}\"}} 1");
    text
}

/// Returns a line for each limit, in the form of envoyproxy/ratelimit.
pub(super) fn rules(service: &Service) -> String {
    let in_force = service.in_force();
    let limits = in_force.loaded.iter().flat_map(|loaded| loaded.rules.limits());
    limits.map(|limit| line(limit)).collect()
}

fn line(limit: &RuleLimit) -> String {
    let amount = match &limit.amount {
        Amount::Unlimited => "unlimited".to_owned(),
        Amount::Window { unit, requests } => format!("unit={} requests_per_unit={requests}", unit.name()),
        Amount::Text(text, _) => format!("limit={text}"),
    };
    let (name, shadow, quota) = (limit.statistics.text(), limit.shadow, limit.quota);
    format!("{name}: {amount}, shadow_mode: {shadow}, quota_mode: {quota}\n")
}

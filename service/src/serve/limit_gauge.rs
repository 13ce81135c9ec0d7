//! The limits in force as a metric: a series for each rule that counts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::loaded::LoadedRules;
use super::statistics::{labels_of, quoted};
use crate::rules::tree::{Amount, Unit};

const NAME: &str = "tollgate_serve_limit";

/// Returns the number of each limit in the text format of Prometheus, with its time as `unit`. Its
/// other labels are those of its counters; of limits with the same ones the first is told.
pub(super) fn lines(loaded: &LoadedRules) -> String {
    let mut text = format!("# TYPE {NAME} gauge\n");
    let mut told = BTreeMap::new();
    for limit in loaded.rules.limits() {
        let (number, unit) = match &limit.amount {
            Amount::Unlimited => continue,
            Amount::Window { unit, requests } => (u64::from(*requests), unit.text().to_owned()),
            Amount::Text(_, rule) | Amount::Windows { window: rule, .. } => {
                (rule.tokens(), unit_of(rule.period()))
            }
        };
        let labels = format!("{},unit={}", labels_of(limit.statistics.text()), quoted(&unit));
        told.entry(labels).or_insert(number);
    }
    for (labels, number) in told {
        let _ = writeln!(text, "{NAME}{{{labels}}} {number}");
    }
    text
}

/// Returns the name of a unit of this length, or the length.
fn unit_of(period: Duration) -> String {
    let is_it = |unit: &&Unit| Duration::from_secs(unit.seconds().into()) == period;
    match Unit::ALL.iter().find(is_it) {
        Some(unit) => unit.text().to_owned(),
        None => humantime::format_duration(period).to_string(),
    }
}

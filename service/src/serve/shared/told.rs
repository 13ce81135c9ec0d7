//! The texts about the counts: their place, and the metrics.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use tollgate::AnyRule;
use tollgate_distributed::DistributedLimiter;

use super::settings::Layout;
use super::{SharedCounts, Want, of_unit, store_key};
use crate::serve::counts::UnixTime;
use crate::serve::loaded::Counter;
use crate::serve::pages::told_of;

impl SharedCounts {
    /// Returns the line of a count, and its place.
    pub(in crate::serve) async fn explain(&self, want: Want<'_>, now: UnixTime) -> Option<String> {
        let key = self.key_of(&want, now)?;
        let counted = self.look(want, now).await?;
        let url = self.settings.url.as_ref().map_or(String::new(), ToString::to_string);
        let place = match self.is_away() {
            true => format!("as this process knows: the store {url} does not answer"),
            false => format!("in the store {url}"),
        };
        Some(format!("{}, {place}, under {key:?}", told_of(counted)))
    }

    /// Returns the key of a count in the store.
    fn key_of(&self, want: &Want<'_>, now: UnixTime) -> Option<String> {
        let key = match (self.settings.layout, want.counter) {
            (_, Counter::Unlimited) => return None,
            (Layout::Envoy, counter) => {
                let Counter::Window { unit, .. } = counter else { return None };
                let begin = now.0 - now.0 % u64::from(unit.seconds());
                let key = store_key::of_envoy(want.domain, want.entries, want.shared);
                [self.settings.prefix.as_bytes(), &key, begin.to_string().as_bytes()].concat()
            }
            (_, Counter::Window { unit, .. }) => self.windows(of_unit(*unit))?.store_key(&want.store_key()),
            (_, Counter::Text { limiter, .. }) => match limiter.rule {
                AnyRule::Quota(_) => self.buckets.store_key(&want.store_key()),
                AnyRule::Window(window) => self.windows(window)?.store_key(&want.store_key()),
            },
        };
        Some(String::from_utf8_lossy(&key).into_owned())
    }

    /// Returns the counters in the text format of Prometheus.
    pub(in crate::serve) fn prometheus(&self) -> String {
        let windows = self.windows.read().unwrap_or_else(PoisonError::into_inner);
        let stats = windows.values().map(DistributedLimiter::stats).chain([self.buckets.stats()]);
        let mut sums: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
        for (name, label, count) in stats.flat_map(|stats| stats.series()) {
            let label = label.map_or(String::new(), |(label, value)| format!("{{{label}=\"{value}\"}}"));
            let sum = sums.entry(name).or_default().entry(label).or_default();
            // All limiters have the breakers of one handle.
            let is_of_all = ["tollgate_store_down", "tollgate_store_outages_total"].contains(&name);
            *sum = if is_of_all { count.max(*sum) } else { *sum + count };
        }
        let own = [
            ("tollgate_serve_without_store_total", self.without_store.load(Relaxed)),
            ("tollgate_serve_known_over_total", self.by_known.load(Relaxed)),
            ("tollgate_serve_keys_known", self.known.pin().len() as u64),
            ("tollgate_serve_store_answers_since_timestamp_seconds", self.since.load(Relaxed)),
        ];
        for (name, count) in own {
            sums.entry(name).or_default().insert(String::new(), count);
        }
        let mut text = String::new();
        for (name, counts) in sums {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            let _ = writeln!(text, "# TYPE {name} {kind}");
            for (label, count) in counts {
                let _ = writeln!(text, "{name}{label} {count}");
            }
        }
        text
    }

    /// Returns whether the store does not answer.
    pub(in crate::serve) fn is_away(&self) -> bool {
        self.buckets.is_away()
    }
}

//! Counts that an operator sets to 0.

use std::fmt::Write;

use super::counts::{Counted, LimitCounts, Verb};
use super::decide::Problem;
use super::limiters::CountKey;
use super::loaded::Counter;
use super::messages::{DescriptorEntry, RateLimitRequest};
use super::pages::{asked, told_of};
use super::shared::Want;
use super::state::Service;
use crate::rules::error::bounded;
use crate::rules::explain::explain;
use tollgate_common::past::CountTable;

/// The most bytes of a key or a value in the log.
const MOST_LOGGED: usize = 200;

/// The reason why a count is not cleared.
pub(super) enum NotCleared {
    /// The query is none.
    Query(String),
    /// No limit counts it.
    Absent(String),
    /// The store does not answer, or the count is not its own.
    Refused(String),
}

/// Sets the counts of the descriptors of a query to 0, each under the rule in force. Returns a line
/// for each limit: the count before and after.
pub(super) async fn clear(service: &Service, query: &str) -> Result<String, NotCleared> {
    let (request, entries) = asked(query, "/count").map_err(NotCleared::Query)?;
    let in_force = service.in_force();
    let absent = |why: String| NotCleared::Absent(why);
    let loaded = in_force.loaded.as_ref().ok_or_else(|| absent(Problem::NotLoaded.to_string()))?;
    let RateLimitRequest { domain, descriptors, .. } = &request;
    let mut wanted = Vec::new();
    for descriptor in descriptors {
        let pairs = descriptor.entries.iter().map(|entry| (&*entry.key, &*entry.value));
        let found = loaded.rules.domain(domain).and_then(|domain| domain.find(pairs));
        let Some(limit) = found else { return Err(absent(explain(&loaded.rules, domain, &entries, &[]))) };
        if let Counter::Unlimited = loaded.counter(limit) {
            let at = &limit.at;
            return Err(absent(format!("nothing is counted: the rule at {at} is unlimited")));
        }
        wanted.push((descriptor, limit));
    }
    // All are found, so none is cleared for another that is absent.
    let mut text = String::new();
    for (descriptor, limit) in wanted {
        let key = service.counts.key(domain, &descriptor.entries, &limit.shared);
        let of = |entry: &DescriptorEntry| {
            let [key, value] = [&entry.key, &entry.value].map(|text| bounded(text, MOST_LOGGED));
            format!("({}={})", key.escape_debug(), value.escape_debug())
        };
        let of = descriptor.entries.iter().map(of).collect::<Vec<_>>().join(",");
        for limit in limit.each() {
            let counter = loaded.counter(limit);
            let [before, after] = match &service.shared {
                None => service.counts.clear(counter, key),
                Some(shared) => {
                    let want = || Want::look(counter, key, domain, &descriptor.entries, limit);
                    shared.clear(want, service.counts.now()).await
                }
            }
            .map_err(NotCleared::Refused)?;
            let name = limit.statistics.text();
            let line = format!("{name}: {}; before: {}", told_of(after), told_of(before));
            tracing::info!("a count is cleared, of {of}: {line}");
            let _ = writeln!(text, "{line}");
        }
    }
    Ok(text)
}

impl LimitCounts {
    /// Sets a count to 0. Returns it as it was, and as it is.
    fn clear(&self, counter: &Counter, key: CountKey) -> Result<[Counted; 2], String> {
        let (Counter::Window { state, .. } | Counter::Text { state, .. }) = counter else {
            return Err("nothing is counted".to_owned());
        };
        let look = || {
            let counted = self.count(counter, key, (Verb::Look, 0), self.now());
            counted.ok_or_else(|| "nothing is counted".to_owned())
        };
        let before = look()?;
        if self.key_of(counter, state, key, Verb::Look).key != key {
            return Err(
                "for want of room it shares its count with other keys: --max-keys is more room".to_owned()
            );
        }
        // A key that a save holds up is in a home that it has left as well.
        let homes = state.past.left().into_iter().map(|left| left.home).chain(self.home(counter));
        homes.for_each(|home| home.forget(&key));
        Ok([before, look()?])
    }
}

//! A decision as logs have it: the lines of this service.

use super::decide::Decision;
use super::messages::{DescriptorEntry, DescriptorStatus};
use crate::rules::tree::Unit;

/// The most characters of a value in the log.
const MOST_LOGGED: usize = 200;

impl Decision<'_> {
    /// Writes the descriptors and their statuses into the log.
    #[cold]
    pub(super) fn log(&self, statuses: &[DescriptorStatus]) {
        for (descriptor, status) in self.request.descriptors.iter().zip(statuses) {
            let entry = |entry: &DescriptorEntry| {
                let value: String = entry.value.chars().take(MOST_LOGGED).collect();
                format!("({}={})", entry.key.escape_debug(), value.escape_debug())
            };
            let entries = descriptor.entries.iter().map(entry).collect::<Vec<_>>().join(",");
            let left = status.limit_remaining;
            let limit = status.current_limit.as_ref().map_or("no limit".to_owned(), |limit| {
                let unit = Unit::from_wire(limit.unit).map_or("", Unit::text);
                format!("{left} left of {} each {unit}", limit.requests_per_unit)
            });
            let (code, domain) = (status.code(), self.request.domain.escape_debug());
            tracing::debug!("{domain}: descriptor {entries}: {code:?}, {limit}");
        }
    }
}

//! A decision as logs have it: the lines of this service, and the fields for those of proxies.

use std::collections::BTreeMap;

use super::counts::LimitCounts;
use super::decide::{Decision, DecisionOptions};
use super::loaded::LoadedRules;
use super::messages::{
    Code, DescriptorEntry, DescriptorStatus, RateLimitRequest, RateLimitResponse, Struct, Value, ValueKind,
};
use super::status;
use crate::rules::tree::{RuleLimit, Unit};

/// The most characters of a value in the log.
const MOST_LOGGED: usize = 200;
/// The begin of the names of the headers.
const HEADER: &str = "x-tollgate-";

/// The fields of a decision: their names, and their values.
type LoggedFields = Vec<(&'static str, String)>;

/// Returns the headers for the log of a proxy that asked over HTTP: their names, and their values
/// in printable ASCII.
#[cold]
pub(super) fn headers(
    loaded: &LoadedRules,
    counts: &LimitCounts,
    request: &RateLimitRequest,
    answer: &RateLimitResponse,
) -> Vec<(String, String)> {
    let (options, code) = (DecisionOptions::default(), answer.overall_code());
    // A request that is refused unread has no statuses.
    let decision = match answer.statuses.is_empty() {
        true => None,
        false => Decision::new(loaded, counts, &options, request, counts.now()).ok(),
    };
    let fields = match decision {
        Some(decision) => decision.fields(&answer.statuses, code),
        None => vec![told(code)],
    };
    let printable = |text: String| text.chars().filter(|c| matches!(c, ' '..='~')).collect();
    fields.into_iter().map(|(name, text)| (format!("{HEADER}{name}"), printable(text))).collect()
}

/// Returns the field of the decision itself.
fn told(code: Code) -> (&'static str, String) {
    ("decision", if code == Code::OverLimit { "over" } else { "ok" }.to_owned())
}

impl Decision<'_> {
    /// Returns the metadata of an answer. A log may print a field of it.
    #[cold]
    #[inline(never)]
    pub(super) fn metadata(
        &self,
        passed: BTreeMap<String, Value>,
        statuses: &[DescriptorStatus],
        overall: Code,
    ) -> Struct {
        let mut metadata = match self.options.tells_metadata {
            true => status::metadata(self.request, passed),
            false => Struct::default(),
        };
        let fields =
            if self.options.tells_decision { self.fields(statuses, overall) } else { LoggedFields::new() };
        metadata
            .fields
            .extend(fields.into_iter().map(|(name, text)| (name.to_owned(), ValueKind::Text(text).into())));
        metadata
    }

    /// Returns the decision, the name of the limit that decided, and a digest of its key. None has
    /// a value of the client. Without a limit there is the decision alone.
    fn fields(&self, statuses: &[DescriptorStatus], overall: Code) -> LoggedFields {
        let mut fields = vec![told(overall)];
        fields.extend(self.decisive(statuses, overall).into_iter().flatten());
        fields
    }

    fn decisive(&self, statuses: &[DescriptorStatus], overall: Code) -> Option<[(&'static str, String); 2]> {
        let (chosen, told, _) = status::chosen(statuses, overall == Code::OverLimit)?;
        let place = statuses.iter().position(|status| std::ptr::eq(status, chosen))?;
        let descriptor = self.request.descriptors.get(place)?;
        let found = self.find(descriptor, &self.replaced())?;
        let tells = |limit: &&RuleLimit| {
            let (requests_per_unit, unit) = self.loaded.counter(limit).current_limit();
            (requests_per_unit, unit.wire()) == (told.requests_per_unit, told.unit)
        };
        let name = match found.rule {
            None => {
                // An override has no other name than its keys.
                let keys = descriptor.entries.iter().map(|entry| (&*entry.key, ""));
                status::name(&self.request.domain, keys)
            }
            Some(rule) => {
                let mut of_list = rule.each().filter(tells);
                match (of_list.next(), of_list.next()) {
                    (Some(limit), None) => limit.statistics.text().to_owned(),
                    // The status does not tell limits of one number and unit apart.
                    _ => rule.name_of_list().to_owned(),
                }
            }
        };
        Some([("limit", name), ("key", self.counts.digest(&found.key))])
    }

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

//! The decision on a request: each descriptor finds its limit, and its hits are counted.
//!
//! Beside the messages a decision allocates only for `replaces`, for names of statistics that have
//! values of the request, and where counting stops at a refusal.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use tracing::Level;

use super::counts::{Counted, LimitCounts, UnixTime, Verb};
use super::limiters::CountKey;
use super::loaded::{Counter, LoadedRules};
use super::messages::{
    Code, DescriptorStatus, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, Value,
};
use super::statistics::Numbers;
use super::status::{self, HeaderNames};
use crate::rules::tree::{Amount, Domain, RuleLimit, Unit};

/// The part of the settings that decides about answers. It is read again at each reload.
#[derive(Clone, Debug)]
pub struct DecisionOptions {
    /// The share of a limit from which hits are counted as near it.
    pub near_limit_ratio: f32,
    /// If any descriptor would be over its limit, only those that would be add their hits.
    pub stops_when_over: bool,
    /// The names of the headers; `None` for an answer without.
    pub headers: Option<HeaderNames>,
    /// The whole answer is OK, whatever the statuses tell.
    pub is_shadow: bool,
    /// Each limit is a quota.
    pub is_quota: bool,
    pub tells_metadata: bool,
    /// The metadata has the decision as access logs print it.
    pub tells_decision: bool,
    /// The most seconds by which the wait of a refusal is longer. Each key has a share of its own.
    pub spread: u64,
}

impl Default for DecisionOptions {
    fn default() -> DecisionOptions {
        DecisionOptions {
            near_limit_ratio: 0.8,
            stops_when_over: false,
            headers: None,
            is_shadow: false,
            is_quota: false,
            tells_metadata: false,
            tells_decision: false,
            spread: 0,
        }
    }
}

/// The reason why a request has no decision: the status UNKNOWN of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    NoDomain,
    NoDescriptors,
    /// The caller of [`decide`] finds it: there are no rules yet.
    NotLoaded,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Problem::NoDomain => "rate limit domain must not be empty",
            Problem::NoDescriptors => "rate limit descriptor list must not be empty",
            Problem::NotLoaded => "no rate limit configuration loaded",
        })
    }
}

/// Decides on a request, and counts its hits in this process.
///
/// # Errors
///
/// A [`Problem`] of the request itself, which is counted.
pub fn decide(
    loaded: &LoadedRules,
    counts: &LimitCounts,
    options: &DecisionOptions,
    request: &RateLimitRequest,
    now: UnixTime,
) -> Result<RateLimitResponse, Problem> {
    Ok(Decision::new(loaded, counts, options, request, now)?.answer())
}

/// A request with all that decides about it.
pub(super) struct Decision<'a> {
    pub(super) loaded: &'a LoadedRules,
    pub(super) counts: &'a LimitCounts,
    pub(super) options: &'a DecisionOptions,
    pub(super) request: &'a RateLimitRequest,
    domain: Option<&'a Domain>,
    pub(super) now: UnixTime,
}

/// The statuses of a request so far.
#[derive(Default)]
pub(super) struct Answering {
    statuses: Vec<DescriptorStatus>,
    overall: Overall,
    /// The metadata of the limits that passed.
    passed: BTreeMap<String, Value>,
}

/// The limit of a descriptor.
#[derive(Clone)]
pub(super) struct Found<'a> {
    /// `None` for an override.
    pub(super) rule: Option<&'a RuleLimit>,
    pub(super) counter: Cow<'a, Counter>,
    pub(super) key: CountKey,
    pub(super) hits: u64,
    pub(super) is_negative: bool,
    /// An override that shares no count with a rule.
    pub(super) is_own_override: bool,
}

/// The result of all statuses.
#[derive(Default)]
struct Overall {
    is_refused: bool,
    quotas: usize,
    quotas_over: usize,
}

impl<'a> Decision<'a> {
    #[inline(always)]
    pub(super) fn new(
        loaded: &'a LoadedRules,
        counts: &'a LimitCounts,
        options: &'a DecisionOptions,
        request: &'a RateLimitRequest,
        now: UnixTime,
    ) -> Result<Decision<'a>, Problem> {
        let problem = match request {
            RateLimitRequest { domain, .. } if domain.is_empty() => Some(Problem::NoDomain),
            RateLimitRequest { descriptors, .. } if descriptors.is_empty() => Some(Problem::NoDescriptors),
            _ => None,
        };
        if let Some(problem) = problem {
            counts.statistics.service_error();
            return Err(problem);
        }
        let domain = loaded.rules.domain(&request.domain);
        if domain.is_none() {
            counts.statistics.domain_not_found(&request.domain);
        }
        Ok(Decision { loaded, counts, options, request, domain, now })
    }

    #[inline(always)]
    fn answer(&self) -> RateLimitResponse {
        let replaced = self.replaced();
        let adds = match self.options.stops_when_over {
            true => self.adding(self.would_be_over(&replaced)),
            false => None,
        };
        let mut answering = Answering::of(self.request);
        let mut limits = 0;
        for descriptor in &self.request.descriptors {
            let found = self.find(descriptor, &replaced);
            let is_added = adds.as_ref().is_none_or(|adds| adds[limits]);
            limits += 1;
            let counted = found.as_ref().and_then(|found| self.count(found, found.verb(is_added)));
            match &found {
                Some(first) if first.is_of_list() => {
                    let adds = adds.as_ref().map(|adds| &adds[limits..]);
                    limits += self.answer_list(descriptor, (first, counted), adds, &mut answering);
                }
                found => self.add_status(descriptor, found.as_ref(), counted, &[], &mut answering),
            }
        }
        self.end(answering)
    }

    /// Adds the status of a descriptor. `more` has the further limits of a list.
    #[inline(always)]
    pub(super) fn add_status(
        &self,
        descriptor: &RateLimitDescriptor,
        found: Option<&Found<'_>>,
        counted: Option<Counted>,
        more: &[(&Found<'_>, Option<Counted>)],
        answering: &mut Answering,
    ) {
        let Answering { statuses, overall, passed } = answering;
        let Some(found) = found else {
            self.without_limit(descriptor);
            overall.add(Code::Ok, self.options.is_quota);
            return statuses.push(status::without_limit(0));
        };
        let status = match counted {
            None => status::without_limit(u32::MAX),
            Some(counted) => {
                let first = self.status(descriptor, found, &counted);
                let status = if more.is_empty() { first } else { self.tightest(descriptor, first, more) };
                let is_quota = found.rule.is_some_and(|rule| rule.quota);
                overall.add(status.code(), is_quota || self.options.is_quota);
                status
            }
        };
        if let Some(metadata) = found.rule.and_then(|rule| rule.metadata.as_deref())
            && self.options.tells_metadata
            && status.code() == Code::Ok
        {
            status::merge(passed, metadata);
        }
        statuses.push(status);
    }

    #[inline(always)]
    pub(super) fn end(&self, Answering { statuses, overall, passed }: Answering) -> RateLimitResponse {
        if tracing::enabled!(Level::DEBUG) {
            self.log(&statuses);
        }
        let (names, overall) = (self.options.headers.as_ref(), self.overall(&overall));
        let tells_metadata = self.options.tells_metadata | self.options.tells_decision;
        RateLimitResponse {
            overall_code: overall.into(),
            response_headers_to_add: names.map_or(Vec::new(), |names| status::headers(names, &statuses)),
            dynamic_metadata: tells_metadata.then(|| self.metadata(passed, &statuses, overall)),
            statuses,
        }
    }

    fn overall(&self, overall: &Overall) -> Code {
        let all_quotas = overall.quotas > 0 && overall.quotas == overall.quotas_over;
        match (overall.is_refused || all_quotas, self.options.is_shadow) {
            (false, _) => Code::Ok,
            (true, false) => Code::OverLimit,
            (true, true) => {
                self.counts.statistics.global_shadow();
                Code::Ok
            }
        }
    }

    /// Counts a descriptor that no rule matches. A value without a limit is no such descriptor.
    #[cold]
    fn without_limit(&self, descriptor: &RateLimitDescriptor) {
        let entries = || descriptor.entries.iter().map(|entry| (&*entry.key, &*entry.value));
        let is_override = || override_of(descriptor).is_some();
        if let Some(domain) = self.domain
            && !is_override()
            && domain.find(entries()).is_none()
            && !domain.exempts(entries())
        {
            let keys = entries().map(|(key, _)| key);
            self.counts.statistics.unmatched(&self.request.domain, keys);
        }
    }

    /// Returns the rule of a descriptor, also if another one replaces it.
    pub(super) fn rule(&self, descriptor: &RateLimitDescriptor) -> Option<&'a RuleLimit> {
        let entries = descriptor.entries.iter().map(|entry| (&*entry.key, &*entry.value));
        self.domain?.find(entries).map(|limit| &**limit)
    }

    /// Returns the names that the limits of this request replace.
    #[inline(always)]
    pub(super) fn replaced(&self) -> Vec<&'a str> {
        if self.loaded.has_replaces { self.names_replaced() } else { Vec::new() }
    }

    #[cold]
    fn names_replaced(&self) -> Vec<&'a str> {
        let rules = self.request.descriptors.iter().filter(|each| override_of(each).is_none());
        let replaces = rules.filter_map(|each| self.rule(each)).flat_map(|rule| &rule.replaces);
        replaces.map(|name| &**name).collect()
    }

    /// Returns whether each descriptor adds its hits, if counting stops at a refusal and there is
    /// one.
    pub(super) fn adding(&self, over: Vec<bool>) -> Option<Vec<bool>> {
        over.contains(&true).then_some(over)
    }

    fn would_be_over(&self, replaced: &[&str]) -> Vec<bool> {
        let is_over = |found: &Found<'_>| {
            let counted = || self.count(found, (Verb::Look, found.hits));
            !found.is_negative && counted().is_some_and(|counted| counted.is_over)
        };
        let mut over = Vec::new();
        for descriptor in &self.request.descriptors {
            let found = self.find(descriptor, replaced);
            over.push(found.as_ref().is_some_and(is_over));
            over.extend(self.further(found.as_ref()).map(|further| is_over(&further)));
        }
        over
    }

    /// Returns the limit of a descriptor: its override, or its rule.
    #[inline(always)]
    pub(super) fn find(&self, descriptor: &'a RateLimitDescriptor, replaced: &[&str]) -> Option<Found<'a>> {
        self.domain?;
        let hits = descriptor.hits_addend.unwrap_or_else(|| self.request.hits_addend.max(1).into());
        let (rule, counter, shared) = match override_of(descriptor) {
            Some(amount) => return Some(self.find_override(descriptor, &amount, hits)),
            None => {
                let rule = self.rule(descriptor)?;
                let counter = self.loaded.counter(rule);
                let is_replaced = rule.name.as_deref().is_some_and(|name| replaced.contains(&name));
                if is_replaced && !matches!(counter, Counter::Unlimited) {
                    return None;
                }
                (Some(rule), Cow::Borrowed(counter), &*rule.shared)
            }
        };
        let key = match *counter {
            Counter::Unlimited => CountKey::default(),
            _ => self.counts.key(&self.request.domain, &descriptor.entries, shared),
        };
        let is_negative = descriptor.is_negative_hits;
        Some(Found { rule, counter, key, hits, is_negative, is_own_override: false })
    }

    /// Returns the limit of an override, which shares the count of its rule if both count in the
    /// same table. Else it has a count of its own, which no reload of the rule takes along.
    fn find_override(&self, descriptor: &'a RateLimitDescriptor, amount: &Amount, hits: u64) -> Found<'a> {
        let mut counter = self.counts.counter_of(amount);
        let rule = self.rule(descriptor);
        let shared = rule.map_or(&[][..], RuleLimit::shared_by_override);
        let key = self.counts.key(&self.request.domain, &descriptor.entries, shared);
        let rule = rule.filter(|rule| !rule.shares_threshold());
        let is_shared = rule.is_some_and(|rule| counter.share(self.loaded.counter(rule)));
        let key = if is_shared { key } else { key.map(|byte| !byte) };
        let is_negative = descriptor.is_negative_hits;
        Found {
            rule: None,
            counter: Cow::Owned(counter),
            key,
            hits,
            is_negative,
            is_own_override: !is_shared,
        }
    }

    #[inline(always)]
    pub(super) fn count(&self, found: &Found<'_>, verb: (Verb, u64)) -> Option<Counted> {
        self.counts.count(&found.counter, found.key, verb, self.now)
    }

    /// Returns the status of a descriptor whose hits are counted.
    #[inline(always)]
    pub(super) fn status(
        &self,
        descriptor: &RateLimitDescriptor,
        found: &Found<'_>,
        counted: &Counted,
    ) -> DescriptorStatus {
        let Found { rule, ref counter, is_negative, .. } = *found;
        let is_shadow = rule.is_some_and(|rule| rule.shadow);
        let is_over = counted.is_over && !is_negative;
        self.record(descriptor, found, counted, is_shadow);
        let code = if is_over && !is_shadow { Code::OverLimit } else { Code::Ok };
        let spread;
        let counted = match (code, self.options.spread) {
            (Code::OverLimit, most @ 1..) => {
                spread = counted.later(found.key, most);
                &spread
            }
            _ => counted,
        };
        status::counted(counted, code, counter.current_limit(), rule.and_then(|rule| rule.name.as_deref()))
    }

    /// Counts the hits of a descriptor in the statistics of its limit.
    pub(super) fn record(
        &self,
        descriptor: &RateLimitDescriptor,
        found: &Found<'_>,
        counted: &Counted,
        is_shadow: bool,
    ) {
        // In the arithmetic of the reference, rounded down.
        let near = (counted.limit as f32 * self.options.near_limit_ratio) as u64;
        let count = |numbers: &Numbers| {
            if found.is_negative {
                return numbers.given_back(found.hits);
            }
            numbers.asked(found.hits);
            match counted.is_over {
                true => numbers.over(counted.hits, counted.limit, near, is_shadow),
                false => numbers.within(found.hits, counted.hits.after, near),
            }
        };
        let entries = || descriptor.entries.iter().map(|entry| (&*entry.key, &*entry.value));
        match found.rule.map(|rule| (rule, self.loaded.numbers(rule))) {
            Some((_, Some(numbers))) => count(numbers),
            Some((rule, None)) => count(&self.counts.statistics.numbers(&rule.statistics.of(entries()))),
            None => count(&self.counts.statistics.numbers(&status::name(&self.request.domain, entries()))),
        }
    }
}

impl Found<'_> {
    /// Returns the use of the hits. Those that are not added are looked at: none of them counts.
    #[inline]
    pub(super) fn verb(&self, is_added: bool) -> (Verb, u64) {
        match (self.is_negative, is_added) {
            (true, _) => (Verb::GiveBack, self.hits),
            (false, true) => (Verb::Add, self.hits),
            (false, false) => (Verb::Look, 0),
        }
    }
}

impl Answering {
    #[inline(always)]
    pub(super) fn of(request: &RateLimitRequest) -> Answering {
        Answering { statuses: Vec::with_capacity(request.descriptors.len()), ..Answering::default() }
    }
}

impl Overall {
    #[inline]
    fn add(&mut self, code: Code, is_quota: bool) {
        let is_over = code == Code::OverLimit;
        self.is_refused |= is_over && !is_quota;
        self.quotas += usize::from(is_quota);
        self.quotas_over += usize::from(is_quota && is_over);
    }
}

/// Returns the override of a descriptor, unless its unit is none.
#[inline]
fn override_of(descriptor: &RateLimitDescriptor) -> Option<Amount> {
    let limit = descriptor.limit.as_ref()?;
    Some(Amount::Window { unit: Unit::from_wire(limit.unit)?, requests: limit.requests_per_unit })
}

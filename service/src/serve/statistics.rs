//! The counters of the service: of each limit, of each call, and of each load.
//!
//! A limit has its counters at hand. Names that come from requests are looked up in a map of at
//! most [`MAX_NAMES`] and [`MAX_BYTES`], each of at most [`MAX_LENGTH`] bytes: hits beyond it are
//! counted under `other`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use super::limiters::Hits;
use crate::rules::error::beginning;
use crate::rules::tree::MAX_NAME;

/// The most names that requests make, of limits and of domains each.
const MAX_NAMES: usize = 10_000;
/// The most lists of keys that no rule matches.
const MAX_UNMATCHED: usize = 1_000;
/// The most bytes of a name that a request makes: a client chooses the length of its values.
const MAX_LENGTH: usize = MAX_NAME;
/// The most bytes of such names together: each name is told six times.
const MAX_BYTES: usize = 1 << 20;
/// The name of all hits, domains and keys beyond these bounds.
const OTHER: &str = "other";
/// The names of the labels of all metrics.
pub(super) const OWN_LABELS: [&str; 12] = [
    "domain",
    "key1",
    "key2",
    "key3",
    "keys",
    "err_type",
    "grpc_method",
    "le",
    "unit",
    "outcome",
    "reason",
    "version",
];
/// The upper bounds of the response times that are told, in microseconds.
const TIMES: [u64; 8] = [50, 100, 250, 500, 1_000, 5_000, 20_000, 100_000];

/// The counters of a limit. They are in one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Numbers {
    total: AtomicU64,
    over: AtomicU64,
    near: AtomicU64,
    within: AtomicU64,
    shadow: AtomicU64,
    negative: AtomicU64,
}

impl Numbers {
    /// Returns each counter with its name.
    fn rows(&self) -> [(&'static str, u64); 6] {
        [
            ("total_hits", &self.total),
            ("over_limit", &self.over),
            ("near_limit", &self.near),
            ("within_limit", &self.within),
            ("shadow_mode", &self.shadow),
            ("total_negative_hits", &self.negative),
        ]
        .map(|(name, count)| (name, count.load(Relaxed)))
    }

    /// Counts the hits that a request asked for.
    pub(super) fn asked(&self, hits: u64) {
        self.total.fetch_add(hits, Relaxed);
    }

    /// Counts hits that were given back.
    pub(super) fn given_back(&self, hits: u64) {
        self.negative.fetch_add(hits, Relaxed);
    }

    /// Counts hits that are within the limit, also those that passed without being added. Hits
    /// above `near` are near it as well.
    pub(super) fn within(&self, hits: u64, after: u64, near: u64) {
        self.within.fetch_add(hits, Relaxed);
        self.near.fetch_add(hits.min(after.saturating_sub(near)), Relaxed);
    }

    /// Counts hits of which some are over the limit.
    pub(super) fn over(&self, Hits { before, after }: Hits, limit: u64, near: u64, is_shadow: bool) {
        let over = after - limit.max(before);
        self.over.fetch_add(over, Relaxed);
        if before < limit {
            self.near.fetch_add(limit.saturating_sub(near.max(before)), Relaxed);
        }
        if is_shadow {
            self.shadow.fetch_add(over, Relaxed);
        }
    }
}

type ByName = HashMap<Box<str>, Arc<Numbers>>;

/// The descriptors of a domain with the same keys, which no rule matched.
#[derive(Default)]
struct Unmatched {
    domain: Box<str>,
    keys: Box<str>,
    count: AtomicU64,
    /// The log has a line about them since the last load.
    is_told: AtomicBool,
}

/// All counters of the process.
#[derive(Default)]
pub struct Statistics {
    /// The names of the present rules.
    of_rules: RwLock<ByName>,
    /// The names that requests made.
    of_requests: RwLock<ByName>,
    /// The bytes of those names.
    name_bytes: AtomicUsize,
    /// The requests that were counted under `other`.
    left_out: AtomicU64,
    unknown_domains: Mutex<HashMap<Box<str>, u64>>,
    /// By the hash of the domain and the keys.
    unmatched: RwLock<HashMap<u64, Unmatched>>,
    hasher: RandomState,
    domain_bytes: AtomicUsize,
    loads: AtomicU64,
    load_errors: AtomicU64,
    global_shadow: AtomicU64,
    service_errors: AtomicU64,
    /// The response times up to each bound, and the longer ones.
    times: [AtomicU64; TIMES.len() + 1],
    /// In nanoseconds.
    total_time: AtomicU64,
}

impl Statistics {
    /// Counts a configuration that was loaded.
    pub fn config_loaded(&self) {
        self.loads.fetch_add(1, Relaxed);
    }

    /// Counts a configuration that was refused.
    pub fn config_refused(&self) {
        self.load_errors.fetch_add(1, Relaxed);
    }

    /// Counts a request that was answered by an error.
    pub fn service_error(&self) {
        self.service_errors.fetch_add(1, Relaxed);
    }

    /// Counts a call of ShouldRateLimit, which took this time.
    pub fn call(&self, took: Duration) {
        let micros = took.as_micros();
        let slot = TIMES.iter().position(|bound| micros <= u128::from(*bound)).unwrap_or(TIMES.len());
        self.times[slot].fetch_add(1, Relaxed);
        self.total_time.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Counts a refusal that the shadow mode of the service overruled.
    pub(super) fn global_shadow(&self) {
        self.global_shadow.fetch_add(1, Relaxed);
    }

    /// Counts a request in a domain that is not known. The first one of a domain is told.
    pub(super) fn domain_not_found(&self, domain: &str) {
        let domain = sanitized(domain);
        let domain = cut(&domain);
        let mut domains = self.unknown_domains.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = domains.contains_key(domain);
        let has_room = is_known || has_room(domains.len(), &self.domain_bytes, domain);
        let count = domains.entry(if has_room { domain } else { OTHER }.into()).or_default();
        *count += 1;
        if *count == 1 {
            tracing::warn!("no configuration has the domain {domain:?}, so its requests have no limit");
        }
    }

    /// Counts a descriptor of these keys that no rule matches. The first one since a load is told.
    pub(super) fn unmatched<'k>(&self, domain: &str, keys: impl Iterator<Item = &'k str> + Clone) {
        let mut hasher = self.hasher.build_hasher();
        domain.hash(&mut hasher);
        keys.clone().for_each(|key| key.hash(&mut hasher));
        let id = hasher.finish();
        if self.count_unmatched(id) {
            return;
        }
        let mut all = self.unmatched.write().unwrap_or_else(PoisonError::into_inner);
        let (id, domain, keys) = match all.len() < MAX_UNMATCHED {
            true => (id, domain, keys.collect::<Vec<_>>().join(",")),
            false => (0, OTHER, String::new()),
        };
        let (domain, keys) = (cut(domain).into(), cut(&keys).into());
        all.entry(id).or_insert_with(|| Unmatched { domain, keys, ..Unmatched::default() });
        drop(all);
        self.count_unmatched(id);
    }

    /// Counts one, if its keys are known, and returns whether they are.
    fn count_unmatched(&self, id: u64) -> bool {
        let all = self.unmatched.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Unmatched { domain, keys, count, is_told }) = all.get(&id) else { return false };
        count.fetch_add(1, Relaxed);
        if !is_told.load(Relaxed) && !is_told.swap(true, Relaxed) {
            tracing::info!(
                "no rule of the domain {domain:?} matches a descriptor of the keys {keys:?}, so it has no limit: \
                 /explain and `tollgate explain` have the reason"
            );
        }
        true
    }

    /// Makes the counters of rules, and keeps those of names that are known. Counters of other
    /// rules are forgotten.
    pub(super) fn name_rules(&self, names: &[Option<String>]) -> Box<[Option<Arc<Numbers>>]> {
        let mut rules = self.of_rules.write().unwrap_or_else(PoisonError::into_inner);
        let mut requests = self.of_requests.write().unwrap_or_else(PoisonError::into_inner);
        let unmatched = self.unmatched.read().unwrap_or_else(PoisonError::into_inner);
        unmatched.values().for_each(|each| each.is_told.store(false, Relaxed));
        let mut known = std::mem::take(&mut *rules);
        let mut of_request = |name: &str| {
            let numbers = requests.remove(name)?;
            self.name_bytes.fetch_sub(name.len(), Relaxed);
            Some(numbers)
        };
        let mut of_rule = |name: &String| {
            let name: Box<str> = sanitized(name).into();
            let numbers = rules
                .entry(name.clone())
                .or_insert_with(|| known.remove(&name).or_else(|| of_request(&name)).unwrap_or_default());
            Arc::clone(numbers)
        };
        names.iter().map(|name| name.as_ref().map(&mut of_rule)).collect()
    }

    /// Returns the counters of a name that a request made.
    pub(super) fn numbers(&self, name: &str) -> Arc<Numbers> {
        let name = sanitized(name);
        let find = |names: &RwLock<ByName>, name: &str| {
            names.read().unwrap_or_else(PoisonError::into_inner).get(name).map(Arc::clone)
        };
        // The names of rules have the length that the configuration gives them.
        let of_request = || find(&self.of_requests, cut(&name)).unwrap_or_else(|| self.add(cut(&name)));
        find(&self.of_rules, &name).unwrap_or_else(of_request)
    }

    #[cold]
    pub(super) fn add(&self, name: &str) -> Arc<Numbers> {
        // A load that has named a rule since the lookup is seen here. It takes the locks in this
        // order as well.
        let rules = self.of_rules.read().unwrap_or_else(PoisonError::into_inner);
        let mut names = self.of_requests.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = rules.get(name) {
            return Arc::clone(known);
        }
        let is_full = !names.contains_key(name) && !has_room(names.len(), &self.name_bytes, name);
        self.left_out.fetch_add(is_full.into(), Relaxed);
        if is_full && !names.contains_key(OTHER) {
            tracing::warn!(
                "requests made {} names of statistics: further ones are counted as `{OTHER}`",
                names.len()
            );
        }
        Arc::clone(names.entry(if is_full { OTHER } else { name }.into()).or_default())
    }

    /// Calls a function for each name with its counters, in the order of the names.
    fn each_name(&self, mut tell: impl FnMut(&str, &Numbers)) {
        let rules = self.of_rules.read().unwrap_or_else(PoisonError::into_inner);
        let requests = self.of_requests.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = rules.iter().chain(&*requests).collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all.into_iter().for_each(|(name, numbers)| tell(name, numbers));
    }

    /// Returns the lines of `/stats`.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, count: u64| {
            let _ = writeln!(text, "ratelimit.service.{name}: {count}");
        };
        line("call.should_rate_limit.service_error", self.service_errors.load(Relaxed));
        line("config_load_error", self.load_errors.load(Relaxed));
        line("config_load_success", self.loads.load(Relaxed));
        line("global_shadow_mode", self.global_shadow.load(Relaxed));
        self.each_name(|name, numbers| {
            for (row, count) in numbers.rows() {
                line(&format!("rate_limit.{name}.{row}"), count);
            }
        });
        for (domain, count) in self.unknown_domains.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            line(&format!("rate_limit.{domain}.domain_not_found"), *count);
        }
        text
    }

    /// Returns the counters in the text format of Prometheus, with the names of the reference.
    /// Response times are in seconds or, as the reference can be told, in milliseconds.
    pub fn prometheus(&self, in_milliseconds: bool) -> String {
        let mut text = String::new();
        for (index, (row, _)) in Numbers::default().rows().into_iter().enumerate() {
            let metric = format!("ratelimit_service_rate_limit_{row}");
            let _ = writeln!(text, "# TYPE {metric} counter");
            self.each_name(|name, numbers| {
                let count = numbers.rows()[index].1;
                let _ = writeln!(text, "{metric}{{{}}} {count}", labels(name));
            });
        }
        let errors = "ratelimit_service_should_rate_limit_error";
        for (name, labels, count) in [
            ("ratelimit_service_config_load_success", "", &self.loads),
            ("ratelimit_service_config_load_error", "", &self.load_errors),
            ("ratelimit_service_global_shadow_mode", "", &self.global_shadow),
            (errors, "{err_type=\"service_error\"}", &self.service_errors),
            ("tollgate_serve_names_left_out_total", "", &self.left_out),
        ] {
            let _ = writeln!(text, "# TYPE {name} counter\n{name}{labels} {}", count.load(Relaxed));
        }
        self.unmatched_lines(&mut text);
        self.times(&mut text, if in_milliseconds { 1e3 } else { 1e6 });
        text
    }

    /// Appends the requests without a limit: in unknown domains, and by the keys of descriptors.
    fn unmatched_lines(&self, text: &mut String) {
        let name = "tollgate_serve_unmatched_total";
        let _ = writeln!(text, "# TYPE {name} counter");
        let mut line = |domain: &str, keys: &str, count: u64| {
            let _ = writeln!(text, "{name}{{domain={},keys={}}} {count}", quoted(domain), quoted(keys));
        };
        for (domain, count) in self.unknown_domains.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            line(domain, "", *count);
        }
        for each in self.unmatched.read().unwrap_or_else(PoisonError::into_inner).values() {
            line(&each.domain, &each.keys, each.count.load(Relaxed));
        }
    }

    /// Appends the number of calls and their times.
    fn times(&self, text: &mut String, micros: f64) {
        const METHOD: &str = "grpc_method=\"ShouldRateLimit\"";
        let (calls, times) = ("ratelimit_service_total_requests", "ratelimit_service_response_time_seconds");
        let _ = writeln!(text, "# TYPE {times} histogram");
        let mut sum = 0;
        for (slot, count) in self.times.iter().enumerate() {
            sum += count.load(Relaxed);
            let bound =
                TIMES.get(slot).map_or("+Inf".to_owned(), |bound| (*bound as f64 / micros).to_string());
            let _ = writeln!(text, "{times}_bucket{{{METHOD},le=\"{bound}\"}} {sum}");
        }
        let total = self.total_time.load(Relaxed) as f64 / (1e3 * micros);
        let _ = writeln!(text, "{times}_sum{{{METHOD}}} {total}\n{times}_count{{{METHOD}}} {sum}");
        let _ = writeln!(text, "# TYPE {calls} counter\n{calls}{{{METHOD}}} {sum}");
    }
}

/// Returns whether there is room for one more name, and takes it. A lock is held meanwhile.
fn has_room(names: usize, bytes: &AtomicUsize, name: &str) -> bool {
    let has_room = names < MAX_NAMES && bytes.load(Relaxed) + name.len() <= MAX_BYTES;
    bytes.fetch_add(if has_room { name.len() } else { 0 }, Relaxed);
    has_room
}

/// Returns the labels of the name of a limit.
pub(super) fn labels_of(name: &str) -> String {
    labels(&sanitized(name))
}

/// Returns the labels of a name: its domain, its first two levels, and the levels below.
fn labels(name: &str) -> String {
    let parts = name.splitn(4, '.').zip(["domain", "key1", "key2", "key3"]);
    parts.map(|(part, label)| format!("{label}={}", quoted(part))).collect::<Vec<_>>().join(",")
}

/// Returns the value of a label in its quotes.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// Returns the beginning of a name.
fn cut(name: &str) -> &str {
    beginning(name, MAX_LENGTH)
}

/// Returns a name without the characters that mean something in a line: `:` and `|` become `_`, and
/// so do the dots of addresses of IPv4.
fn sanitized(name: &str) -> Cow<'_, str> {
    let has_address =
        || name.split('.').filter(|part| part.ends_with(digit) || part.starts_with(digit)).count() > 3;
    if !name.contains([':', '|', '\n', '\r']) && !has_address() {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(next) = rest.chars().next() {
        if let Some(address) = address_at(rest).filter(|_| !text.ends_with(digit)) {
            text.push_str(&rest[..address].replace('.', "_"));
            rest = &rest[address..];
            continue;
        }
        text.push(if matches!(next, ':' | '|' | '\n' | '\r') { '_' } else { next });
        rest = &rest[next.len_utf8()..];
    }
    Cow::Owned(text)
}

fn digit(letter: char) -> bool {
    letter.is_ascii_digit()
}

/// Returns the length of the address of IPv4 that a text begins with: four numbers with dots.
fn address_at(text: &str) -> Option<usize> {
    let mut end = 0;
    for number in 0..4 {
        let rest = if number == 0 { text } else { text[end..].strip_prefix('.')? };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        end = text.len() - rest.len() + digits;
    }
    Some(end)
}

//! The texts of the debug pages.

use std::fmt::Write;

use super::counts::{CountOptions, Counted, LimitCounts, Verb};
use super::decide::Problem;
use super::limit_gauge;
use super::loaded::LoadedRules;
use super::messages::{DescriptorEntry, RateLimitDescriptor, RateLimitRequest, text_of};
use super::settings::ServeSettings;
use super::shared::{SharedCounts, Want};
use super::state::{Service, check};
use crate::rules::explain::{entries, explain};
use crate::rules::tree::{Amount, RuleLimit, Rules};
use tollgate_common::paths::decoded;

/// The entries of each descriptor.
type Descriptors = Vec<Vec<(String, String)>>;

/// Returns all counters in the text format of Prometheus.
pub(super) fn metrics(service: &Service) -> String {
    let mut text = service.counts.prometheus(service.in_force().settings.in_milliseconds);
    let name = "tollgate_serve_connections_closed_total";
    let _ = writeln!(text, "# TYPE {name} counter");
    for (reason, count) in service.closed_by_name() {
        let _ = writeln!(text, "{name}{{reason=\"{reason}\"}} {count}");
    }
    if let Some(shared) = &service.shared {
        text.push_str(&shared.prometheus());
    }
    if let Some(plane) = &service.control_plane {
        text.push_str(&plane.prometheus());
    }
    text.push_str(&service.reservations.prometheus());
    if let Some(loaded) = &service.in_force().loaded {
        text.push_str(&limit_gauge::lines(loaded));
    }
    let files = &service.in_force().files;
    let origin = service.origin;
    for (name, number) in [
        ("tollgate_serve_files", files.read as u64),
        ("tollgate_serve_files_unread", files.unread.len() as u64),
        ("tollgate_serve_counts_began_timestamp_seconds", origin.began),
        ("tollgate_serve_counts_restored", origin.saved.is_some().into()),
    ] {
        let _ = writeln!(text, "# TYPE {name} gauge\n{name} {number}");
    }
    let (name, version) = ("tollgate_build_info", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "# TYPE {name} gauge\n{name}{{version=\"{version}\"}} 1");
    match &*service.in_force().settings.extra_labels {
        "" => text,
        extra => text.lines().map(|line| labelled(line, extra)).collect(),
    }
}

/// Returns a line of Prometheus with more labels.
fn labelled(line: &str, extra: &str) -> String {
    match line.find(['{', ' ']) {
        Some(end) if !line.starts_with('#') => {
            let (name, rest) = line.split_at(end);
            match rest.strip_prefix('{') {
                Some(labels) => format!("{name}{{{extra},{labels}\n"),
                None => format!("{name}{{{extra}}}{rest}\n"),
            }
        }
        _ => format!("{line}\n"),
    }
}

/// Returns the request of a query, which is `domain=DOMAIN&descriptor=k=v,k2=v2`. It may have
/// several descriptors. `call` is the call that has it.
pub(super) fn asked(query: &str, call: &str) -> Result<(RateLimitRequest, Descriptors), String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let text = |text: &str| {
        let decoded = decoded(text.replace('+', " ").as_bytes(), |_| true);
        text_of(&decoded).into_owned()
    };
    let of =
        |wanted| pairs.clone().filter(move |(name, _)| *name == wanted).map(move |(_, value)| text(value));
    let (domain, texts): (_, Vec<String>) = (of("domain").next(), of("descriptor").collect());
    let Some(domain) = domain.filter(|_| !texts.is_empty()) else {
        return Err(format!("ask for {call}?domain=DOMAIN&descriptor=k=v,k2=v2"));
    };
    let descriptors = texts.iter().map(|text| entries(text)).collect::<Result<Vec<_>, _>>()?;
    let request = request(&domain, &descriptors);
    check(&request)?;
    Ok((request, descriptors))
}

/// Returns the way of the descriptors of a query through the rules, with their counts.
pub(super) async fn explanation(service: &Service, query: &str) -> Result<String, String> {
    let (RateLimitRequest { domain, .. }, descriptors) = asked(query, "/explain")?;
    // A reload that waits for a page would keep requests waiting.
    let in_force = service.in_force();
    let loaded = in_force.loaded.as_ref().ok_or_else(|| Problem::NotLoaded.to_string())?;
    Ok(explained(loaded, &service.counts, service.shared.as_deref(), &domain, &descriptors).await)
}

/// Returns the way of descriptors through the rules, with their counts and the place of these.
pub(super) async fn explained(
    loaded: &LoadedRules,
    counts: &LimitCounts,
    shared: Option<&SharedCounts>,
    domain: &str,
    descriptors: &[Vec<(String, String)>],
) -> String {
    let asked = request(domain, descriptors);
    let mut told = Vec::new();
    for descriptor in &asked.descriptors {
        let entries = descriptor.entries.iter().map(|entry| (&*entry.key, &*entry.value));
        told.push(match loaded.rules.domain(domain).and_then(|domain| domain.find(entries)) {
            None => Vec::new(),
            Some(limit) => {
                let key = counts.key(domain, &descriptor.entries, &limit.shared);
                let mut lines = Vec::new();
                for limit in limit.each() {
                    let counter = loaded.counter(limit);
                    lines.push(match shared {
                        None => counts.count(counter, key, (Verb::Look, 0), counts.now()).map(told_of),
                        Some(shared) => {
                            let want = Want::look(counter, key, domain, &descriptor.entries, limit);
                            shared.explain(want, counts.now()).await
                        }
                    });
                }
                lines
            }
        });
    }
    explain(&loaded.rules, domain, descriptors, &told)
}

/// Returns the same by the store of settings, for a command that serves nothing.
pub(crate) async fn explained_once(
    settings: &ServeSettings,
    rules: Rules,
    domain: &str,
    descriptors: &[Vec<(String, String)>],
) -> Result<String, String> {
    let ServeSettings { max_keys, algorithm, .. } = *settings;
    let counts = LimitCounts::new(&CountOptions { max_keys, algorithm, ..CountOptions::default() });
    let shared = SharedCounts::open(&settings.store, max_keys, &counts.options.clock)?;
    shared.warm().await;
    let loaded = counts.load(rules)?;
    Ok(explained(&loaded, &counts, Some(&shared), domain, descriptors).await)
}

/// Returns the line of a count.
pub(super) fn told_of(counted: Counted) -> String {
    let Counted { hits, limit, remaining, reset, .. } = counted;
    format!("{} hits of {limit}, {remaining} left, and {reset} s to the reset", hits.after)
}

fn request(domain: &str, descriptors: &[Vec<(String, String)>]) -> RateLimitRequest {
    let entry = |(key, value): &(String, String)| DescriptorEntry { key: key.into(), value: value.into() };
    let descriptor = |entries: &Vec<_>| RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    };
    let descriptors = descriptors.iter().map(descriptor).collect();
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

/// Returns a line for each limit, in the form of envoyproxy/ratelimit. The rules of a control plane
/// have a line before them.
pub(super) fn rules(service: &Service) -> String {
    let in_force = service.in_force();
    let of_plane = service.control_plane.iter().map(|plane| {
        let server = &plane.settings.server;
        let version = match &in_force.loaded {
            Some(_) => format!("version {:?}", in_force.version),
            None => "no version yet".to_owned(),
        };
        let away = if plane.status().is_connected { "" } else { ", which is away" };
        format!("# {version} of the control plane {server}{away}\n")
    });
    let limits = in_force.loaded.iter().flat_map(|loaded| loaded.rules.limits());
    of_plane.chain(limits.map(|limit| line(limit))).collect()
}

fn line(limit: &RuleLimit) -> String {
    let amount = match &limit.amount {
        Amount::Unlimited => "unlimited".to_owned(),
        Amount::Window { unit, requests } => format!("unit={} requests_per_unit={requests}", unit.name()),
        Amount::Windows { unit, times, requests, .. } => {
            format!("unit={} unit_multiplier={times} requests_per_unit={requests}", unit.name())
        }
        Amount::Text(text, _) => format!("limit={text}"),
    };
    let (name, shadow, quota) = (limit.statistics.text(), limit.shadow, limit.quota);
    let networks: String = limit.networks().map(|networks| format!(", {networks}")).collect();
    format!("{name}: {amount}, shadow_mode: {shadow}, quota_mode: {quota}{networks}\n")
}

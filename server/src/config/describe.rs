//! The settings in words.

use std::fmt::Display;
use std::time::Duration;

use tollgate::{Priority, Rule};

use super::settings::{LogFormat, Outage, Settings};
use super::timeouts::timeouts;

const LEADING_BITS: &str = "leading bits of an address that are one client";

/// A setting: its name, its value, and a sentence about it.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) value: String,
    meaning: String,
}

/// A line for each setting in effect, and for each that may limit less than it seems.
pub(crate) fn describe(settings: &Settings) -> String {
    let entries = entries(settings);
    let width = |text: fn(&Entry) -> &str| entries.iter().map(|e| text(e).chars().count()).max().unwrap_or(0);
    // A list of upstreams or networks may be long; it alone moves its own sentence.
    let (name, value) = (width(|entry| &entry.name), width(|entry| &entry.value).min(36));
    let mut text = String::new();
    for entry in &entries {
        let line = format!("{:name$}  {:value$}  {}", entry.name, entry.value, entry.meaning);
        text += line.trim_end();
        text.push('\n');
    }
    for warning in warnings(settings) {
        text += &format!("warning: {warning}\n");
    }
    text
}

/// All settings, in the order of [`Settings`].
pub(super) fn entries(settings: &Settings) -> Vec<Entry> {
    let client = match &settings.key {
        Some(name) => format!("each value of {name}"),
        None => "each client address".to_owned(),
    };
    let mut entries = vec![
        entry("listen", settings.listen.to_string(), "where clients connect"),
        match &settings.tls {
            Some(tls) => {
                let files = format!("{}, {}", tls.chain.display(), tls.key.display());
                entry("tls", files, "the certificate chain and its key")
            }
            None => entry("tls", "off".to_owned(), "connections are not encrypted"),
        },
        switch("proxy_protocol", settings.proxy_protocol, "each connection begins with a PROXY header", ""),
        match settings.upstreams[..] {
            [] => entry("upstream", "none".to_owned(), "a server in this process answers"),
            _ => entry("upstream", list(&settings.upstreams), ""),
        },
        switch(
            "preserve_host",
            settings.preserve_host,
            "the upstream sees the client's Host",
            "the upstream sees its own name in Host",
        ),
        match &settings.via {
            Some(via) => entry("via", via.clone(), "the name of this proxy in Via"),
            None => entry("via", "made up".to_owned(), "at the start, the name of this proxy in Via"),
        },
        match settings.limit {
            Some(rule) => {
                entry("limit", rule.to_string(), &format!("of {client}, for requests under no route"))
            }
            None => entry("limit", "none".to_owned(), "requests under no route are not limited"),
        },
        match &settings.key {
            Some(name) => {
                let meaning = "a request without exactly one value is limited by its client address";
                entry("key", format!("header:{name}"), meaning)
            }
            None => entry("key", "peer".to_owned(), ""),
        },
        entry("trust_proxy", list(&settings.trust_proxy), "networks whose forwarding headers are believed"),
        entry("ipv4_prefix", settings.ipv4_prefix.to_string(), LEADING_BITS),
        entry("ipv6_prefix", settings.ipv6_prefix.to_string(), LEADING_BITS),
    ];
    for route in &settings.routes {
        let priority = match route.priority {
            Priority::Critical => String::new(),
            lower => format!("priority {}, ", lower.name()),
        };
        let value = format!("{}, cost {}, {priority}{}", route.rule, route.cost, route.prefix);
        let meaning = format!("of {client}, for {} and paths below it", route.prefix);
        entries.push(entry(&format!("route {}", route.name), value, &meaning));
    }
    entries.extend([
        switch(
            "case_sensitive",
            settings.case_sensitive,
            "/LOGIN is not under a route /login",
            "/LOGIN is under a route /login",
        ),
        entry("exempt.networks", list(&settings.exempt.networks), "clients that no limit applies to"),
        entry("exempt.paths", list(&settings.exempt.paths), "as they are sent, under no limit"),
        entry("exempt.methods", list(&settings.exempt.methods), "under no limit"),
        switch(
            "exempt.preflights",
            settings.exempt.preflights,
            "preflight requests of CORS are under no limit",
            "preflight requests of CORS are limited",
        ),
        switch(
            "shadow",
            settings.shadow,
            "decisions are counted, and no request is refused",
            "requests over a limit are refused",
        ),
    ]);
    match &settings.admin {
        Some(admin) => entries.extend([
            entry("admin", admin.at.to_string(), "the live page and /metrics"),
            entry("admin.hosts", list(&admin.hosts), "besides localhost and addresses, in Host of requests"),
        ]),
        None => entries.push(entry("admin", "off".to_owned(), "")),
    }
    let bounds = &settings.bounds;
    entries.extend([
        entry(
            "bounds.connections_per_address",
            bounds.connections_per_address.to_string(),
            "of one client address (of IPv6 its /64), but not of trust_proxy",
        ),
        entry(
            "bounds.in_flight",
            bounds.in_flight.to_string(),
            "requests under way at a time, or as many as open files have room for",
        ),
        entry(
            "bounds.in_flight_per_key",
            bounds.in_flight_per_key.to_string(),
            &match &settings.key {
                Some(name) => format!("of them of each client address, and of each value of {name}"),
                None => "of them of each client address".to_owned(),
            },
        ),
        match bounds.keys_per_limit {
            Some(keys) => entry("bounds.keys_per_limit", keys.to_string(), "in a table of each limit"),
            None => entry(
                "bounds.keys_per_limit",
                "none".to_owned(),
                "a map of each limit grows, up to 2^20 keys",
            ),
        },
        match bounds.least_rate {
            Some(rate) => entry(
                "bounds.least_rate",
                rate.to_string(),
                "bytes of a request's body that make up for a second of waiting",
            ),
            None => entry("bounds.least_rate", "none".to_owned(), "a body of a request may be slow"),
        },
    ]);
    entries.extend([
        match settings.inflight {
            Some(limit) => {
                let meaning = match limit.target {
                    Some(_) => format!(
                        "the most requests in flight to each upstream; the limit begins at {}",
                        limit.first()
                    ),
                    None => {
                        "requests in flight to each upstream, beyond which they get 503 at once".to_owned()
                    }
                };
                entry("inflight.limit", limit.ceiling.to_string(), &meaning)
            }
            None => entry("inflight.limit", "none".to_owned(), "on requests in flight to each upstream"),
        },
        match settings.inflight.and_then(|limit| limit.target) {
            Some(target) => entry("inflight.target", duration(target), "for nine in ten of their answers"),
            None => entry("inflight.target", "none".to_owned(), "a limit in flight stays as it is"),
        },
    ]);
    entries.extend(store_entries(settings));
    for (name, time, meaning) in timeouts(&mut settings.timeouts.clone()) {
        entries.push(entry(&format!("timeouts.{name}"), duration(*time), meaning));
    }
    let (lame_duck, drain) = (duration(settings.timeouts.lame_duck), duration(settings.timeouts.drain));
    let format = match settings.log.format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    entries.extend([
        entry("lame_duck", lame_duck, "from a stop signal to the end of accepting connections"),
        entry("drain", drain, "from then on, for the requests under way"),
        entry("log.format", format.to_owned(), ""),
        switch("log.access", settings.log.access, "a line for each request", ""),
    ]);
    entries
}

fn store_entries(settings: &Settings) -> Vec<Entry> {
    let Some(store) = &settings.store else {
        return vec![entry("store", "none".to_owned(), "the limits are those of this process")];
    };
    let mode = if store.exact { "exact" } else { "leased" };
    let asks = match store.exact {
        true => "each decision asks the store",
        false => "tokens of busy keys are taken from the store for 100 ms ahead",
    };
    let (policy, outage) = match store.on_outage {
        Outage::Local => ("local", "without the store, this process limits by its share"),
        Outage::Deny => ("deny", "without the store, requests get 503"),
        Outage::Allow => ("allow", "without the store, no request is refused"),
    };
    vec![
        entry("store", store.url.to_string(), "the limits are shared by it"),
        entry("store.name", store.name.clone(), "proxies of this name share them"),
        entry("store.mode", mode.to_owned(), asks),
        entry("store.deadline", duration(store.deadline), "for an answer of the store"),
        entry("store.on_outage", policy.to_owned(), outage),
        entry("store.share", store.share.to_string(), "of the limits, with on_outage = local"),
    ]
}

fn entry(name: &str, value: String, meaning: &str) -> Entry {
    Entry { name: name.to_owned(), value, meaning: meaning.to_owned() }
}

/// A setting that is on or off, with a sentence about each.
fn switch(name: &str, setting: bool, on: &str, off: &str) -> Entry {
    match setting {
        true => entry(name, "on".to_owned(), on),
        false => entry(name, "off".to_owned(), off),
    }
}

fn duration(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

fn list<T: Display>(items: &[T]) -> String {
    if items.is_empty() {
        return "none".to_owned();
    }
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// The settings that may not be meant as they are.
fn warnings(settings: &Settings) -> Vec<String> {
    let mut warnings = Vec::new();
    for path in &settings.exempt.paths {
        for route in settings.routes.iter().filter(|route| path.takes(&route.prefix)) {
            let (name, prefix) = (&route.name, &route.prefix);
            warnings.push(format!("exempt.paths {path} takes {prefix} out of the limit of route {name}"));
        }
    }
    let (each, all) = (settings.bounds.in_flight_per_key, settings.bounds.in_flight);
    if each * 4 >= all {
        warnings.push(format!(
            "bounds.in_flight_per_key, {each}, is a quarter of bounds.in_flight, {all}, or more: few clients \
             slow all others down"
        ));
    }
    warnings.extend(inflight_warnings(settings));
    let Some(default) = settings.limit else {
        if settings.routes.is_empty() {
            warnings.push("limit is none and there are no routes: no request is limited".to_owned());
        }
        return warnings;
    };
    for route in &settings.routes {
        if looser(route.rule, route.cost, default) {
            let (name, rule, cost) = (&route.name, route.rule, route.cost);
            warnings.push(format!("route {name}, {rule} and cost {cost}, is looser than limit, {default}"));
        }
    }
    warnings
}

/// The bounds that keep a limit in flight from its work.
fn inflight_warnings(settings: &Settings) -> Vec<String> {
    let Some(limit) = settings.inflight else { return Vec::new() };
    let (mut warnings, all) = (Vec::new(), settings.bounds.in_flight);
    let most = limit.ceiling as usize * settings.upstreams.len().max(1);
    if most > all {
        warnings.push(format!(
            "inflight.limit allows {most} requests in flight, but beyond bounds.in_flight, {all}, they wait"
        ));
    }
    let (target, head) = (limit.target.unwrap_or_default(), settings.timeouts.response_head);
    if target * 2 >= head {
        let (target, head) = (duration(target), duration(head));
        warnings.push(format!(
            "inflight.target, {target}, is half of timeouts.response_head, {head}, or more: slow answers end \
             before they show"
        ));
    }
    warnings
}

/// Whether a rule grants more requests of this cost, at once or over time, than the default does.
fn looser(rule: Rule, cost: u64, default: Rule) -> bool {
    let rate = |rule: Rule| rule.tokens() as f64 / rule.period().as_secs_f64();
    rule.capacity() / cost > default.capacity() || rate(rule) / cost as f64 > rate(default)
}

//! The settings in words.

use humantime::format_duration;
use tollgate::AnyRule;

use super::exempt::takes;
use super::rows::{ProxyTable, ROUTE, client};
use super::settings::{KeyPart, Route, Settings};
use tollgate_common::settings::options::Table;
use tollgate_common::settings::table::Setting;

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

/// All settings, in the order of their table, and the routes.
pub(super) fn entries(of: &Settings) -> Vec<Entry> {
    let entry = |setting: &Setting<Settings>| {
        let (value, meaning) = setting.shown(of)?;
        // The default and what is for options alone are no part of it.
        let usual = setting.help.split([';', '[']).next().unwrap_or_default().trim_end();
        let meaning = meaning.unwrap_or(usual.into());
        Some(Entry { name: setting.name.to_owned(), value, meaning: meaning.into_owned() })
    };
    let mut entries: Vec<Entry> = ProxyTable::settings().filter_map(entry).collect();
    for route in &of.routes {
        let mut values: Vec<String> = ROUTE.iter().filter_map(|part| Some(part.shown(route)?.0)).collect();
        values.push(route.prefix.clone());
        let meaning =
            format!("of {}, for {} and paths below it", client(of.key_of(Some(route))), route.prefix);
        entries.push(Entry { name: format!("route {}", route.name), value: values.join(", "), meaning });
    }
    entries
}

/// The settings that may not be meant as they are.
fn warnings(settings: &Settings) -> Vec<String> {
    let mut warnings = Vec::new();
    for path in &settings.exempt.paths {
        for route in settings.routes.iter().filter(|route| takes(path, &route.prefix)) {
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
    warn_of_inflight(settings, &mut warnings);
    warn_of_limits(settings, &mut warnings);
    if settings.limit.is_none() && settings.routes.is_empty() {
        warnings.push("limit is none and there are no routes: no request is limited".to_owned());
    }
    warnings
}

/// The limits that hold no client back as they should: no limit of the same paths is tighter than
/// the default one, or is by a key that a client cannot make up.
fn warn_of_limits(settings: &Settings, warnings: &mut Vec<String>) {
    let is_made_up = |route: Option<&Route>| {
        let parts = settings.key_of(route);
        parts.iter().any(|part| matches!(part, KeyPart::Header(_) | KeyPart::Cookie(_)))
    };
    let of_key = |name: &str, route| {
        let key = client(settings.key_of(route));
        format!("{name} is of {key}: a client that makes values up has as many buckets")
    };
    if settings.limit.is_some() && is_made_up(None) {
        warnings.push(of_key("limit", None));
    }
    for route in &settings.routes {
        let (name, rule, cost) = (&route.name, route.rule, route.cost);
        let mut together = settings.routes.iter().filter(|other| other.prefix == route.prefix);
        if together.clone().all(|other| is_made_up(Some(other))) {
            warnings.push(of_key(&format!("route {name}"), Some(route)));
        }
        if let Some(default) = settings.limit
            && together.all(|other| looser(other.rule, other.cost, default))
        {
            warnings.push(format!("route {name}, {rule} and cost {cost}, is looser than limit, {default}"));
        }
    }
}

/// The bounds that keep a limit in flight from its work.
fn warn_of_inflight(settings: &Settings, warnings: &mut Vec<String>) {
    let Some(limit) = settings.inflight else { return };
    let all = settings.bounds.in_flight;
    let most = limit.ceiling as usize * settings.upstreams.len().max(1);
    if most > all {
        warnings.push(format!(
            "inflight.limit allows {most} requests in flight, but beyond bounds.in_flight, {all}, they wait"
        ));
    }
    let (target, head) = (limit.target.unwrap_or_default(), settings.timeouts.response_head);
    if target * 2 >= head {
        let (target, head) = (format_duration(target), format_duration(head));
        warnings.push(format!(
            "inflight.target, {target}, is half of timeouts.response_head, {head}, or more: slow answers end \
             before they show"
        ));
    }
}

/// Whether a rule grants more requests of this cost, at once or over time, than the default does.
fn looser(rule: AnyRule, cost: u64, default: AnyRule) -> bool {
    let rate = |rule: AnyRule| rule.tokens() as f64 / rule.period().as_secs_f64();
    rule.capacity() / cost > default.capacity() || rate(rule) / cost as f64 > rate(default)
}

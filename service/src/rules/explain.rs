//! The way of a descriptor through the rules, level by level, and the reason for its limit or none.

use std::fmt::Write;
use std::sync::Arc;

use super::doubts;
use super::error::meant;
use super::pattern::Subject;
use super::shared_entry::SharedEntry;
use super::tree::{Amount, Level, Rule, RuleLimit, Rules, Values};

/// The entries of a descriptor: keys and values.
type Entries<'e> = [(&'e str, &'e str)];

/// The most entries whose orders are all tried.
const MAX_ORDERED: usize = 5;

/// The most names that a reason lists.
const MAX_NAMES: usize = 8;

/// Returns the entries of a text such as `path=/login,method=POST`. A comma of a value has a
/// backslash before it, and so has a backslash before a comma.
pub(crate) fn entries(text: &str) -> Result<Vec<(String, String)>, String> {
    let (mut parts, mut part, mut letters) = (Vec::new(), String::new(), text.chars().peekable());
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('\\', Some(&next @ (',' | '\\'))) => {
                part.push(next);
                letters.next();
            }
            (',', _) => parts.push(std::mem::take(&mut part)),
            _ => part.push(letter),
        }
    }
    parts.push(part);
    let entry = |part: String| match part.split_once('=') {
        Some(("", _)) => Err(format!("{text:?}: the entry {part:?} has no key before '='")),
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(format!(
            "{text:?}: the entry {part:?} has no '=', as in path=/login,method=POST; a comma of a value is '\\,'"
        )),
    };
    parts.into_iter().map(entry).collect()
}

/// Returns a paragraph for each descriptor of a request. `counts` has the line about the count of
/// each of its limits, if it is known.
pub(crate) fn explain(
    rules: &Rules,
    domain: &str,
    descriptors: &[Vec<(String, String)>],
    counts: &[Vec<Option<String>>],
) -> String {
    let Some(found) = rules.domain(domain) else {
        let mut names: Vec<&str> = rules.domains.keys().map(|name| &**name).collect();
        names.sort_unstable();
        return format!(
            "the domain '{domain}' is unknown, so each request passes; {}\n",
            nearest(domain, &names)
        );
    };
    let mut text = String::new();
    for (index, entries) in descriptors.iter().enumerate() {
        let entries: Vec<_> = entries.iter().map(|(key, value)| (&**key, &**value)).collect();
        let entries = &*entries;
        let _ = writeln!(text, "descriptor {}: {}", index + 1, written(entries));
        let (levels, way) = walk(&found.level, entries);
        let _ = writeln!(text, "  {levels}");
        let lines = match found.find(entries.iter().copied()) {
            Some(limit) => {
                let counts = counts.get(index).map_or(&[][..], |counts| counts);
                let count = |place: usize| counts.get(place).cloned().flatten();
                let lines = |(place, limit)| lines_of(limit, entries).into_iter().chain(count(place));
                limit.each().enumerate().flat_map(lines).collect()
            }
            None => reason(&found.level, entries, &way),
        };
        let _ = writeln!(text, "  -> {}", lines.join("\n     "));
    }
    text
}

fn written(entries: &Entries<'_>) -> String {
    entries.iter().map(|(key, value)| format!("({key}={value})")).collect::<Vec<_>>().join(",")
}

/// Returns a part for each level until no rule is found, and the rules that were.
fn walk<'a>(level: &'a Level, entries: &Entries<'_>) -> (String, Vec<&'a Rule>) {
    let (mut parts, mut way) = (Vec::new(), Vec::new());
    let mut next = Some(level);
    for (key, value) in entries {
        let Some(level) = next else {
            parts.push(format!("{key}: no rule is below"));
            break;
        };
        let values = level.keys.get(*key);
        let wildcard = level.wildcard(values, key, value);
        let Some(rule) = level.find(key, value) else {
            parts.push(match values {
                Some(values) => {
                    let other = values.exact.keys().find(|other| other.eq_ignore_ascii_case(value));
                    let meant = other.map_or(String::new(), |other| format!("; did you mean \"{other}\"?"));
                    let missed = missed(values, value).map_or(String::new(), |why| format!("; {why}"));
                    format!("{key}: no rule \"{value}\", none without a value{meant}{missed}")
                }
                None => format!("{key}: no rule of this key; {}", nearest(key, &level.names())),
            });
            break;
        };
        let kind = match wildcard {
            _ if values.is_some_and(|values| values.exact.contains_key(*value)) => {
                format!("rule \"{value}\"")
            }
            Some(found) => format!("wildcard \"{}\"", found.pattern.text()),
            None => "rule without a value".to_owned(),
        };
        parts.push(format!("{key}: {kind} at {}", rule.at));
        way.push(rule);
        next = rule.below.as_deref();
    }
    (parts.join("; "), way)
}

/// Returns the reason why a value is not that of a rule which looks like it: of the longest one.
fn missed(values: &Values, asked: &str) -> Option<String> {
    let patterns = values.by_pattern.iter().map(|each| each.pattern.text());
    let known = values.exact.keys().map(|value| &**value).chain(patterns);
    let near = known.filter_map(|value| Some((value, doubts::of_miss(value, asked)?)));
    near.max_by_key(|(value, _)| (value.len(), *value)).map(|(_, why)| why)
}

/// Returns the names that were meant: one that differs in its case, a near one, or some of them.
fn nearest(wanted: &str, known: &[&str]) -> String {
    match known.iter().find(|name| name.eq_ignore_ascii_case(wanted)) {
        Some(name) => format!("did you mean '{name}'?"),
        None => meant(wanted, &known[..known.len().min(MAX_NAMES)]),
    }
}

/// Returns the lines about the limit that was found.
fn lines_of(limit: &RuleLimit, entries: &Entries<'_>) -> Vec<String> {
    let amount = match &limit.amount {
        Amount::Unlimited => "unlimited".to_owned(),
        Amount::Window { unit, requests } => format!("{requests} each {}", unit.text()),
        Amount::Windows { unit, times, requests, .. } => format!("{requests} each {times} {}s", unit.text()),
        Amount::Text(text, _) => text.to_string(),
    };
    let name = limit.name.as_ref().map_or(String::new(), |name| format!(", \"{name}\""));
    let shadow = if limit.shadow { ", in shadow mode" } else { "" };
    let quota = if limit.quota { ", as a quota" } else { "" };
    let entry = |(level, (key, value)): (usize, &(&str, &str))| match limit.shared.get(level) {
        Some(Some(SharedEntry::Pattern(pattern))) => format!("({})", pattern.replace('\0', "=")),
        shared => format!("({key}={})", SharedEntry::value(shared, value)),
    };
    let counted = match limit.amount {
        Amount::Unlimited => "not counted".to_owned(),
        _ => format!("counted by {}", entries.iter().enumerate().map(entry).collect::<Vec<_>>().join(",")),
    };
    let statistics = limit.statistics.of(entries.iter().copied());
    vec![
        format!("{amount}{name}{shadow}{quota}, by the rule at {}", line(limit)),
        format!("{counted}, with the statistics {statistics}"),
    ]
}

/// Returns the lines about a descriptor without a limit, which took this way.
fn reason(level: &Level, entries: &Entries<'_>, way: &[&Rule]) -> Vec<String> {
    let passed = way.iter().enumerate().rev().find_map(|(index, rule)| Some((index, rule.limit.as_ref()?)));
    if let Some((index, limit)) = passed {
        let deeper = match entries.len() - index - 1 {
            1 => "one level".to_owned(),
            levels => format!("{levels} levels"),
        };
        let keys: Vec<_> = entries[index + 1..].iter().map(|(key, _)| *key).collect();
        return vec![
            format!("no limit. The rule at {} has one, but the request goes {deeper} deeper.", line(limit)),
            format!(
                "To limit it whatever the {}, ask for {} alone.",
                keys.join(" and "),
                written(&entries[..=index])
            ),
        ];
    }
    let what = match way.last().filter(|_| way.len() == entries.len()) {
        Some(Rule { at, below: None, .. }) => {
            return vec![format!("no limit. The rule at {at:#} has none, so it exempts its value.")];
        }
        Some(Rule { at, below: Some(below), .. }) => {
            let keys = below.names().join(" or ");
            format!("The rule at {at:#} has none; one below it needs an entry more, {keys}.")
        }
        None => "No rule matches each entry.".to_owned(),
    };
    let mut lines = vec![format!("no limit. {what}")];
    lines.extend(remedy(level, entries));
    lines
}

fn line(limit: &RuleLimit) -> String {
    format!("{:#}", limit.at)
}

/// Returns a line about another descriptor, or another way, that has a limit.
fn remedy(level: &Level, entries: &Entries<'_>) -> Option<String> {
    if let Some(limit) = any_way(level, entries) {
        let what = "has one for these entries, but each level takes its first match, without a way back.";
        return Some(format!("The rule at {} {what}", line(limit)));
    }
    let mut ordered = None;
    if entries.len() <= MAX_ORDERED {
        each_order(&mut entries.to_vec(), 0, &mut |order| {
            ordered = ordered.take().or_else(|| Some((written(order), any_way(level, order)?)));
        });
    }
    if let Some((order, limit)) = ordered {
        return Some(format!("The rule at {} has one for {order}: the order counts.", line(limit)));
    }
    let without = |left_out: usize| {
        let fewer = [&entries[..left_out], &entries[left_out + 1..]].concat();
        let limit = any_way(level, &fewer)?;
        Some(format!("The rule at {} has one for {} alone.", line(limit), written(&fewer)))
    };
    let below = |rule: &Rule| {
        let limit = any_way(rule.below.as_ref()?, entries)?;
        let (at, of) = (&rule.at, written(entries));
        Some(format!("The rule at {} has one for {of} behind an entry of {at:#}.", line(limit)))
    };
    (0..entries.len()).find_map(without).or_else(|| level.each().find_map(below))
}

/// Returns the limit of any rules that match, also of those that a lookup does not try.
fn any_way<'a>(level: &'a Level, entries: &Entries<'_>) -> Option<&'a Arc<RuleLimit>> {
    let (&(key, value), rest) = entries.split_first()?;
    let values = level.keys.get(key);
    let exact = values.and_then(|values| values.exact.get(value));
    let of_key = values.into_iter().flat_map(|values| values.by_pattern.iter());
    let of_key = of_key.filter(|each| each.pattern.matches(Subject::Value(value)));
    let joined = level.by_pattern.iter().filter(|each| each.pattern.matches(Subject::Joined(key, value)));
    let wildcards = of_key.chain(joined).map(|each| &each.rule);
    let any = values.and_then(|values| values.any.as_deref());
    exact.into_iter().chain(wildcards).chain(any).find_map(|rule| match (rest, &rule.below) {
        ([], _) => rule.limit.as_ref(),
        (rest, Some(below)) => any_way(below, rest),
        _ => None,
    })
}

/// Calls a function with each order of the entries from `first` on.
fn each_order<'e>(entries: &mut Vec<(&'e str, &'e str)>, first: usize, then: &mut impl FnMut(&Entries<'e>)) {
    if first == entries.len() {
        return then(entries);
    }
    for index in first..entries.len() {
        entries.swap(first, index);
        each_order(entries, first + 1, then);
        entries.swap(first, index);
    }
}

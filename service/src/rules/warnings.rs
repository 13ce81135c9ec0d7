//! Rules that are valid and have no effect, or one that is probably not meant.
//!
//! The load itself warns of fields. These warnings compare rules with each other.

use std::collections::{HashMap, HashSet};

use super::doubts;
use super::error::{FileSpot, Finding, MOST_BYTES, beginning, keep};
use super::pattern::{Subject, Wildcard};
use super::tree::{Amount, Domain, Level, Rule, RuleLimit, Rules};

/// Adds the warnings of a tree.
pub(super) fn of(rules: &Rules, found: &mut Vec<Finding>) {
    let mut names: HashMap<&str, &FileSpot> = HashMap::new();
    for limit in rules.limits() {
        let name = limit.statistics.text();
        if let Some(first) = names.insert(name, &limit.at) {
            let what = format!(
                "the limit at {first} has the name '{name}' as well: they share their statistics, and the \
                 reference takes both for one"
            );
            warn(found, &limit.at, what);
        }
    }
    for domain in rules.domains.values() {
        check_domain(domain, found);
    }
}

fn warn(found: &mut Vec<Finding>, at: &FileSpot, what: String) {
    keep(found, at.clone(), &what);
}

fn check_domain(domain: &Domain, found: &mut Vec<Finding>) {
    let mut limits = Vec::new();
    collect(&domain.level, &mut limits);
    let names: HashSet<&str> = limits.iter().filter_map(|limit| limit.name.as_deref()).collect();
    for limit in &limits {
        for name in limit.replaces.iter().filter(|name| !names.contains(&***name)) {
            warn(found, &limit.at, format!("replaces '{name}', and no limit of the domain has this name"));
        }
    }
    check_level(&domain.level, found);
}

/// Adds the limits of a level and of those below.
fn collect<'a>(level: &'a Level, limits: &mut Vec<&'a RuleLimit>) {
    for rule in level.each() {
        limits.extend(rule.limit.as_deref());
        if let Some(below) = &rule.below {
            collect(below, limits);
        }
    }
}

/// Checks a level. A star in the text of a rule matches only a star of a pattern, so a pattern that
/// matches that text takes each request of the rule.
fn check_level(level: &Level, found: &mut Vec<Finding>) {
    let mut doubt = |rule: &Rule, key: &str, value: &str| {
        doubts::of_value(key, value).into_iter().for_each(|what| warn(found, &rule.at, what));
    };
    for (key, values) in &level.keys {
        values.any.iter().for_each(|rule| doubt(rule, key, ""));
        values.by_pattern.iter().for_each(|each| doubt(&each.rule, key, each.pattern.text()));
        values.exact.iter().for_each(|(value, rule)| doubt(rule, key, value));
    }
    for each in level.by_pattern.iter() {
        let first = level.by_pattern.find(Subject::Value(each.pattern.text()));
        warn_of_cover(&each.rule, first.filter(|first| first.order < each.order), found);
        check_rule(&each.rule, level.rules > 1, found);
    }
    for (key, values) in &level.keys {
        for (index, each) in values.by_pattern.iter().enumerate() {
            let first = level.wildcard(Some(values), key, each.pattern.text());
            warn_of_cover(&each.rule, first.filter(|first| first.order < each.order), found);
            let has_later = values.by_pattern.iter().len() > index + 1 || level.by_pattern.iter().len() > 0;
            check_rule(&each.rule, has_later || values.any.is_some(), found);
        }
        if let Some(rule) = &values.any {
            warn_of_cover(rule, level.wildcard(Some(values), key, "*"), found);
            check_rule(rule, false, found);
        }
        for (value, rule) in &values.exact {
            let exempts = values.any.is_some() || level.wildcard(Some(values), key, value).is_some();
            check_rule(rule, exempts, found);
        }
    }
}

fn warn_of_cover(rule: &Rule, by: Option<&Wildcard<Rule>>, found: &mut Vec<Finding>) {
    if let Some(Wildcard { pattern, rule: by, .. }) = by {
        let pattern = beginning(pattern.text(), MOST_BYTES);
        let what = format!("no request reaches this rule: '{pattern}' at {} takes each of them", by.at);
        warn(found, &rule.at, what);
    }
}

/// Checks a rule, which may exempt its value from a rule that would match as well.
fn check_rule(rule: &Rule, exempts: bool, found: &mut Vec<Finding>) {
    let Some(below) = &rule.below else {
        if rule.limit.is_none() && !exempts {
            warn(
                found,
                &rule.at,
                "a rule without a limit, and no other rule that it exempts from".to_owned(),
            );
        }
        return;
    };
    let mut limits = Vec::new();
    collect(below, &mut limits);
    if limits.is_empty() {
        return warn(found, &rule.at, "no rule below this one has a limit".to_owned());
    }
    if rule.limit.as_ref().is_some_and(|limit| limit.amount != Amount::Unlimited) {
        let what = "this limit is for requests that end here: one with an entry more passes it by".to_owned();
        warn(found, &rule.at, what);
    }
    check_level(below, found);
}

//! The random rules of a walk.

use serde_json::{Value, json};
use tollgate_testing::Random;

/// A descriptor of a configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Rule {
    pub(super) key: &'static str,
    /// Empty for any value. A star is at the end.
    pub(super) value: &'static str,
    pub(super) limit: Option<Amount>,
    pub(super) name: &'static str,
    pub(super) replaces: &'static str,
    pub(super) shadow: bool,
    pub(super) quota: bool,
    pub(super) detailed: bool,
    pub(super) shares: bool,
    pub(super) below: Vec<Rule>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Amount {
    Unlimited,
    /// An index of [`UNITS`], and a number of requests.
    Window(usize, u32),
}

/// The names of units, their numbers in messages, and their seconds.
pub(super) const UNITS: [(&str, i32, u64); 7] = [
    ("second", 1, 1),
    ("minute", 2, 60),
    ("hour", 3, 3_600),
    ("day", 4, 86_400),
    ("week", 7, 604_800),
    ("month", 5, 2_592_000),
    ("year", 6, 31_536_000),
];

impl Rule {
    pub(super) fn is_fixed(&self) -> bool {
        self.shares || !(self.value.is_empty() || self.value.ends_with('*'))
    }

    pub(super) fn matches(&self, value: &str) -> bool {
        self.value.strip_suffix('*').is_some_and(|start| value.starts_with(start))
    }
}

/// Returns the rule as a configuration has it. JSON is YAML.
pub(super) fn json_of(rule: &Rule) -> Value {
    let mut json = json!({"key": rule.key, "value": rule.value, "shadow_mode": rule.shadow});
    json["quota_mode"] = rule.quota.into();
    json["detailed_metric"] = rule.detailed.into();
    json["share_threshold"] = rule.shares.into();
    json["descriptors"] = rule.below.iter().map(json_of).collect();
    if let Some(amount) = rule.limit {
        let mut limit = match amount {
            Amount::Unlimited => json!({"unlimited": true}),
            Amount::Window(unit, n) => json!({"unit": UNITS[unit].0, "requests_per_unit": n}),
        };
        limit["name"] = rule.name.into();
        if !rule.replaces.is_empty() {
            limit["replaces"] = json!([{"name": rule.replaces}]);
        }
        json["rate_limit"] = limit;
    }
    json
}

/// Returns the rules of a level, and of those below it.
pub(super) fn level(random: &mut Random, depth: u32) -> Vec<Rule> {
    let mut rules = Vec::new();
    for key in ["a", "b"] {
        for value in ["", "x*", "x", "y", "x1*"] {
            if random.below(2) == 0 {
                continue;
            }
            let mut rule = Rule { key, value, ..Rule::default() };
            let mut one_in = |n| random.below(n) == 0;
            (rule.shadow, rule.quota, rule.detailed) = (one_in(6), one_in(6), one_in(4));
            rule.shares = value.ends_with('*') && one_in(2);
            if one_in(3) {
                rule.name = if one_in(2) { "n" } else { "m" };
            } else if one_in(4) {
                rule.replaces = if one_in(2) { "n" } else { "m" };
            }
            let amount = match random.below(8) {
                0 => Amount::Unlimited,
                _ => Amount::Window(random.below(7) as usize, number(random)),
            };
            rule.limit = (random.below(5) > 0).then_some(amount);
            if depth < 2 && random.below(3) == 0 {
                rule.below = level(random, depth + 1);
            }
            rules.push(rule);
        }
    }
    rules
}

pub(super) fn number(random: &mut Random) -> u32 {
    match random.below(12) {
        0 => 0,
        1 => u32::MAX,
        _ => random.below(12) as u32,
    }
}

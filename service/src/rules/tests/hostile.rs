//! Texts that are large, deep or random: an error or rules, and never a panic.

use std::collections::BTreeSet;
use std::fmt::Write;

use proptest::prelude::*;

use super::lookup::{entries, found, rules};
use super::{errors, load_files};
use crate::rules::pattern::{Pattern, Subject, Wildcards};

#[test]
fn aliases_are_bounded_by_the_nodes_that_they_make() {
    // Each level has the one before it ten times: 10^12 nodes.
    let mut text = "domain: d\nmetadata: {}\ndescriptors:\n- {key: k, metadata: &m0 {a: b}}\n".to_owned();
    for level in 1..=12 {
        let aliases = vec![format!("*m{}", level - 1); 10].join(", ");
        writeln!(text, "- {{key: k{level}, metadata: &m{level} {{a: [{aliases}]}}}}").unwrap();
    }
    assert_eq!(errors(&text), "9:37: error loading config file: aliases make more than 100000 nodes");
    // A limit for each of many rules is within the bound.
    let mut text = "- {key: k0, rate_limit: &l {unit: day, requests_per_unit: 1}}\n".to_owned();
    (1..10_000).for_each(|rule| writeln!(text, "- {{key: k{rule}, rate_limit: *l}}").unwrap());
    assert_eq!(found(&rules(&text), "k9999=v"), Some(1));
}

#[test]
fn levels_are_bounded() {
    let nested = |levels: usize| {
        let mut text = "domain: d\n".to_owned();
        for level in 0..levels {
            let indent = " ".repeat(2 * level);
            writeln!(text, "{indent}descriptors:\n{indent}- key: k").unwrap();
        }
        let indent = " ".repeat(2 * levels);
        writeln!(text, "{indent}rate_limit: {{unit: day, requests_per_unit: 1}}").unwrap();
        text
    };
    let loaded = load_files(&[("a.yaml", &nested(64))]);
    assert_eq!(loaded.errors, []);
    assert_eq!(found(&loaded.rules, &vec!["k=v"; 64].join(",")), Some(1));
    assert_eq!(errors(&nested(65)), "131:131: config error, more than 64 levels of descriptors");
    assert!(errors(&nested(5_000)).contains("more than 136 lists and maps inside each other"));
    let flow = |open: &str, shut: &str| {
        format!("domain: d\ndescriptors: {}{}\n", open.repeat(5_000), shut.repeat(5_000))
    };
    for text in [
        flow("[", "]"),
        flow("{a: ", "}"),
        flow("[", ""),
        format!("domain: d\ndescriptors: {}\n", "- ".repeat(5_000)),
    ] {
        assert!(!errors(&text).is_empty());
    }
}

#[test]
fn ten_thousand_rules_load() {
    let count = 10_000;
    for value in ["v", "'v*'", "'*v'"] {
        let descriptor = |rule: u32| {
            let value = value.replace('v', &format!("v{rule}_"));
            format!("- {{key: k, value: {value}, rate_limit: {{unit: hour, requests_per_unit: {rule}}}}}\n")
        };
        let rules = rules(&(0..count).map(descriptor).collect::<String>());
        assert_eq!(found(&rules, &format!("k=v{}_", count - 1)), Some(count - 1), "{value}");
    }
}

/// A lookup and a warning compare a text with these patterns, one after the other.
#[test]
fn a_text_is_compared_with_the_patterns_of_its_prefix_and_suffix_alone() {
    for form in ["v*", "*v", "a*v", "v*a", "v*v", "*v*v"] {
        let texts: Vec<_> = (0..10_000).map(|rule| form.replace('v', &format!("v{rule}v"))).collect();
        let mut wildcards = Wildcards::default();
        (0..).zip(&texts).for_each(|(order, text)| wildcards.push(order, text, ()));
        assert!(wildcards.index().is_empty());
        let compared = |text| wildcards.candidates(Subject::Value(text)).map(<[usize]>::len).sum::<usize>();
        assert_eq!(texts.iter().map(|text| compared(text)).sum::<usize>(), texts.len(), "{form}");
    }
}

#[test]
fn limits_have_at_most_256_distinct_texts() {
    let file = |texts: u32| {
        let descriptor =
            |n| format!("- {{key: k{n}, rate_limit: {{limit: {}/s burst 300}}}}\n", n % texts + 1);
        (0..300).map(descriptor).collect::<String>()
    };
    assert_eq!(rules(&file(256)).limits().len(), 300);
    let told = errors(&format!("domain: d\ndescriptors:\n{}", file(257)));
    assert_eq!(told, "259:35: more than 256 distinct texts of 'limit': each has a limiter of its own");
}

/// Each limit has the keys of all levels above it in its name.
#[test]
fn the_names_of_limits_are_bounded_together() {
    let file = |limits: u32| {
        let mut text = format!("domain: d\ndescriptors:\n- key: {}\n  descriptors:\n", "k".repeat(100 << 10));
        for rule in 1..=limits {
            writeln!(text, "  - {{key: c{rule}, rate_limit: {{unit: day, requests_per_unit: 1}}}}").unwrap();
        }
        text
    };
    assert_eq!(errors(&file(655)), "");
    let told = "660:5: the names of the limits so far are longer than 67108864 bytes";
    assert_eq!(errors(&file(656)), told);
    assert_eq!(errors(&file(10_000)), told);
}

#[test]
fn findings_are_bounded_in_number_and_length() {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    (0..6_000).for_each(|_| text.push_str("- {value: v}\n"));
    let told = errors(&text);
    assert_eq!(told.lines().count(), 10_001);
    assert_eq!(told.lines().last(), Some("5003:3: those above 10000 are not told"));
    let long = "k".repeat(100 << 10);
    let limit = "rate_limit: {unit: day, requests_per_unit: 1}";
    let below = format!("  - {{key: c, {limit}}}\n").repeat(101);
    let told = errors(&format!("domain: d\ndescriptors:\n- key: {long}\n  descriptors:\n{below}"));
    assert_eq!(told.lines().count(), 100);
    assert!(told.len() < 100 * 2_000, "{}", told.len());
}

/// A text that looks like a configuration: pieces of one, with indents of chance.
fn almost_rules() -> impl Strategy<Value = String> {
    let pieces = "domain: |descriptors:|key: |value: |rate_limit: |unit: day|requests_per_unit: |unlimited: |name: |\
                  replaces: |share_threshold: |metadata: |limit: 5/s|<<: |- |&a |*a |!!str |? |: |[|]|{|}|, |'|\"|a*|k|5|0.5|\
                  true|~|---|...|#|%YAML|\t| ";
    let pieces: Vec<_> = pieces.split('|').collect();
    let line = (0..9_usize, prop::collection::vec(prop::sample::select(pieces), 0..6));
    prop::collection::vec(line, 0..30).prop_map(|lines| {
        let line = |(indent, pieces): &(usize, Vec<&str>)| " ".repeat(*indent) + &pieces.concat() + "\n";
        lines.iter().map(line).collect()
    })
}

/// A descriptor with stars and levels, in the flow form.
fn descriptor() -> impl Strategy<Value = String> {
    let leaf = ("[ab*_]{1,3}", "[ab*_]{0,4}", any::<[bool; 3]>()).prop_map(|(key, value, [shares, detailed, limited])| {
        let limit = if limited { ", rate_limit: {unit: day, requests_per_unit: 1}" } else { "" };
        format!("key: '{key}', value: '{value}', share_threshold: {shares}, detailed_metric: {detailed}{limit}")
    });
    leaf.prop_recursive(3, 12, 3, |inner| {
        (inner.clone(), prop::collection::vec(inner, 0..3)).prop_map(|(own, below)| {
            let below: Vec<_> = below.iter().map(|below| format!("{{{below}}}")).collect();
            if own.contains("descriptors") {
                own
            } else {
                format!("{own}, descriptors: [{}]", below.join(", "))
            }
        })
    })
}

/// The first pattern that matches, by reading all of them.
fn first_of(patterns: &[String], text: &str) -> Option<usize> {
    patterns.iter().position(|pattern| Pattern::new(pattern).matches(Subject::Value(text)))
}

proptest! {
    #[test]
    fn the_index_of_wildcards_finds_the_first_that_matches(
        patterns in prop::collection::vec("[ab_]{0,4}\\*[ab*]{0,3}", 0..20),
        asked in prop::collection::vec(("[ab]{0,3}", "[ab_]{0,4}"), 1..9),
    ) {
        let mut known = BTreeSet::new();
        let patterns: Vec<String> = patterns.into_iter().filter(|text| known.insert(text.clone())).collect();
        let rule = |field: &str, text: &String| format!("- {{{field}: '{text}', rate_limit: {{unit: day, requests_per_unit: N}}}}\n");
        let rules = |field| {
            let numbered = |(n, text)| rule(field, text).replace('N', &usize::to_string(&n));
            rules(&patterns.iter().enumerate().map(numbered).collect::<String>())
        };
        let (values, keys) = (rules("key: k, value"), rules("key"));
        for (key, value) in asked {
            let number = |found: Option<usize>| found.and_then(|n| u32::try_from(n).ok());
            prop_assert_eq!(found(&values, &format!("k={value}")), number(first_of(&patterns, &value)));
            let joined = format!("{key}_{value}");
            prop_assert_eq!(found(&keys, &format!("{key}={value}")), number(first_of(&patterns, &joined)));
        }
    }

    #[test]
    fn any_text_is_rules_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..200), text in almost_rules()) {
        for text in [&*String::from_utf8_lossy(&bytes), &text] {
            let loaded = load_files(&[("a.yaml", text)]);
            if let Some(domain) = loaded.rules.domain("k") {
                domain.find(entries("k=a,a*=5"));
            }
        }
    }

    /// A lookup of what was accepted returns a limit of the domain, and its name.
    #[test]
    fn any_descriptors_are_looked_up(
        below in prop::collection::vec(descriptor(), 0..4),
        asked in prop::collection::vec(("[ab*_]{0,4}", "[ab*_]{0,4}"), 1..4),
    ) {
        let below: String = below.iter().map(|below| format!("- {{{below}}}\n")).collect();
        let loaded = load_files(&[("a.yaml", &format!("domain: d\ndescriptors:\n{below}"))]);
        let asked = || asked.iter().map(|(key, value)| (&**key, &**value));
        if let Some(limit) = loaded.rules.domain("d").unwrap().find(asked()) {
            prop_assert!(limit.statistics.of(asked()).starts_with("d."));
            prop_assert!(limit.shared.is_empty() || limit.shared.len() == asked().count());
        }
    }
}
